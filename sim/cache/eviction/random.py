"""Random replacement."""

from dataclasses import dataclass, field

import numpy as np

from mezzotint.sim.cache.eviction.base import items_of
from mezzotint.sim.core.streams import EVICTION
from mezzotint.sim.protocols import Eviction, Item, Run, Selector
from mezzotint.traces.similarity.similarities import SimilaritySource

DRAWS_PER_CALL = 4096
"""Random numbers drawn at a time."""


@dataclass(slots=True)
class Random(Eviction):
    """Evict an item at random, each with the same probability."""

    _rng: np.random.Generator = field(init=False, repr=False)
    _items: list[Item] = field(init=False, default_factory=list, repr=False)
    _drawn: list[float] = field(init=False, default_factory=list, repr=False)

    def bind(self, run: Run, similarity: SimilaritySource, selector: Selector) -> None:
        self._rng = run.rng(EVICTION)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        self._items.extend(items_of(entry, ks))

    def victims(self, count: int) -> list[Item]:
        return [self._victim() for _ in range(count)]

    def _victim(self) -> Item:
        """Remove and return one item; the last item takes its place, so that no other moves."""
        if not self._drawn:
            self._drawn = self._rng.random(DRAWS_PER_CALL).tolist()
        items = self._items
        # A draw from a block: a call of the generator takes longer than the rest. Below 1, so the place is in range.
        place = int(self._drawn.pop() * len(items))
        item, items[place] = items[place], items[-1]
        items.pop()
        return item
