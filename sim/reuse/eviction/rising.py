"""The items of least key, where the key of an item only rises while it is held: the core of LFU and LCBFU."""

from collections import deque
from heapq import heappop, heappush, heapreplace

from sim.parts import Item
from sim.reuse.eviction.base import ITEM_BITS

_ITEM = (1 << ITEM_BITS) - 1


class Rising:
    """Items by key, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record, ``key << ITEM_BITS | item``: its key as it was when last looked at. A rise is noted
    beside the records, in ``risen``, and corrects the item's record only when that comes to the front. Until then its
    item cannot be the least, since its true key is above what the record says. So a rise costs one dictionary
    entry, whatever the number of items, and a record is moved at most once for all rises since it was last moved.

    What was never moved waits in a lane, where it came in increasing order: O(1) for a handful of lanes. What was moved
    is in a heap: O(log m) for m such items.

    Attributes:
        risen: key and uses of each item whose key is above that of its record. Policies write it; a key never falls.
        last: the key of the last item that was popped; 0 before. Keys are popped in increasing order as long as no new
            one is below it.

    Memory: about 45 bytes per item, and about 170 more per item that rose.
    """

    __slots__ = ("_dry", "_fronts", "_heap", "last", "risen")

    def __init__(self) -> None:
        self._fronts: list[tuple[int, deque[int]]] = []  # a heap of the lanes' first records
        self._dry: list[deque[int]] = []
        self._heap: list[int] = []
        self.risen: dict[Item, tuple[int, int]] = {}
        self.last = 0

    def lane(self) -> deque[int]:
        """A new lane, for policies to append the records of new items to: each greater than the last."""
        lane: deque[int] = deque()
        self._dry.append(lane)
        return lane

    def pop(self, count: int) -> list[Item]:
        """Forget the ``count`` items of least key and return them, the least first. As many must be held."""
        heap, risen, fronts = self._heap, self.risen, self._fronts
        if self._dry:
            self._refill()
        least: list[Item] = []
        record = 0
        while count:
            if fronts and (not heap or fronts[0][0] < heap[0]):
                record, lane = fronts[0]
                lane.popleft()
                if lane:
                    heapreplace(fronts, (lane[0], lane))
                else:
                    heappop(fronts)
                    self._dry.append(lane)
            else:
                record = heappop(heap)
            item = record & _ITEM
            if item in risen:
                key = risen[item][0]
                if key != record >> ITEM_BITS:
                    heappush(heap, key << ITEM_BITS | item)
                    continue
                del risen[item]
            least.append(item)
            count -= 1
        self.last = record >> ITEM_BITS
        return least

    def _refill(self) -> None:
        """Look at the first records of the lanes that were empty."""
        for lane in self._dry:
            if lane:
                heappush(self._fronts, (lane[0], lane))
        self._dry = [lane for lane in self._dry if not lane]
