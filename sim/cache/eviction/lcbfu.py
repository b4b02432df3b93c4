"""LCBFU: least computationally beneficial and frequently used."""

from dataclasses import dataclass, field

from mezzotint.sim.cache.eviction.ageing import Uses, assume_use_counts
from mezzotint.sim.cache.eviction.base import ITEM_BITS, K_BITS, K_MASK
from mezzotint.sim.cache.eviction.rising_keys import Lane, RisingKeys
from mezzotint.sim.protocols import Eviction, Item, Run, Selector
from mezzotint.traces.similarity.similarities import SimilaritySource


@dataclass(slots=True)
class Lcbfu(Eviction):
    """Evict the item with the lowest f x K, where f counts its uses: the steps it saved (NIRVANA, 5.4).

    Among equals the oldest entry goes first, of an entry the smallest K. Final images all save alike: their score is f.

    f counts the insertion as the first use. From 0 (``initial_uses=0``, as in MoDM's artifact) there would always be
    enough items of score 0 to evict, whatever their K: K would play no part.

    With ``ageing`` an item's key is its f x K plus the last victim's key when the item came in or was used, as in
    ``Lfu``.

    Args:
        ageing: True if uses of long ago fade.
        initial_uses: f of an item that enters; the paper does not say.
    """

    ageing: bool = True
    initial_uses: Uses = 1
    _age: int = field(init=False, default=0)
    _items: RisingKeys = field(init=False, default_factory=lambda: RisingKeys(by_k=True), repr=False)
    _lanes: dict[tuple[int, ...], list[tuple[Lane, int]]] = field(init=False, default_factory=dict, repr=False)
    """K of a new entry -> the lane of each K, and its record without the entry."""

    def bind(self, run: Run, similarity: SimilaritySource, selector: Selector) -> None:
        assume_use_counts(run, "LCBFU", self.ageing, self.initial_uses)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        # A lane for each K: within one, new records ascend, since the age never falls.
        first = (self._age << ITEM_BITS) + (entry << K_BITS)
        for lane, record in self._lanes.get(ks) or self._find_lanes(ks):
            lane.append(record + first)

    def used(self, item: Item) -> None:
        # A final image has K = 0 and saves alike; its score is its uses.
        steps = item & K_MASK or 1
        uses = (self._items.uses(item) or self.initial_uses) + 1
        self._items.rise(item, self._age + uses * steps, uses)

    def victims(self, count: int) -> list[Item]:
        items = self._items
        victims = items.pop(count)
        if self.ageing:
            # The last victim's whole key, not its uses: LCBFU ages in saved steps.
            self._age = items.last
        return victims

    def _find_lanes(self, ks: tuple[int, ...]) -> list[tuple[Lane, int]]:
        self._lanes[ks] = lanes = [(self._items.lane(k), (self.initial_uses * (k or 1)) << ITEM_BITS | k) for k in ks]
        return lanes
