"""First in, first out."""

from collections import deque
from dataclasses import dataclass, field

from mezzotint.sim.cache.eviction.base import items_of
from mezzotint.sim.protocols import Eviction, Item


@dataclass(slots=True)
class Fifo(Eviction):
    """Evict the oldest item, however much it was used (NIRVANA, 7.4; MoDM's sliding window, 5.3)."""

    _items: deque[Item] = field(init=False, default_factory=deque, repr=False)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        self._items.extend(items_of(entry, ks))

    def victims(self, count: int) -> list[Item]:
        oldest = self._items.popleft
        if count == 1:
            return [oldest()]
        return [oldest() for _ in range(count)]
