"""Nearest-artifact search: which artifact that is in a cache now is the most similar to a prompt.

An *index* holds the artifacts of one cache (or one part of it) and answers exactly what comparing a query with
all of them would: the highest similarity that is not below the floor, among equals the artifact inserted first,
as an argmax over a cache in insertion order (MoDM, 3.2). The floor is the lowest similarity that any K asks for:
below it a request is a miss whatever was found, and a vector database would be told so too.

A *search* makes indexes: ``Exact`` compares as the run goes; ``Remembered`` compares the rows of a trace once, keeps
the result on disk, and looks it up in every later run, whatever its cache, policy, cluster or rate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from traces.bound import SLACK, Bound, cheapest
from traces.error import TraceError
from traces.neighbours import UNIT, Neighbours, remembered
from traces.similarity import DECIMALS, Floats, Space

FEW = 16
"""Queries compared at a time where the one after the next seldom needs it."""

Found = tuple[int, float]
"""An entry and its similarity."""


class Index(Protocol):
    """The artifacts that are in a cache now."""

    def add(self, entry: int, row: int) -> None:
        """Let the artifact of ``row`` be found as ``entry``. Entries are given in increasing order."""

    def remove(self, entry: int) -> None:
        """Let ``entry`` no longer be found."""

    def best(self, row: int) -> Found | None:
        """The best entry for the prompt of ``row``; None where none reaches the floor. Rows never fall."""

    def __len__(self) -> int: ...


@runtime_checkable
class Search(Protocol):
    """Makes indexes over one space of one trace."""

    def open(self, space: Space, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """What makes the indexes of a run.

        Args:
            space: bound to the trace.
            rows: of the trace, preloaded ones included.
            floor: similarities below it are not found.
            content: names the trace and the encoder, for what is remembered; None keeps nothing on disk.
        """


@dataclass(slots=True)
class Exact:
    """Compares coming queries with the cache as it is, ``block`` of them at a time."""

    block: int = 256

    def __post_init__(self) -> None:
        if self.block < 1:
            raise TraceError(f"search.block: found {self.block}, expected 1 or more")

    def open(self, space: Space, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """See Search.open."""
        bound = cheapest(space, rows, floor, nearest=True)
        return lambda: ExactIndex(space, rows, floor, bound, self.block)


@dataclass(slots=True)
class Remembered:
    """Finds every row's earlier neighbours above the floor once, on disk, and looks them up from then on.

    Args:
        longest: traces of more rows are searched as ``Exact`` does, since finding all neighbours takes time that
            grows with the square of the rows.
        most: neighbours kept of a row, the most similar ones. Where none of them is in the cache and there were
            more, the cache itself is searched.
    """

    longest: int = 200_000
    most: int = 1024

    def __post_init__(self) -> None:
        if self.longest < 0 or self.most < 1:
            raise TraceError(f"search: found longest={self.longest}, most={self.most}; expected 0 or more, 1 or more")

    def open(self, space: Space, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """See Search.open."""
        if rows > self.longest or floor == -np.inf:
            return Exact().open(space, rows, floor, content)
        known = remembered(space, rows, floor, self.most, content)
        return lambda: RememberedIndex(known, lambda: Exact(FEW).open(space, rows, floor, content)())


class RememberedIndex:
    """Looks a row's neighbours up, best first, until one is in the cache.

    Where a list was cut, and may lack the best, an exact index is asked. It is made when that first happens, and
    learns what came and left since only when it is asked again: it seldom is.
    """

    def __init__(self, known: Neighbours, exact: Callable[[], Index]) -> None:
        self._known = known
        self._exact = exact
        self._entry_of: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        self._fallback: Index | None = None
        self._late: list[int] = []
        self.fallbacks = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, entry: int, row: int) -> None:
        """See Index.add."""
        self._entry_of[row] = entry
        self._row_of[entry] = row
        if self._fallback is not None:
            self._late.append(entry)

    def remove(self, entry: int) -> None:
        """See Index.remove."""
        del self._entry_of[self._row_of.pop(entry)]
        if self._fallback is not None:
            self._late.append(~entry)

    def best(self, row: int) -> Found | None:
        """See Index.best."""
        rows, units, its, alone = self._known.head(row)
        found = self._among(rows, units, its)
        # Among equals the oldest is found; those at the end of what is known may not be all equals.
        if not alone and (found is None or found[1] == units[its[-1]]):
            rows, units, complete = self._known.whole(row)
            found = self._among(rows, units, range(len(rows)))
            if not complete and (found is None or found[1] == units[-1]):
                return self._search(row)
        return None if found is None else (found[0], found[1] / UNIT)

    def _among(self, rows: list[int], units: list[int], its: range) -> tuple[int, int] | None:
        """The best entry of those neighbours, the oldest of equals, and its similarity in millionths."""
        entry_of = self._entry_of
        for at in its:
            if rows[at] in entry_of:
                entry, unit = entry_of[rows[at]], units[at]
                for other in range(at + 1, its.stop):
                    if units[other] != unit:
                        break
                    entry = min(entry, entry_of.get(rows[other], entry))
                return entry, unit
        return None

    def _search(self, row: int) -> Found | None:
        self.fallbacks += 1
        if self._fallback is None:
            self._fallback = self._exact()
            self._late = sorted(self._row_of)
        came = dict.fromkeys(entry for entry in self._late if entry >= 0)
        for gone in (~entry for entry in self._late if entry < 0):
            if gone in came:
                del came[gone]
            else:
                self._fallback.remove(gone)
        for entry in came:
            self._fallback.add(entry, self._row_of[entry])
        self._late = []
        return self._fallback.best(row)


ROWS, BLOCKS = 256, 4
"""Rows whose vectors are made at a time, and how many times as many are kept: artifacts come nearly in order."""


class Slots:
    """The vectors of the artifacts held now, in rows of an array that are used again."""

    def __init__(self, space: Space, rows: int, bound: Bound) -> None:
        self._space = space
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
        vectors = self._space.artifacts(np.arange(block * ROWS, min((block + 1) * ROWS, self._rows)))
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


class ExactIndex:
    """Exact search over a changing set of artifacts, in blocks of coming queries.

    The rows that will be looked up are known in advance and come in increasing order, so ``block`` of them are
    compared with the whole set in one matrix product; what enters or leaves before a query's turn is taken into
    account then. Products of short vectors tell which artifacts can reach the floor, and only those are compared
    in full (traces.bound).
    """

    def __init__(self, space: Space, rows: int, floor: float, bound: Bound, block: int = 256) -> None:
        self._space = space
        self._rows = rows
        self._floor = floor
        self._bound = bound
        self._block = block
        self._slots = Slots(space, rows, bound)
        self._start = self._stop = 0
        self._queries = self._queries_short = self._bounds = np.empty((0, 0), np.float32)
        self._changed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, entry: int, row: int) -> None:
        """See Index.add."""
        self._changed[self._slots.add(entry, row)] = None

    def remove(self, entry: int) -> None:
        """See Index.remove."""
        self._changed[self._slots.remove(entry)] = None

    def best(self, row: int) -> Found | None:
        """See Index.best."""
        if not len(self._slots):
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        bounds = self._bounds[row - self._start]
        if self._changed:
            bounds = self._amend(bounds, self._queries_short[row - self._start])
        return self._slots.best(bounds, self._queries[row - self._start], self._floor)

    def _amend(self, bounds: Floats, query: Floats) -> Floats:
        """The bounds of one query, corrected in the slots that changed since its block was compared."""
        held = self._slots
        slots = np.fromiter(self._changed, np.int64, len(self._changed))
        if len(bounds) < held.used:
            bounds = np.concatenate((bounds, np.full(held.used - len(bounds), -np.inf, np.float32)))
        bounds[slots] = np.where(held.entry[slots] >= 0, held.short[slots].dot(query), -np.inf)
        return bounds

    def _compare_from(self, row: int) -> None:
        held = self._slots
        self._start, self._stop = row, min(row + self._block, self._rows)
        self._queries = self._space.queries(self._start, self._stop)
        self._queries_short = self._bound.short(self._queries)
        self._bounds = self._queries_short @ held.short[: held.used].T
        self._bounds[:, held.entry[: held.used] < 0] = -np.inf
        self._changed = {}
