"""Eviction: which item leaves a full cache."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable


class Item(NamedTuple):
    """What is stored and evicted as one: the state of ``entry`` (one earlier request) after step ``k``.

    A final image has ``k`` equal to ``FINAL``.
    """

    entry: int
    k: int


FINAL = -1


@runtime_checkable
class Eviction(Protocol):
    """Keeps what it needs to know of the items in a cache to name the next one to go."""

    def added(self, item: Item) -> None:
        """``item`` entered the cache."""

    def used(self, item: Item) -> None:
        """A request starts from ``item``."""

    def victim(self) -> Item:
        """The item to evict now; it is forgotten here. The cache is never empty when this is asked."""


@dataclass(slots=True)
class Fifo:
    """The oldest item goes first, however much it was used (NIRVANA, 7.4; MoDM's sliding window, 5.3)."""

    _items: deque[Item] = field(init=False, default_factory=deque, repr=False)

    def added(self, item: Item) -> None:
        """See Eviction.added."""
        self._items.append(item)

    def used(self, item: Item) -> None:
        """See Eviction.used."""

    def victim(self) -> Item:
        """See Eviction.victim."""
        return self._items.popleft()
