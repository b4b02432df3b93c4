"""The items of least key, where the key of an item only rises while it is held: the core of LFU and LCBFU."""

from collections import deque
from heapq import heappop, heappush, heapreplace

from sim.cache.eviction.base import ITEM_BITS, K_BITS, K_MASK
from sim.protocols import Item

_ITEM = (1 << ITEM_BITS) - 1

Lane = deque[int]
"""Records of new items, each greater than the last."""


class Rising:
    """Items by key, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record, ``key << ITEM_BITS | item``: its key as it was when last looked at. A rise is noted
    beside the records, and corrects the item's only when that comes to the front: until then its item cannot be the
    least.

    What was never moved waits in a lane, where it came in increasing order: O(1) for a handful of lanes. What was moved
    is in a heap: O(log m) for m such items. Whether an item of an entry ever rose is a byte beside those of the entries
    around it: most items go without a look that leaves the processor's cache. About 45 bytes per item, 170 more per
    item that rose, and a byte per entry there ever was.

    Attributes:
        last: the key of the last item that was popped; 0 before. Keys are popped in increasing order as long as no new
            one is below it.

    Args:
        by_k: whether items of different K enter in lanes apart, or all in one.
    """

    __slots__ = ("_dry", "_fronts", "_heap", "_lane_bits", "_lanes", "_risen", "_touched", "last")

    def __init__(self, by_k: bool) -> None:
        self._lane_bits = K_MASK if by_k else 0
        self._lanes: dict[int, Lane] = {}
        self._fronts: list[int] = []  # a heap of the lanes' first records
        self._dry: list[Lane] = []
        self._heap: list[int] = []
        self._risen: dict[Item, tuple[int, int]] = {}  # the true record, and uses, of items that rose
        self._touched = bytearray()  # by entry
        self.last = 0

    def lane(self, k: int) -> Lane:
        """The lane for policies to append the records of new items at ``k`` to, each greater than the last."""
        lane = self._lanes.get(k & self._lane_bits)
        if lane is None:
            lane = self._lanes[k & self._lane_bits] = deque()
            self._dry.append(lane)
        return lane

    def uses(self, item: Item) -> int | None:
        """What was last said of ``item``; None of one that has not risen."""
        risen = self._risen.get(item)
        return None if risen is None else risen[1]

    def rise(self, item: Item, key: int, uses: int) -> None:
        """``item`` is worth ``key`` now, more than before, after so many uses."""
        self._risen[item] = key << ITEM_BITS | item, uses
        entry = item >> K_BITS
        try:
            self._touched[entry] = True
        except IndexError:
            self._touched.extend(bytes(entry + 1))
            self._touched[entry] = True

    def pop(self, count: int) -> list[Item]:
        """Forget the ``count`` items of least key and return them, the least first. As many must be held."""
        heap, risen, touched = self._heap, self._risen, self._touched
        fronts, lanes, lane_bits = self._fronts, self._lanes, self._lane_bits
        looked_at = len(touched)
        if self._dry:
            self._refill()
        least: list[Item] = []
        record = 0
        while count:
            if fronts and (not heap or fronts[0] < heap[0]):
                record = fronts[0]
                lane = lanes[record & lane_bits]
                lane.popleft()
                if lane:
                    heapreplace(fronts, lane[0])
                else:
                    heappop(fronts)
                    self._dry.append(lane)
                item = record & _ITEM
                entry = item >> K_BITS
                if entry < looked_at and touched[entry] and item in risen:
                    heappush(heap, risen[item][0])
                    continue
            else:
                record = heap[0]
                item = record & _ITEM
                risen_to = risen[item][0]
                if risen_to != record:
                    heapreplace(heap, risen_to)
                    continue
                heappop(heap)
                del risen[item]
            least.append(item)
            count -= 1
        self.last = record >> ITEM_BITS
        return least

    def _refill(self) -> None:
        for lane in self._dry:
            if lane:
                heappush(self._fronts, lane[0])
        self._dry = [lane for lane in self._dry if not lane]
