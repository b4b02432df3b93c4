"""Sources of similarity: the vectors compared between a prompt and the artifacts of earlier requests.

Searches compare inner products, rounded to six decimals so that ties are ties on every machine. An increasing map,
which includes the encoder's similarity map, turns the best product into the similarity that selectors have thresholds
for.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.assumption import Assumption
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.similarity_map import Identity, SimilarityMap

Floats = NDArray[np.float32]

DECIMALS = 6
"""Products that agree to this many decimals are equal: float32 products are good to about 1e-6."""


def similarity(queries: Floats, artifacts: Floats) -> NDArray[np.float64]:
    """Return the products of pairs of rows, (n,), as every search does: in double precision, then rounded."""
    products: NDArray[np.float64] = np.einsum("ij,ij->i", queries.astype(np.float64), artifacts.astype(np.float64))
    return np.round(products, DECIMALS)


@runtime_checkable
class SimilaritySource(Protocol):
    """Vectors of one trace, as queries and as artifacts; all float32."""

    def bind(self, embeddings: Floats, rng: np.random.Generator, similarity_map: SimilarityMap | None = None) -> None:
        """Take the trace's text embeddings (n, d), unit rows, a random stream, and the similarity map of the encoder.

        None is the identity map.
        """

    def similar(self, product: float) -> float:
        """Return the similarity for an inner product of a query and an artifact."""

    def product(self, similarity: float) -> float:
        """Return the inner product for a similarity, the inverse of ``similar``."""

    def queries(self, start: int, stop: int) -> Floats:
        """Return the query vectors of rows start..stop-1, (stop - start, d)."""

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        """Return the vectors of the artifacts of ``rows``, (k, d)."""

    @property
    def key(self) -> str:
        """Name of everything that decides the vectors besides the embeddings; part of a cache key."""

    def assumptions(self) -> list[Assumption]:
        """Return what is modelled rather than measured."""


class MeasuredCosine:
    """Cosine of a prompt's text vector and an image's, both measured: similarities are the products themselves."""

    __slots__ = ()
    _text: Floats

    def similar(self, product: float) -> float:
        return product

    def product(self, similarity: float) -> float:
        return similarity

    def queries(self, start: int, stop: int) -> Floats:
        return np.asarray(self._text[start:stop])


@dataclass(slots=True)
class TextToText:
    """Cosine of the prompts' text embeddings (NIRVANA, 4: both sides are CLIP text vectors)."""

    key: ClassVar[str] = "text"
    _embeddings: Floats = field(init=False, repr=False)
    _similarity_map: SimilarityMap = field(init=False, default_factory=Identity, repr=False)

    def bind(self, embeddings: Floats, rng: np.random.Generator, similarity_map: SimilarityMap | None = None) -> None:
        self._embeddings = embeddings
        self._similarity_map = similarity_map or Identity()

    def similar(self, product: float) -> float:
        return self._similarity_map.to_clip(product)

    def product(self, similarity: float) -> float:
        return self._similarity_map.from_clip(similarity)

    def queries(self, start: int, stop: int) -> Floats:
        return np.asarray(self._embeddings[start:stop])

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        return np.asarray(self._embeddings[rows])

    def assumptions(self) -> list[Assumption]:
        return self._similarity_map.assumptions()


@dataclass(slots=True)
class TextToImage:
    """A modelled text-to-image cosine, for traces without images (MoDM, 3.2 searches CLIP image vectors).

    The image made for row j has its own CLIPScore a_j, drawn from N(``clip_score``, ``spread``). An unrelated prompt
    scores ``unrelated`` on it. The score of a prompt i rises from one to the other with the similarity of the prompts:
    s_ij = u + (c - u) f(g_j cos(e_i, e_j)). Here c is ``clip_score``, u is ``unrelated``, f is the similarity map, and
    g_j = (a_j - u) / (c - u) is how well the image shows its prompt. The score rises with the product
    g_j cos(e_i, e_j), so the search for the highest product is the same as for text.

    Args:
        clip_score: mean cosine of a prompt and the image made for it.
        spread: standard deviation of that cosine over images.
        unrelated: cosine of an image and an unrelated prompt.
    """

    clip_score: float
    spread: float
    unrelated: float
    _embeddings: Floats = field(init=False, repr=False)
    _gain: Floats = field(init=False, repr=False)
    _similarity_map: SimilarityMap = field(init=False, default_factory=Identity, repr=False)

    def __post_init__(self) -> None:
        if not (0 <= self.unrelated < self.clip_score <= 1 and self.spread >= 0):
            raise TraceError(
                f"text-to-image similarity: found clip_score {self.clip_score}, spread {self.spread}, unrelated "
                f"{self.unrelated}; expected 0 <= unrelated < clip_score <= 1 and spread >= 0"
            )

    def bind(self, embeddings: Floats, rng: np.random.Generator, similarity_map: SimilarityMap | None = None) -> None:
        """Draw the images' own scores, one per row, so that they do not depend on the cache."""
        self._embeddings = embeddings
        self._similarity_map = similarity_map or Identity()
        own = rng.normal(self.clip_score, self.spread, len(embeddings))
        self._gain = (np.maximum(own - self.unrelated, 0.0) / (self.clip_score - self.unrelated)).astype(np.float32)

    def similar(self, product: float) -> float:
        return self.unrelated + (self.clip_score - self.unrelated) * self._similarity_map.to_clip(product)

    def product(self, similarity: float) -> float:
        return self._similarity_map.from_clip((similarity - self.unrelated) / (self.clip_score - self.unrelated))

    def queries(self, start: int, stop: int) -> Floats:
        return np.asarray(self._embeddings[start:stop])

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        vectors: Floats = self._embeddings[rows] * self._gain[rows, None]
        return vectors

    @property
    def key(self) -> str:
        return f"image-{self.clip_score:g}-{self.spread:g}-{self.unrelated:g}"

    def assumptions(self) -> list[Assumption]:
        u, c = f"{self.unrelated:g}", f"{self.clip_score:g}"
        model = f"s = {u} + ({c} - {u}) f(g cos(text, text)), f the scale of similarity"
        drawn = f"g = (a - {u}) / ({c} - {u}), a ~ N({c}, {self.spread:g}) per image"
        return [
            Assumption(
                "text-to-image similarity",
                f"{model}, {drawn}",
                "modelled from the prompts, and no image is compared; mean from MoDM Table 2 (CLIPScore 28.55), spread "
                "and unrelated are settings",
            ),
            *self._similarity_map.assumptions(),
        ]
