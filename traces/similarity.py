"""Similarity spaces and nearest-artifact search.

A *space* turns rows of a trace into query vectors and into the vectors of the artifacts that those rows
left behind; the similarity of a query to an artifact is their inner product. An *index* holds the artifacts
that are in a cache at this moment and finds the best one for a query.

Similarities are rounded to six decimals, so that ties are ties on every machine; among equals the artifact
that was inserted first is found, as an argmax over a cache in insertion order would (MoDM, 3.2).
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from traces.error import TraceError

Floats = NDArray[np.float32]

DECIMALS = 6
"""Similarities that agree to this many decimals are equal: float32 products are good to about 1e-6."""

_NEAR = np.float32(4e-6)
"""How far a float32 product may lie below the largest one and still win once computed in float64."""


@runtime_checkable
class Space(Protocol):
    """Vectors of one trace, as queries and as artifacts. All are float32."""

    def bind(self, embeddings: Floats, rng: np.random.Generator) -> None:
        """Take the trace's text embeddings (n, d), unit rows, and a random stream of this space's own."""

    def queries(self, start: int, stop: int) -> Floats:
        """The query vectors of rows start..stop-1, shape (stop - start, d)."""

    def artifact(self, row: int) -> Floats:
        """The vector of the artifact that ``row`` leaves behind, shape (d,)."""

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

    def artifact(self, row: int) -> Floats:
        """See Space.artifact."""
        return np.asarray(self._embeddings[row])

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

    def artifact(self, row: int) -> Floats:
        """See Space.artifact."""
        vector = np.empty(self._embeddings.shape[1] + 1, np.float32)
        np.multiply(self._embeddings[row], self._gain[row], out=vector[:-1])
        vector[-1] = self.unrelated
        return vector

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


class ExactIndex:
    """Exact search over a changing set of artifacts, in blocks of coming queries.

    The rows that will be looked up are known in advance and come in increasing order, so ``block`` of them
    are compared with the whole set in one matrix product; what enters or leaves before a query's turn is
    taken into account then. The answer is what comparing the query with the live set would give, ties
    included.
    """

    def __init__(self, space: Space, rows: int, block: int = 256) -> None:
        self._space = space
        self._rows = rows
        self._block = block
        self._vectors = np.empty((0, 0), np.float32)
        self._entry = np.empty(0, np.int64)
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0
        self._start = self._stop = 0
        self._queries = np.empty((0, 0), np.float32)
        self._products = np.empty((0, 0), np.float32)
        self._changed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._slot)

    def add(self, entry: int, row: int) -> None:
        """Let the artifact of ``row`` be found as ``entry``. Entries are given in increasing order."""
        vector = self._space.artifact(row)
        if vector.dtype != np.float32:
            raise TypeError(f"artifact vector of row {row}: found {vector.dtype}, expected float32")
        slot = self._free.pop() if self._free else self._used
        if slot == self._used:
            self._used += 1
            if self._used > len(self._vectors):
                self._grow(len(vector))
        self._vectors[slot] = vector
        self._entry[slot] = entry
        self._slot[entry] = slot
        self._changed[slot] = None

    def remove(self, entry: int) -> None:
        """Let ``entry`` no longer be found."""
        slot = self._slot.pop(entry)
        self._entry[slot] = -1
        self._free.append(slot)
        self._changed[slot] = None

    def best(self, row: int) -> tuple[int, float] | None:
        """The entry most similar to the prompt of ``row``, and its similarity; None where nothing is held."""
        if not self._slot:
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        query = self._queries[row - self._start]
        products = self._products[row - self._start]
        if self._changed:
            slots = np.fromiter(self._changed, np.int64, len(self._changed))
            products = self._amend(products, slots, query)
        top = products.max()
        near = np.flatnonzero(products >= top - _NEAR)
        exact = np.round(self._vectors[near].astype(np.float64) @ query.astype(np.float64), DECIMALS)
        entries = self._entry[near]
        first = np.lexsort((entries, -exact))[0]
        return int(entries[first]), float(exact[first])

    def _amend(self, products: Floats, slots: NDArray[np.int64], query: Floats) -> Floats:
        """The products of one query, corrected in the slots that changed since its block was compared."""
        if len(products) < self._used:
            products = np.concatenate((products, np.full(self._used - len(products), -np.inf, np.float32)))
        live = self._entry[slots] >= 0
        products[slots[~live]] = -np.inf
        products[slots[live]] = self._vectors[slots[live]] @ query
        return products

    def _compare_from(self, row: int) -> None:
        self._start, self._stop = row, min(row + self._block, self._rows)
        self._queries = self._space.queries(self._start, self._stop)
        if self._queries.dtype != np.float32:
            raise TypeError(f"query vectors of row {row}: found {self._queries.dtype}, expected float32")
        self._products = self._queries @ self._vectors[: self._used].T
        self._products[:, self._entry[: self._used] < 0] = -np.inf
        self._changed = {}

    def _grow(self, dim: int) -> None:
        size = max(64, 2 * len(self._vectors))
        vectors = np.zeros((size, dim), np.float32)
        if len(self._vectors):
            vectors[: len(self._vectors)] = self._vectors
        self._vectors = vectors
        self._entry = np.concatenate((self._entry, np.full(size - len(self._entry), -1, np.int64)))
