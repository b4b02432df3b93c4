"""The item of least worth, where the worth of an item only rises while it is held: the core of LRU, LFU and LCBFU."""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from sim.reuse.eviction.base import ITEM_BITS, Item

_ITEM = (1 << ITEM_BITS) - 1


class Rising:
    """Items by worth, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record: its worth as it was when last looked at. A rise is noted beside the records, in
    ``risen``, and corrects the item's record only when that comes to the front. Until then its item cannot be the
    least, since its true worth is above what the record says. So a rise costs one dictionary entry, whatever the
    number of items, and a record is moved at most once for all rises since it was last moved: O(log n), and O(1) for
    an item that was never used, since those mostly come and go in order.

    Attributes:
        risen: what each item is worth that is worth more than when it was added. Policies write it; never a fall.

    Memory: about 45 bytes per item, and about 110 more per item that rose.
    """

    __slots__ = ("_fresh", "_heap", "risen")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()  # records as they were added, while those come in increasing order
        self._heap: list[int] = []  # all others
        self.risen: dict[Item, int] = {}

    def __len__(self) -> int:
        return len(self._fresh) + len(self._heap)

    def add(self, items: Iterable[Item], worths: Iterable[int]) -> None:
        """Hold ``items`` from now on, worth ``worths``."""
        fresh = self._fresh
        last = fresh[-1] if fresh else -1
        for item, worth in zip(items, worths, strict=False):
            record = worth << ITEM_BITS | item
            if record > last:
                fresh.append(record)
                last = record
            else:
                heappush(self._heap, record)

    def pop(self) -> Item:
        """Forget the item of least worth and return it. Raises IndexError where none is held."""
        fresh, heap, risen = self._fresh, self._heap, self.risen
        while True:
            newcomer = not heap or (fresh and fresh[0] < heap[0])
            record = fresh[0] if newcomer else heap[0]
            item = record & _ITEM
            worth = risen.get(item)
            if worth is None or worth == record >> ITEM_BITS:
                if newcomer:
                    fresh.popleft()
                else:
                    heappop(heap)
                if worth is not None:
                    del risen[item]
                return item
            corrected = worth << ITEM_BITS | item
            if newcomer:
                fresh.popleft()
                heappush(heap, corrected)
            else:
                heapreplace(heap, corrected)
