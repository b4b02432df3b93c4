"""Vectors and short vectors of the artifacts in the cache, in reused slots of arrays."""

import numpy as np
from numpy.typing import NDArray

from mezzotint.traces.similarity.bound import SLACK, Bound
from mezzotint.traces.similarity.search import Found
from mezzotint.traces.similarity.similarities import DECIMALS, Floats, SimilaritySource

ROWS, BLOCKS = 256, 4
"""Rows whose vectors are made at a time, and blocks of rows kept: artifacts arrive nearly in row order."""


class Blocks:
    """Vectors and short vectors of the artifacts of a trace, in blocks of rows; all indexes of a search share them."""

    def __init__(self, source: SimilaritySource, rows: int, bound: Bound) -> None:
        self._source = source
        self._rows = rows
        self._made: dict[int, tuple[Floats, Floats]] = {}
        self.bound = bound

    def holding(self, row: int) -> tuple[Floats, Floats]:
        """Return the vectors and short vectors of the block of ``row``, made if needed."""
        block = row // ROWS
        found = self._made.get(block)
        if found is None:
            if len(self._made) == BLOCKS:
                # Rows come in ascending order, so the block made first is needed last.
                del self._made[next(iter(self._made))]
            vectors = self._source.artifacts(np.arange(block * ROWS, min((block + 1) * ROWS, self._rows)))
            self._made[block] = found = vectors, self.bound.short(vectors)
        return found


class Slots:
    """Vectors of the artifacts in the cache, in rows (slots) of arrays that are reused."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.vectors = np.empty((0, 0), np.float32)
        self.short = np.empty((0, 0), np.float32)
        self.entry = np.empty(0, np.int64)
        self.used = 0
        self._slot: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slot)

    def add(self, entry: int, row: int) -> int:
        """Store the artifact of ``row``. Returns its slot."""
        vectors, short = self._blocks.holding(row)
        slot = self._free.pop() if self._free else self.used
        if slot == self.used:
            self.used += 1
            if self.used > len(self.vectors):
                self._grow(vectors.shape[1])
        self.vectors[slot] = vectors[row % ROWS]
        self.short[slot] = short[row % ROWS]
        self.entry[slot] = entry
        self._slot[entry] = slot
        return slot

    def remove(self, entry: int) -> int:
        """Remove ``entry``. Returns its slot, whose entry is -1 from now on."""
        slot = self._slot.pop(entry)
        self.entry[slot] = -1
        self._free.append(slot)
        return slot

    def best(self, bounds: Floats, query: Floats, floor: float, among: NDArray[np.int64] | None = None) -> Found | None:
        """Return the artifact of the highest similarity not below ``floor``, the oldest of ties; None if there is none.

        The product with the artifact of the highest bound rules out all artifacts of a lower bound. Products in single
        precision rule out most of the others. The rest is compared in double precision.

        Args:
            bounds: upper bounds of the products, of the slots ``among`` or, if that is None, of all from the first on.
        """
        if not len(bounds):
            return None
        top = bounds.argmax()
        # ``dot``, because ``@`` sometimes warned of an invalid value although all are finite
        reached = self.vectors[top if among is None else among[top]].dot(query)
        # Twice, since both the bound and the product that it is compared with may be off by SLACK.
        (slots,) = (bounds >= max(np.float32(floor), reached) - 2 * SLACK).nonzero()
        if not len(slots):
            return None
        if among is not None:
            slots = among[slots]
        vectors = self.vectors[slots]
        if len(slots) > 1:
            products = vectors.dot(query)
            near = products >= products.max() - 2 * SLACK
            slots, vectors = slots[near], vectors[near]
        # Rounded, so that equal similarities are ties on every machine (test_exact_search_breaks_ties_by_age).
        exact = vectors.astype(np.float64).dot(query.astype(np.float64)).round(DECIMALS)
        highest = exact.max()
        if not highest >= floor:
            return None
        # Entries are numbered as they come, so the least is the oldest.
        return int(self.entry[slots[exact == highest]].min()), float(highest)

    def _grow(self, dim: int) -> None:
        size = max(64, 2 * len(self.vectors))
        vectors = np.zeros((size, dim), np.float32)
        short = np.zeros((size, self._blocks.bound.axes.shape[1] + 1), np.float32)
        if self.used > 1:
            vectors[: len(self.vectors)] = self.vectors
            short[: len(self.short)] = self.short
        self.vectors, self.short = vectors, short
        self.entry = np.concatenate((self.entry, np.full(size - len(self.entry), -1, np.int64)))
