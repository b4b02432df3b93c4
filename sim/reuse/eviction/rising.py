"""The items of least worth, where the worth of an item only rises while it is held: the core of LFU and LCBFU."""

from collections import deque
from heapq import heappop, heappush

from sim.parts import Item
from sim.reuse.eviction.base import ITEM_BITS

_ITEM = (1 << ITEM_BITS) - 1

_BEYOND = deque((1 << 2 * ITEM_BITS,))
"""A lane above all: what it holds is never the least."""


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
        heap, risen = self._heap, self.risen
        least: list[Item] = []
        for lane in (*self._lanes.values(), _BEYOND):
            while lane and count:
                record = heappop(heap) if heap and heap[0] < lane[0] else lane.popleft()
                item = record & _ITEM
                if item in risen:
                    worth = risen[item]
                    if worth != record >> ITEM_BITS:
                        heappush(heap, worth << ITEM_BITS | item)
                        continue
                    del risen[item]
                least.append(item)
                count -= 1
        return least
