"""The items of least worth, where the worth of an item only rises while it is held: the core of LRU, LFU and LCBFU."""

from collections import deque
from heapq import heappop, heappush

from sim.reuse.eviction.base import ITEM_BITS, Item

_ITEM = (1 << ITEM_BITS) - 1


class Rising:
    """Items by worth, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record, ``worth << ITEM_BITS | item``: its worth as it was when last looked at. A rise is noted
    beside the records, in ``risen``, and corrects the item's record only when that comes to the front. Until then its
    item cannot be the least, since its true worth is above what the record says. So a rise costs one dictionary
    entry, whatever the number of items, and a record is moved at most once for all rises since it was last moved.

    What was never moved waits in a lane, where it came in increasing order: O(1). What was moved is in a heap:
    O(log m) for m such items.

    Attributes:
        risen: what each item is worth that is worth more than when it was added. Policies write it; never a fall.

    Memory: about 45 bytes per item, and about 110 more per item that rose.
    """

    __slots__ = ("_heap", "_lanes", "risen")

    def __init__(self) -> None:
        self._lanes: dict[int, deque[int]] = {}
        self._heap: list[int] = []
        self.risen: dict[Item, int] = {}

    def lane(self, rank: int) -> deque[int]:
        """The lane of ``rank``, for policies to append the records of new items to: each greater than the last.

        Records in a lane are less than all that are ever in one of higher rank.
        """
        if rank not in self._lanes:
            self._lanes = dict(sorted({**self._lanes, rank: deque()}.items()))
        return self._lanes[rank]

    def pop(self, count: int) -> list[Item]:
        """Forget the ``count`` items of least worth and return them, the least first. As many must be held."""
        heap, risen, lanes = self._heap, self.risen, self._lanes.values()
        least: list[Item] = []
        while len(least) < count:
            for lane in lanes:
                if lane:
                    record = lane.popleft() if not heap or lane[0] < heap[0] else heappop(heap)
                    break
            else:
                record = heappop(heap)
            item = record & _ITEM
            worth = risen.get(item)
            if worth is None:
                least.append(item)
            elif worth == record >> ITEM_BITS:
                del risen[item]
                least.append(item)
            else:
                heappush(heap, worth << ITEM_BITS | item)
        return least
