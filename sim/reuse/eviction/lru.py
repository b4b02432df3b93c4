"""Least recently used."""

from collections import OrderedDict
from dataclasses import dataclass, field

from sim.engine import Engine
from sim.reuse.eviction.base import Item, items_of
from sim.reuse.selector import Selector
from traces.similarity.spaces import Space


@dataclass(slots=True)
class Lru:
    """The item that was not used for the longest goes first; entering counts as a use (NIRVANA, 7.4).

    A use is one of that (prompt, K): the other states of the prompt grow older. About 140 bytes per item.
    """

    _items: OrderedDict[Item, None] = field(init=False, default_factory=OrderedDict, repr=False)

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """See Eviction.added."""
        items = self._items
        for item in items_of(entry, ks):
            items[item] = None

    def used(self, item: Item) -> None:
        """See Eviction.used."""
        self._items.move_to_end(item)

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        oldest = self._items.popitem
        return [oldest(False)[0] for _ in range(count)]
