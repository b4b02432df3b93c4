"""Least frequently used."""

from dataclasses import dataclass, field

from mezzotint.sim.cache.eviction.ageing import Uses, assume_use_counts
from mezzotint.sim.cache.eviction.base import FINAL, ITEM_BITS, items_of
from mezzotint.sim.cache.eviction.rising_keys import Lane, RisingKeys
from mezzotint.sim.protocols import Eviction, Item, Run, Selector
from mezzotint.traces.similarity.similarities import SimilaritySource

TIME_BITS = 40


@dataclass(slots=True)
class Lfu(Eviction):
    """Evict the least frequently used item, among equals the least recently used (NIRVANA, 7.4).

    A use is one of that (prompt, K), the insertion the first of them. An evicted item loses its count.

    With ``ageing`` an item's key is its uses plus the last victim's key when the item came in or was used (dynamic
    ageing, LFUDA: Arlitt et al. 2000; Squid's heap LFUDA). A once popular item goes when newcomers were used as often
    since.

    Args:
        ageing: True if counts of long ago fade.
        initial_uses: uses that an item enters with.
    """

    ageing: bool = True
    initial_uses: Uses = 1
    _time: int = field(init=False, default=0)
    _age: int = field(init=False, default=0)
    _items: RisingKeys = field(init=False, default_factory=lambda: RisingKeys(by_k=False), repr=False)
    _lane: Lane = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lane = self._items.lane(FINAL)

    def bind(self, run: Run, similarity: SimilaritySource, selector: Selector) -> None:
        assume_use_counts(run, "LFU", self.ageing, self.initial_uses)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        # Uses above, time below: among equal uses the least recent goes first. 2^40 events outlast any trace.
        first = (self._age + self.initial_uses << TIME_BITS) + self._time + 1
        self._lane.extend([key << ITEM_BITS | item for key, item in enumerate(items_of(entry, ks), first)])
        self._time += len(ks)

    def used(self, item: Item) -> None:
        """Raise the key of ``item``: its number of uses, aged, then the time of the last one."""
        self._time += 1
        uses = (self._items.uses(item) or self.initial_uses) + 1
        self._items.rise(item, self._age + uses << TIME_BITS | self._time, uses)

    def victims(self, count: int) -> list[Item]:
        items = self._items
        victims = items.pop(count)
        # The key without its time: the age of newcomers is a number of uses.
        if self.ageing:
            self._age = items.last >> TIME_BITS
        return victims
