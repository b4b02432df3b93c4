"""First in, first out."""

from collections import deque
from dataclasses import dataclass, field

from sim.parts import Item, Run, Selector
from sim.reuse.eviction.base import items_of
from traces.similarity.spaces import Space


@dataclass(slots=True)
class Fifo:
    """The oldest item goes first, however much it was used (NIRVANA, 7.4; MoDM's sliding window, 5.3)."""

    _items: deque[Item] = field(init=False, default_factory=deque, repr=False)

    def bind(self, run: Run, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """See Eviction.added."""
        self._items.extend(items_of(entry, ks))

    def used(self, item: Item) -> None:
        """See Eviction.used."""

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        oldest = self._items.popleft
        if count == 1:
            return [oldest()]
        return [oldest() for _ in range(count)]
