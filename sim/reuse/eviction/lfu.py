"""Least frequently used."""

from dataclasses import dataclass, field

from sim.engine import Engine
from sim.reuse.eviction.base import ITEM_BITS, Item, items_of
from sim.reuse.eviction.rising import Rising
from sim.reuse.selector import Selector
from traces.similarity.spaces import Space

TIME_BITS = 40


@dataclass(slots=True)
class Lfu:
    """The item used least often since it entered goes first, among equals the least recently used (NIRVANA, 7.4).

    A use is one of that (prompt, K). What is evicted loses its count.
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
        """See Eviction.used. An item's worth is its number of uses, then the time of the last one."""
        self._time += 1
        risen = self._items.risen
        uses = risen.get(item, 0) >> TIME_BITS
        risen[item] = uses + 1 << TIME_BITS | self._time

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        return self._items.pop(count)
