"""Random replacement."""

from dataclasses import dataclass, field

import numpy as np

from sim.cache.eviction.base import items_of
from sim.core.streams import EVICTION
from sim.protocols import Eviction, Item, Run, Selector
from traces.similarity.similarities import SimilaritySource

DRAWN = 4096
"""Random numbers drawn at a time."""


@dataclass(slots=True)
class Random(Eviction):
    """Every item in the cache is equally likely to go."""

    _rng: np.random.Generator = field(init=False, repr=False)
    _items: list[Item] = field(init=False, default_factory=list, repr=False)
    _drawn: list[float] = field(init=False, default_factory=list, repr=False)

    def bind(self, run: Run, space: SimilaritySource, selector: Selector) -> None:
        self._rng = run.rng(EVICTION)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        self._items.extend(items_of(entry, ks))

    def victims(self, count: int) -> list[Item]:
        return [self._victim() for _ in range(count)]

    def _victim(self) -> Item:
        """One item; the last one takes its place, so that nothing else moves."""
        if not self._drawn:
            self._drawn = self._rng.random(DRAWN).tolist()
        items = self._items
        at = int(self._drawn.pop() * len(items))
        item, items[at] = items[at], items[-1]
        items.pop()
        return item
