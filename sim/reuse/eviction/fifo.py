"""First in, first out."""

from collections import deque
from dataclasses import dataclass, field

from sim.engine import Engine
from sim.reuse.eviction.base import Item, items_of
from sim.reuse.selector import Selector
from traces.similarity.spaces import Space


@dataclass(slots=True)
class Fifo:
    """The oldest item goes first, however much it was used (NIRVANA, 7.4; MoDM's sliding window, 5.3)."""

    _items: deque[Item] = field(init=False, default_factory=deque, repr=False)

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """See Eviction.added."""
        self._items.extend(items_of(entry, ks))

    def used(self, item: Item) -> None:
        """See Eviction.used."""

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        oldest = self._items.popleft
        return [oldest() for _ in range(count)]
