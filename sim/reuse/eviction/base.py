"""What every eviction policy is: a judge of items that says which one goes next."""

from typing import NamedTuple, Protocol, runtime_checkable

from sim.engine import Engine
from sim.reuse.selector import Selector
from traces.similarity import Space


class Item(NamedTuple):
    """What is stored and evicted as one: the state of ``entry`` (one earlier request) after step ``k``.

    A final image has ``k`` equal to ``FINAL``.
    """

    entry: int
    k: int


FINAL = -1

MOST_STEPS = 10_000
"""No model has more steps, so no K is larger."""

K_BITS = 14
CODE_BITS = 54
"""An item as one number, its code: 40 bits of entry above 14 of K. Codes are in the order of entry, then K.

Policies hold numbers, not tuples: a number takes half the memory, and the garbage collector does not visit it.
"""


def encode(item: Item) -> int:
    """The code of ``item``."""
    return item[0] << K_BITS | item[1] + 1


def decode(code: int) -> Item:
    """The item of ``code``."""
    return Item(code >> K_BITS, (code & (1 << K_BITS) - 1) - 1)


@runtime_checkable
class Eviction(Protocol):
    """Keeps what it needs to know of the items in a cache to name the next one to go."""

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """Take what it decides by, before anything is added: random streams, or what the future will ask for.

        ``space`` and ``selector`` say what a later request could start from, and at which K.
        """

    def added(self, item: Item, row: int) -> None:
        """``item``, left behind by the trace's ``row``, entered the cache. Entries only grow, K in an entry too."""

    def used(self, item: Item) -> None:
        """A request starts from ``item``."""

    def victim(self) -> Item:
        """The item to evict now; it is forgotten here. The cache is never empty when this is asked."""
