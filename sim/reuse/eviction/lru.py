"""Least recently used."""

from dataclasses import dataclass, field

from sim.engine import Engine
from sim.reuse.eviction.base import ITEM_BITS, Item, items_of
from sim.reuse.eviction.rising import Rising
from sim.reuse.selector import Selector
from traces.similarity import Space


@dataclass(slots=True)
class Lru:
    """The item that was not used for the longest goes first; entering counts as a use (NIRVANA, 7.4).

    A use is one of that (prompt, K): the other states of the prompt grow older.
    """

    _time: int = field(init=False, default=0)
    _items: Rising = field(init=False, default_factory=Rising, repr=False)

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """See Eviction.added."""
        items = enumerate(items_of(entry, ks), self._time + 1)
        self._items.lane(0).extend(time << ITEM_BITS | item for time, item in items)
        self._time += len(ks)

    def used(self, item: Item) -> None:
        """See Eviction.used."""
        self._time += 1
        self._items.risen[item] = self._time

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        return self._items.pop(count)
