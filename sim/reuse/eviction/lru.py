"""Least recently used."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.engine import Engine
from sim.reuse.eviction.base import Item
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

    def added(self, items: Sequence[Item], row: int) -> None:
        """See Eviction.added."""
        now = self._time
        self._time += len(items)
        self._items.add(items, range(now + 1, self._time + 1))

    def used(self, item: Item) -> None:
        """See Eviction.used."""
        self._time += 1
        self._items.risen[item] = self._time

    def victim(self) -> Item:
        """See Eviction.victim."""
        return self._items.pop()
