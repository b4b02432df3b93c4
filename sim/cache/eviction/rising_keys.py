"""Priority queue of items whose keys only rise: the core of LFU and LCBFU."""

from collections import deque
from heapq import heappop, heappush, heapreplace

from mezzotint.sim.cache.eviction.base import ITEM_BITS, K_BITS, K_MASK
from mezzotint.sim.protocols import Item

_ITEM = (1 << ITEM_BITS) - 1

Lane = deque[int]
"""Queue of new items' records, each greater than the last."""


class RisingKeys:
    """Priority queue of items by key, a whole number; among equals the oldest entry, of an entry the smallest K.

    Every item has one record, ``key << ITEM_BITS | item``, with its key when the queue last looked at it. A rise is
    noted apart from the record and corrects it only at the front: before that the item cannot have the lowest key.

    Items that never rose wait in a lane, in increasing order: O(1) for a handful of lanes. Items that rose are in a
    heap: O(log m) for m of them. A byte per entry tells if one of its items ever rose. Neighbouring entries share a
    cache line, so most items are popped without leaving the processor's cache. About 45 bytes per item, 170 more per
    item that rose, and a byte per entry ever made.

    Attributes:
        last: key of the last popped item; 0 before. Popped keys increase as long as no new key is below it.

    Args:
        by_k: True if each K has a lane of its own, False if all share one.
    """

    __slots__ = ("_drained", "_fronts", "_heap", "_lane_bits", "_lanes", "_risen", "_touched", "last")

    def __init__(self, by_k: bool) -> None:
        self._lane_bits = K_MASK if by_k else 0
        self._lanes: dict[int, Lane] = {}
        self._fronts: list[int] = []  # heap of the lanes' first records
        self._drained: list[Lane] = []
        self._heap: list[int] = []
        self._risen: dict[Item, tuple[int, int]] = {}  # current record and uses of items that rose
        self._touched = bytearray()  # per entry: 1 if an item ever rose
        self.last = 0

    def lane(self, k: int) -> Lane:
        """Return the lane to append records of new items at ``k`` to, each greater than the last."""
        lane = self._lanes.get(k & self._lane_bits)
        if lane is None:
            lane = self._lanes[k & self._lane_bits] = deque()
            self._drained.append(lane)
        return lane

    def uses(self, item: Item) -> int | None:
        """Return the uses given at the last rise of ``item``; None if it never rose."""
        risen = self._risen.get(item)
        return None if risen is None else risen[1]

    def rise(self, item: Item, key: int, uses: int) -> None:
        """Raise the key of ``item`` to ``key``, after so many uses."""
        self._risen[item] = key << ITEM_BITS | item, uses
        entry = item >> K_BITS
        try:
            self._touched[entry] = True
        except IndexError:
            self._touched.extend(bytes(entry + 1))
            self._touched[entry] = True

    def pop(self, count: int) -> list[Item]:
        """Remove and return the ``count`` items of lowest key, in order. The queue must hold as many."""
        heap, risen, touched = self._heap, self._risen, self._touched
        fronts, lanes, lane_bits = self._fronts, self._lanes, self._lane_bits
        touched_entries = len(touched)
        # Lanes that were empty when last looked at may have got items since.
        if self._drained:
            self._refill()
        popped: list[Item] = []
        record = 0
        while count:
            # Records compare by key, then by item: among equals the oldest entry, of an entry the smallest K.
            if fronts and (not heap or fronts[0] < heap[0]):
                record = fronts[0]
                lane = lanes[record & lane_bits]
                lane.popleft()
                if lane:
                    heapreplace(fronts, lane[0])
                else:
                    heappop(fronts)
                    self._drained.append(lane)
                item = record & _ITEM
                entry = item >> K_BITS
                # Its record is out of date; the current one competes in the heap
                # (test_eviction_matches_its_brute_force_model).
                if entry < touched_entries and touched[entry] and item in risen:
                    heappush(heap, risen[item][0])
                    continue
            else:
                record = heap[0]
                item = record & _ITEM
                current = risen[item][0]
                # It rose again since: keys only rise, so the record in the heap was a lower bound.
                if current != record:
                    heapreplace(heap, current)
                    continue
                heappop(heap)
                del risen[item]
            popped.append(item)
            count -= 1
        self.last = record >> ITEM_BITS
        return popped

    def _refill(self) -> None:
        for lane in self._drained:
            if lane:
                heappush(self._fronts, lane[0])
        self._drained = [lane for lane in self._drained if not lane]
