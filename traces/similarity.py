"""Similarity spaces: what "similar" means between a prompt and what earlier requests left behind.

A *space* turns rows of a trace into query vectors and into the vectors of the artifacts that those rows
left behind; the similarity of a query to an artifact is their inner product, rounded to six decimals, so that
ties are ties on every machine.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from traces.error import TraceError

Floats = NDArray[np.float32]

DECIMALS = 6
"""Similarities that agree to this many decimals are equal: float32 products are good to about 1e-6."""


def similarity(queries: Floats, artifacts: Floats) -> NDArray[np.float64]:
    """The similarities of pairs of rows, (n,), as every search gives them: in double precision, then rounded."""
    products: NDArray[np.float64] = np.einsum("ij,ij->i", queries.astype(np.float64), artifacts.astype(np.float64))
    return np.round(products, DECIMALS)


@runtime_checkable
class Space(Protocol):
    """Vectors of one trace, as queries and as artifacts. All are float32."""

    def bind(self, embeddings: Floats, rng: np.random.Generator) -> None:
        """Take the trace's text embeddings (n, d), unit rows, and a random stream of this space's own."""

    def queries(self, start: int, stop: int) -> Floats:
        """The query vectors of rows start..stop-1, shape (stop - start, d)."""

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        """The vectors of the artifacts that ``rows`` leave behind, shape (k, d)."""

    @property
    def key(self) -> str:
        """Names everything that decides the vectors besides the embeddings: part of a file's name."""

    def assumptions(self) -> list[tuple[str, Any, str]]:
        """What of this space is modelled rather than measured: (what, value, source)."""


@dataclass(slots=True)
class TextToText:
    """Cosine of the prompts' text embeddings (NIRVANA, 4: both sides are CLIP text vectors)."""

    _embeddings: Floats = field(init=False, repr=False)

    def bind(self, embeddings: Floats, rng: np.random.Generator) -> None:
        """See Space.bind."""
        self._embeddings = embeddings

    def queries(self, start: int, stop: int) -> Floats:
        """See Space.queries."""
        return np.asarray(self._embeddings[start:stop])

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        """See Space.artifacts."""
        return np.asarray(self._embeddings[rows])

    @property
    def key(self) -> str:
        """See Space.key."""
        return "text"

    def assumptions(self) -> list[tuple[str, Any, str]]:
        """See Space.assumptions."""
        return []


@dataclass(slots=True)
class TextToImage:
    """A modelled text-to-image cosine, for traces without images (MoDM, 3.2 searches CLIP image vectors).

    The image made for row j has a CLIPScore of its own, a_j, drawn from N(``clip_score``, ``spread``); an
    unrelated prompt scores ``unrelated`` on it. For prompt i the score moves from the one to the other with
    the cosine of the two prompts: s_ij = u + (a_j - u) cos(e_i, e_j). This is an inner product of d + 1
    dimensions, so the search is the same as for text.

    Args:
        clip_score: mean cosine of a prompt and the image made for it.
        spread: standard deviation of that cosine over images.
        unrelated: cosine of an image and a prompt that has nothing to do with it.
    """

    clip_score: float
    spread: float
    unrelated: float
    _embeddings: Floats = field(init=False, repr=False)
    _gain: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (0 <= self.unrelated < self.clip_score <= 1 and self.spread >= 0):
            raise TraceError(
                f"text-to-image space: found clip_score {self.clip_score}, spread {self.spread}, unrelated "
                f"{self.unrelated}; expected 0 <= unrelated < clip_score <= 1 and spread >= 0"
            )

    def bind(self, embeddings: Floats, rng: np.random.Generator) -> None:
        """See Space.bind. The images' own scores are drawn here, one per row whatever the cache does."""
        self._embeddings = embeddings
        own = rng.normal(self.clip_score, self.spread, len(embeddings))
        self._gain = np.maximum(own - self.unrelated, 0.0).astype(np.float32)

    def queries(self, start: int, stop: int) -> Floats:
        """See Space.queries."""
        block = np.ones((stop - start, self._embeddings.shape[1] + 1), np.float32)
        block[:, :-1] = self._embeddings[start:stop]
        return block

    def artifacts(self, rows: NDArray[np.int64]) -> Floats:
        """See Space.artifacts."""
        vectors = np.empty((len(rows), self._embeddings.shape[1] + 1), np.float32)
        np.multiply(self._embeddings[rows], self._gain[rows, None], out=vectors[:, :-1])
        vectors[:, -1] = self.unrelated
        return vectors

    @property
    def key(self) -> str:
        """See Space.key."""
        return f"image-{self.clip_score:g}-{self.spread:g}-{self.unrelated:g}"

    def assumptions(self) -> list[tuple[str, Any, str]]:
        """See Space.assumptions."""
        model = f"s = {self.unrelated:g} + (a - {self.unrelated:g}) cos(text, text)"
        drawn = f"a ~ N({self.clip_score:g}, {self.spread:g}) per image"
        return [
            (
                "text-to-image similarity",
                f"{model}, {drawn}",
                "modelled, there being no images; mean from MoDM Table 2 (CLIPScore 28.55), spread and "
                "unrelated are settings",
            )
        ]
