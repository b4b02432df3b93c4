"""Index of the lowest of many values, for routers: a choice and a change cost as little at 65,536 workers as at 16."""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from operator import eq
from typing import Any, Literal

import numpy as np

from mezzotint.sim.protocols import Run, Worker

Ties = Literal["first", "random"]
"""The choice among workers of equal load."""

SHIFT = 4
FAN = 1 << SHIFT
"""Children of a node: several, since a step from node to node takes longer than a look at the next child."""


class Lowest:
    """The lowest of a row of values, and where it is: a tree of minima. A change and a search cost O(log n)."""

    __slots__ = ("_down", "_leaves", "_levels", "_nodes", "_top")

    def __init__(self, values: Iterable[Any]) -> None:
        self._levels = [list(values)]
        while len(below := self._levels[-1]) > 1:
            self._levels.append([min(below[at : at + FAN]) for at in range(0, len(below), FAN)])
        # Each search and change goes through these.
        self._leaves, *self._nodes = self._levels
        self._top, *self._down = self._levels[::-1]

    @property
    def low(self) -> Any:
        return self._top[0]

    def set(self, position: int, value: Any) -> None:
        below = self._leaves
        old, below[position] = below[position], value
        # From here on, each node compares its minimum with the old and the new one of the child that changed.
        for lows in self._nodes:
            position >>= SHIFT
            low = lows[position]
            if value > low:
                if old != low:
                    return
                at = position << SHIFT
                value = min(below[at : at + FAN])
            if value == low:
                return
            lows[position] = value
            old, below = low, lows

    def first(self, bound: Any) -> int:
        """Return the first position with a value of at most ``bound``, which is not below the lowest."""
        position = 0
        for lows in self._down:
            position <<= SHIFT
            while lows[position] > bound:
                position += 1
        return position

    def pick(self, rng: np.random.Generator | None) -> int:
        """Return the position of a lowest value: the first, or a random one where they are counted."""
        return self.first(self._top[0])

    def up_to(self, bound: Any) -> list[int]:
        """Return the positions of all values of at most ``bound``, in ascending order."""
        positions = [0]
        for lows in self._down:
            children = (range(node << SHIFT, min(node + 1 << SHIFT, len(lows))) for node in positions)
            positions = [child for nodes in children for child in nodes if lows[child] <= bound]
        return positions


class CountedLowest(Lowest):
    """The lowest of a row of values, how often it occurs, and where."""

    __slots__ = ("_counts",)

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self._counts = [[1] * len(self._levels[0])]
        for lows in self._levels[1:]:
            self._counts.append([self._count(len(self._counts), node, low) for node, low in enumerate(lows)])

    def _count(self, level: int, node: int, low: Any) -> int:
        """Return how often ``low`` occurs below ``node``."""
        at = node << SHIFT
        is_low = map(eq, self._levels[level - 1][at : at + FAN], repeat(low))
        return sum(compress(self._counts[level - 1][at : at + FAN], is_low))

    def set(self, position: int, value: Any) -> None:
        below = self._levels[0]
        old, below[position] = below[position], value
        if value == old:
            return
        old_count = count = 1
        for level in range(1, len(self._levels)):
            lows, counts = self._levels[level], self._counts[level]
            position >>= SHIFT
            low, low_count = lows[position], counts[position]
            if value > low:
                if old != low:
                    return
                if low_count > old_count:
                    value, count = low, low_count - old_count
                else:
                    at = position << SHIFT
                    value = min(below[at : at + FAN])
                    count = self._count(level, position, value)
            elif value == low:
                count += low_count - (old_count if old == low else 0)
                if count == low_count:
                    return
            lows[position], counts[position] = value, count
            old, old_count, below = low, low_count, lows

    def pick(self, rng: np.random.Generator | None) -> int:
        rank, low, position = rank_of(self._counts[-1][0], rng), self._top[0], 0
        for lows, counts in zip(self._down, self._counts[-2::-1], strict=True):
            position <<= SHIFT
            while True:
                if lows[position] == low:
                    if rank < counts[position]:
                        break
                    rank -= counts[position]
                position += 1
        return position


def rank_of(count: int, rng: np.random.Generator | None) -> int:
    """Return which of ``count`` workers with the same value is chosen: the first if there is no ``rng``."""
    # No draw without a tie, so that the stream depends on ties alone.
    return 0 if rng is None or count == 1 else int(rng.integers(count))


class LowestWorkers:
    """The lowest value among each sequence of workers that a scheduler lets its router choose from.

    Args:
        value: the present value of a worker.
    """

    __slots__ = ("_index", "_max_sequences", "_of", "_places", "_value")

    def __init__(self, run: Run, ties: Ties, value: Callable[[Worker], Any]) -> None:
        self._value = value
        self._index = Lowest if ties == "first" else CountedLowest
        self._max_sequences = len(run.models) + 1  # the workers of each model, and all
        self._of: dict[int, tuple[Sequence[Worker], Lowest]] = {}
        self._places: dict[Worker, list[tuple[Lowest, int]]] = {}

    def among(self, workers: Sequence[Worker]) -> Lowest:
        """Return the index of ``workers``; that of a tuple is kept, as long as the scheduler does not change many."""
        known = self._of.get(id(workers))
        if known is not None:
            return known[1]
        lowest = self._index(map(self._value, workers))
        if isinstance(workers, tuple):
            if len(self._of) == self._max_sequences:
                self._of.clear()
                self._places.clear()
            # With the tuple itself, whose identity is no other's as long as it is kept.
            self._of[id(workers)] = workers, lowest
            for position, worker in enumerate(workers):
                self._places.setdefault(worker, []).append((lowest, position))
        return lowest

    def set(self, worker: Worker, value: Any) -> None:
        """Take note that the value of ``worker`` is ``value`` now."""
        for lowest, position in self._places.get(worker, ()):
            lowest.set(position, value)
