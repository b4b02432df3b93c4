"""The vectors of the artifacts that are held now, with their short vectors, slot by slot."""

import numpy as np
from numpy.typing import NDArray

from traces.similarity.bound import SLACK, Bound
from traces.similarity.search import Found
from traces.similarity.similarities import DECIMALS, Floats, SimilaritySource

ROWS, BLOCKS = 256, 4
"""Rows whose vectors are made at a time, and how many times as many are kept: artifacts come nearly in order."""


class Slots:
    """The vectors of the artifacts held now, in rows of an array that are used again."""

    def __init__(self, source: SimilaritySource, rows: int, bound: Bound) -> None:
        self._source = source
        self._rows = rows
        self._bound = bound
        self._made: dict[int, tuple[Floats, Floats]] = {}
        self.vectors = np.empty((0, 0), np.float32)
        self.short = np.empty((0, 0), np.float32)
        self.entry = np.empty(0, np.int64)
        self.used = 0
        self._slot: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slot)

    def add(self, entry: int, row: int) -> int:
        """Store the artifact of ``row``; returns its slot."""
        vectors, short = self._made.get(row // ROWS) or self._make(row // ROWS)
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
        """Let ``entry`` go; returns the slot that it had, whose entry is -1 from now on."""
        slot = self._slot.pop(entry)
        self.entry[slot] = -1
        self._free.append(slot)
        return slot

    def best(self, bounds: Floats, query: Floats, floor: float, among: NDArray[np.int64] | None = None) -> Found | None:
        """The best of the artifacts in the slots ``among``: the highest similarity not below ``floor``, the oldest of
        equals; ``bounds`` are theirs, or of all slots from the first one on.

        The product with the artifact of the highest of the ``bounds`` rules out all whose bound is lower, and products
        in single precision most of the others; what is left is compared in full.
        """
        if not len(bounds):
            return None
        top = bounds.argmax()
        # ``dot`` and not ``@``, which now and then warned of an invalid value where all are finite.
        reached = self.vectors[top if among is None else among[top]].dot(query)
        slots = np.flatnonzero(bounds >= max(np.float32(floor), reached) - 2 * SLACK)
        if not len(slots):
            return None
        if among is not None:
            slots = among[slots]
        products = self.vectors[slots].dot(query)
        slots = slots[products >= products.max() - 2 * SLACK]
        exact = np.round(self.vectors[slots].astype(np.float64).dot(query.astype(np.float64)), DECIMALS)
        highest = exact.max()
        if not highest >= floor:
            return None
        return int(self.entry[slots[exact == highest]].min()), float(highest)

    def _make(self, block: int) -> tuple[Floats, Floats]:
        """The vectors and short vectors of the artifacts of a block of rows."""
        if len(self._made) == BLOCKS:
            del self._made[next(iter(self._made))]
        vectors = self._source.artifacts(np.arange(block * ROWS, min((block + 1) * ROWS, self._rows)))
        self._made[block] = made = vectors, self._bound.short(vectors)
        return made

    def _grow(self, dim: int) -> None:
        size = max(64, 2 * len(self.vectors))
        vectors = np.zeros((size, dim), np.float32)
        short = np.zeros((size, self._bound.axes.shape[1] + 1), np.float32)
        if self.used > 1:
            vectors[: len(self.vectors)] = self.vectors
            short[: len(self.short)] = self.short
        self.vectors, self.short = vectors, short
        self.entry = np.concatenate((self.entry, np.full(size - len(self.entry), -1, np.int64)))
