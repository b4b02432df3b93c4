"""What every eviction policy is: a judge of items that says which go next."""

from typing import Protocol, runtime_checkable

from sim.engine import Engine
from sim.reuse.selector import Selector
from traces.similarity.spaces import Space

Item = int
"""What is stored and evicted as one: the state of an entry (one earlier request) after step K, as one number.

40 bits of the entry's number stand above 14 of K, so items are in the order of entry, then K. Millions are held, and
a number takes half the memory of a tuple, is made several times as fast, and is none of the garbage collector's.
"""

FINAL = 0
"""The K of a final image."""

MOST_STEPS = 10_000
"""No model has more steps, so no K is larger."""

K_BITS = 14
K_MASK = (1 << K_BITS) - 1
ITEM_BITS = 54


def item(entry: int, k: int) -> Item:
    """The item of ``entry`` at ``k``."""
    return entry << K_BITS | k


def items_of(entry: int, ks: tuple[int, ...]) -> list[Item]:
    """The items of ``entry`` at each of ``ks``."""
    first = entry << K_BITS
    return [first | k for k in ks]


def entry_of(item: Item) -> int:
    """The entry that ``item`` belongs to."""
    return item >> K_BITS


def k_of(item: Item) -> int:
    """The K of ``item``."""
    return item & K_MASK


@runtime_checkable
class Eviction(Protocol):
    """Keeps what it needs to know of the items in a cache to name the next ones to go."""

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """Take what it decides by, before anything is added: random streams, or what the future will ask for.

        ``space`` and ``selector`` say what a later request could start from, and at which K.
        """

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """``entry`` entered the cache, with its items at ``ks``, in order: all that the trace's ``row`` left behind.

        It is larger than those before it.
        """

    def used(self, item: Item) -> None:
        """A request starts from ``item``."""

    def victims(self, count: int) -> list[Item]:
        """The ``count`` items to evict now, the worst first; they are forgotten here. As many are in the cache."""
