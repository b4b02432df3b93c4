"""The item of least worth, where the worth of an item only rises while it is held: the core of LRU, LFU and LCBFU."""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import repeat

from sim.reuse.eviction.base import ITEM_BITS, Item

_ITEM = (1 << ITEM_BITS) - 1
_ABOVE_ALL = 1 << 256  # more than any record: the first of an empty heap


class Rising:
    """Items by worth, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record: its worth as it was when last looked at. A rise is noted beside the records, in
    ``risen``, and corrects the item's record only when that comes to the front. Until then its item cannot be the
    least, since its true worth is above what the record says. So a rise costs one dictionary entry, whatever the
    number of items, and a record is moved at most once for all rises since it was last moved.

    What was never moved waits in a lane, where it came in increasing order: O(1). What was moved, or came out of
    order, is in a heap: O(log m) for m such items.

    Args:
        apart: whether each place within an entry has a lane of its own: for a policy whose new items are worth more at
            a later place, and as much at the same place of the next entry.

    Attributes:
        risen: what each item is worth that is worth more than when it was added. Policies write it; never a fall.

    Memory: about 45 bytes per item, and about 110 more per item that rose.
    """

    __slots__ = ("_apart", "_heap", "_lanes", "risen")

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._lanes: list[deque[int]] = [deque()]
        self._heap: list[int] = []
        self.risen: dict[Item, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes)) + len(self._heap)

    def add(self, items: Sequence[Item], worths: Iterable[int]) -> None:
        """Hold ``items``, those of one entry, from now on, worth ``worths``."""
        lanes = self._lanes
        while self._apart and len(lanes) < len(items):
            lanes.append(deque())
        for lane, item, worth in zip(lanes if self._apart else repeat(lanes[0]), items, worths, strict=False):
            record = worth << ITEM_BITS | item
            if not lane or lane[-1] < record:
                lane.append(record)
            else:
                heappush(self._heap, record)

    def pop(self) -> Item:
        """Forget the item of least worth and return it. Raises IndexError where none is held."""
        heap, risen = self._heap, self.risen
        while True:
            least, its_lane = heap[0] if heap else _ABOVE_ALL, None
            for lane in self._lanes:
                if lane and lane[0] < least:
                    least, its_lane = lane[0], lane
            if its_lane is None:
                heappop(heap)
            else:
                its_lane.popleft()
            item = least & _ITEM
            worth = risen.get(item)
            if worth is None or worth == least >> ITEM_BITS:
                if worth is not None:
                    del risen[item]
                return item
            heappush(heap, worth << ITEM_BITS | item)
