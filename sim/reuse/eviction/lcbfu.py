"""LCBFU: least computationally beneficial and frequently used."""

from collections import deque
from dataclasses import dataclass, field

from sim.engine import Engine
from sim.errors import ConfigError
from sim.reuse.eviction.base import ITEM_BITS, K_BITS, K_MASK, Item
from sim.reuse.eviction.rising import Rising
from sim.reuse.selector import Selector
from traces.similarity.spaces import Space


@dataclass(slots=True)
class Lcbfu:
    """The item with the lowest f x K goes first, where f counts its uses: the steps it saved (NIRVANA, 5.4).

    Among equals the oldest entry goes first, of an entry the smallest K, so that what was never used leaves first
    in, first out. Final images all save alike: their score is f.

    f counts the insertion as the first use. Were it to start at 0, there would always be enough items of score 0 to
    evict, whatever their K, as every insertion evicts as many items as it brings: K would play no part, the policy be
    LFU, and the two not differ as they do in the paper's Table 3. So it is in MoDM's artifact: ``initial=0``.

    Args:
        initial: f of an item that enters. The paper does not say; 0 in MoDM's artifact.

    Raises:
        ConfigError: a negative ``initial``.
    """

    initial: int = 1
    _items: Rising = field(init=False, default_factory=Rising, repr=False)
    _lanes: dict[tuple[int, ...], list[tuple[deque[int], int]]] = field(init=False, default_factory=dict, repr=False)
    """By the K of a new entry, for each of them where it waits, and its record but for the entry."""

    def __post_init__(self) -> None:
        if self.initial < 0:
            raise ConfigError(f"eviction.initial: found {self.initial}, expected 0 or more uses")

    def bind(self, engine: Engine, space: Space, selector: Selector) -> None:
        """See Eviction.bind."""
        source = "not published; from 0, as in MoDM's artifact, K would play no part"
        engine.assume("LCBFU: uses that an item enters with", self.initial, source)

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """See Eviction.added."""
        first = entry << K_BITS
        for lane, record in self._lanes.get(ks) or self._find_lanes(ks):
            lane.append(record | first)

    def used(self, item: Item) -> None:
        """See Eviction.used."""
        steps = item & K_MASK or 1
        risen = self._items.risen
        risen[item] = risen.get(item, self.initial * steps) + steps

    def victims(self, count: int) -> list[Item]:
        """See Eviction.victims."""
        return self._items.pop(count)

    def _find_lanes(self, ks: tuple[int, ...]) -> list[tuple[deque[int], int]]:
        """New items of one K are all worth the same, and more than those of a smaller K."""
        worths = [(self.initial * (k or 1), k) for k in ks]
        self._lanes[ks] = lanes = [(self._items.lane(worth), worth << ITEM_BITS | k) for worth, k in worths]
        return lanes
