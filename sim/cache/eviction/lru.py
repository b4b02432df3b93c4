"""Least recently used."""

from collections import OrderedDict
from dataclasses import dataclass, field

from mezzotint.sim.cache.eviction.base import items_of
from mezzotint.sim.protocols import Eviction, Item


@dataclass(slots=True)
class Lru(Eviction):
    """Evict the least recently used item; entering counts as a use (NIRVANA, 7.4). A use is one of that (prompt, K):
    the other states of the prompt grow older. About 140 bytes per item."""

    _items: OrderedDict[Item, None] = field(init=False, default_factory=OrderedDict, repr=False)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        items = self._items
        for item in items_of(entry, ks):
            items[item] = None

    def used(self, item: Item) -> None:
        self._items.move_to_end(item)

    def victims(self, count: int) -> list[Item]:
        oldest = self._items.popitem
        return [oldest(False)[0] for _ in range(count)]
