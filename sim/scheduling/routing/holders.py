"""An inverted index, from assets to the workers that hold them: choosing a worker does not look at all of them.

A worker is listed under each asset that is resident on it or that an outstanding request will bring there. The cost of
a request on a worker grows with the work left there and with the load of what is missing there. Its router names what
to search: the workers that are in some lists at once, each time with a floor, the least load on such a worker that was
not searched before. A search ends as soon as no later worker can cost less.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from mezzotint.sim.protocols import Run, Worker
from mezzotint.sim.protocols.cluster import IN_HOST

Key = tuple[str, ...]
"""Kind of GPU, kind of asset and name; the kind of GPU alone lists all workers of the kind."""

SLACK_S = 1e-6
"""Seconds by which a worker may be idle earlier than listed: more than rounding makes."""

IDLE_S, UNKNOWN_S = -inf, 0.0
"""Listed ends: of an idle worker, and of one that the next search looks at in any case."""

FEW = 16
"""Workers that are scanned faster than lists are kept."""


@dataclass(slots=True)
class LowestCost:
    """The workers of the lowest cost among those looked at.

    Args:
        cost: of the seconds left on a worker and the seconds of its load; it grows with both.
        load_s: seconds of loading what the worker at a position misses.
        is_first: True if only the first of equals is wanted.
        low: more than any cost.
    """

    cost: Callable[[float, float], Any]
    load_s: Callable[[int], float]
    is_first: bool
    low: Any = inf
    floor_s: float = field(init=False, default=0.0)
    """Least load of a worker in the present list and in none before."""
    tied: list[int] = field(init=False, default_factory=list)
    _first: float = field(init=False, default=inf)

    def may_include(self, left_s: float, position: float = -inf) -> bool:
        """Return True if a worker with at least ``left_s`` left, at ``position`` or after it, may be wanted."""
        bound = self.cost(left_s, self.floor_s)
        return bound < self.low or (bound == self.low and not (self.is_first and position > self._first))

    def look_at(self, position: int, left_s: float) -> None:
        if left_s == inf:
            return
        cost = self.cost(left_s, self.load_s(position))
        if cost < self.low:
            self.low, self._first, self.tied = cost, position, [position]
        elif cost == self.low:
            self._first = min(self._first, position)
            self.tied.append(position)


class Soonest:
    """Positions of workers: the idle ones in order, then those whose work ends soonest.

    A listed end may be too early, since work is added without a note. It is corrected once it comes first, so that a
    request costs nothing in the lists that no search looks into.
    """

    __slots__ = ("_busy", "_busy_in", "_end_s", "_idle")

    def __init__(self, busy_in: "dict[int, set[Soonest]]", positions: Iterable[int] = ()) -> None:
        self._busy_in = busy_in
        self._end_s = dict.fromkeys(positions, UNKNOWN_S)
        self._busy = sorted((UNKNOWN_S, position) for position in self._end_s)
        self._idle: list[int] = []

    def __len__(self) -> int:
        return len(self._end_s)

    def __contains__(self, position: int) -> bool:
        return position in self._end_s

    def add(self, position: int) -> None:
        self._list(position, UNKNOWN_S)

    def sooner(self, position: int) -> None:
        """Take note that the work at ``position``, if it is listed, may end sooner than listed."""
        if self._end_s.get(position, UNKNOWN_S) > UNKNOWN_S:
            self._list(position, UNKNOWN_S)

    def remove(self, position: int) -> None:
        if self._end_s.pop(position) > UNKNOWN_S:
            self._busy_in[position].discard(self)

    def search(
        self, lowest: LowestCost, now_s: float, left_s: Callable[[int], float], others: "Sequence[Soonest]" = ()
    ) -> None:
        """Let ``lowest`` look at every position that it may want, of those that are in all ``others`` too.

        Args:
            left_s: seconds of work left at a position; infinity if its worker takes no request.
        """
        end_s, busy, idle = self._end_s, self._busy, self._idle
        due = []
        # Before the idle ones are looked at in order, since these may be among them.
        while busy and busy[0][0] <= now_s + SLACK_S:
            due.append(heappop(busy))
        for end, position in due:
            if end_s.get(position) == end:
                self._list(position, _end_s(now_s, left_s(position)))
        looked_at: list[tuple[int, float]] = []
        passed: list[tuple[list[Any], Any]] = []
        while idle and lowest.may_include(0.0, idle[0]):
            position = heappop(idle)
            if end_s.get(position) == IDLE_S:
                if not others or all(position in other for other in others):
                    looked_at.append((position, left := left_s(position)))
                    lowest.look_at(position, left)
                else:
                    passed.append((idle, position))
        while busy and (soonest := busy[0][0]) < inf and lowest.may_include(soonest - now_s - SLACK_S):
            end, position = first = heappop(busy)
            if end_s.get(position) == end:
                if not others or all(position in other for other in others):
                    looked_at.append((position, left := left_s(position)))
                    lowest.look_at(position, left)
                else:
                    passed.append((busy, first))
        for position, left in looked_at:
            self._list(position, _end_s(now_s, left))
        for heap, entry in passed:
            heappush(heap, entry)

    def _list(self, position: int, end_s: float) -> None:
        self._end_s[position] = end_s
        if end_s == IDLE_S:
            heappush(self._idle, position)
        else:
            heappush(self._busy, (end_s, position))
            if end_s != UNKNOWN_S:
                self._busy_in[position].add(self)
            elif len(self._busy) + len(self._idle) > 2 * len(self._end_s) + 16:  # so rarely that it costs O(1)
                self._drop_outdated()

    def _drop_outdated(self) -> None:
        self._idle = sorted(position for position, end_s in self._end_s.items() if end_s == IDLE_S)
        self._busy = sorted((end_s, position) for position, end_s in self._end_s.items() if end_s != IDLE_S)


def _end_s(now_s: float, left_s: float) -> float:
    return now_s + left_s if left_s else IDLE_S


class Among:
    """The lists of one sequence of workers, and its kinds of GPU, each with its first worker."""

    __slots__ = ("busy_in", "kinds", "lists", "workers")

    def __init__(self, workers: Sequence[Worker], keys: Callable[[Worker], Iterable[Key]]) -> None:
        self.workers = workers
        self.busy_in: dict[int, set[Soonest]] = defaultdict(set)
        self.kinds: dict[str, Worker] = {}
        positions: dict[Key, list[int]] = {}
        for position, worker in enumerate(workers if len(workers) > FEW else ()):
            self.kinds.setdefault(worker.gpu.name, worker)
            for key in keys(worker):
                positions.setdefault(key, []).append(position)
        self.lists = {key: Soonest(self.busy_in, at) for key, at in positions.items()}

    def search(
        self,
        sources: Iterable[tuple[Sequence[Key], float]],
        lowest: LowestCost,
        now_s: float,
        left_s: Callable[[int], float],
    ) -> list[int]:
        """Return the positions of the workers of least cost, in order.

        Args:
            sources: the lists to search, by their keys. Only workers in all lists of a source are looked at. Each
                source has its floor: the least load of such a worker that is in no source before.
        """
        if not self.lists:
            # The least work left first, so that few loads are asked for.
            for left, position in sorted((left_s(position), position) for position in range(len(self.workers))):
                if lowest.may_include(left, position):
                    lowest.look_at(position, left)
        for keys, floor_s in sources if self.lists else ():
            lowest.floor_s = floor_s
            if lowest.may_include(0.0) and all(key in self.lists for key in keys):
                shortest, *others = sorted([self.lists[key] for key in keys], key=len)
                shortest.search(lowest, now_s, left_s, others)
        return sorted({*lowest.tied})


class Holders:
    """The assets that each worker holds or will hold, and the lists of the sequences that a router chooses from.

    Attributes:
        is_used: True if any lists are kept; else ``hold``, ``drop`` and ``sooner`` do nothing.

    Args:
        kinds: kinds of the assets. LoRAs, of which weights hold one set at a time, are one asset: ``name_of_set``.
        coming: kind and name of each asset that will come to a worker, once for each reason.
    """

    __slots__ = (
        "_all", "_cluster", "_coming", "_held", "_kinds", "_loras", "_max_sequences", "_of", "_own", "_places",
        "is_used",
    )  # fmt: skip

    def __init__(self, run: Run, kinds: Collection[str], coming: Callable[[Worker], Iterable[tuple[str, str]]]) -> None:
        self._cluster, self._kinds, self._coming = run.cluster, kinds, coming
        self._max_sequences = len(run.models) + 1  # the workers of each model, and all
        self._held: dict[Worker, dict[Key, int]] = {}
        """How many reasons there are to list a worker under a key."""
        self._own: dict[Worker, str] = {}
        self._loras: dict[Worker, list[str]] = {}
        """The LoRAs that are resident on a worker."""
        self.is_used = False
        self._all: Sequence[Worker] = ()
        self._of: dict[int, Among] = {}
        self._places: dict[Worker, list[tuple[Among, int]]] = {}

    def among(self, workers: Sequence[Worker]) -> Among:
        """Return the lists of ``workers``; those of a tuple are kept, as long as the scheduler does not change many."""
        known = self._of.get(id(workers))
        if known is not None:
            return known
        among = Among(workers, self._keys)
        if isinstance(workers, tuple):
            if self._all is not self._cluster.workers or len(self._of) == self._max_sequences:
                self._all = self._cluster.workers
                self._of.clear()
                self._places.clear()
            # With the tuple itself, whose identity is no other's as long as it is kept.
            self._of[id(workers)] = among
            for position, worker in enumerate(workers if among.lists else ()):
                self._places.setdefault(worker, []).append((among, position))
        return among

    def hold(self, worker: Worker, kind: str, name: str) -> None:
        """List ``worker`` under an asset, for one more reason."""
        held = self._held.get(worker)
        if held is None:
            return  # what it holds is read when it is first listed
        key = worker.gpu.name, kind, name
        held[key] = held.get(key, 0) + 1
        if held[key] == 1:
            for among, position in self._places.get(worker, ()):
                among.lists.setdefault(key, Soonest(among.busy_in)).add(position)

    def drop(self, worker: Worker, kind: str, name: str) -> None:
        """Take one reason back."""
        held = self._held.get(worker)
        if held is None:
            return
        key = worker.gpu.name, kind, name
        held[key] -= 1
        if not held[key]:
            del held[key]
            for among, position in self._places.get(worker, ()):
                among.lists[key].remove(position)
                if not among.lists[key]:
                    del among.lists[key]

    def sooner(self, worker: Worker) -> None:
        """Take note that the work of ``worker`` may end sooner than expected."""
        for among, position in self._places.get(worker, ()):
            if position in among.busy_in:
                for soonest in among.busy_in.pop(position):
                    soonest.sooner(position)

    def _keys(self, worker: Worker) -> dict[Key, int]:
        held = self._held.get(worker)
        if held is None:
            if not self.is_used:
                self.is_used = True
                self._cluster.watch_assets(self._changed)
            held = self._held[worker] = {(worker.gpu.name,): 1}
            for kind, name in self._coming(worker):
                self.hold(worker, kind, name)
            if "model" in self._kinds:
                self._own[worker] = worker.model
                self.hold(worker, "model", worker.model)
            for asset in worker.resident:
                self._changed(worker, asset.kind, asset.name, True)
            for model in self._cluster.models_in_host(worker):
                self._changed(worker, IN_HOST, model, True)
        return held

    def _changed(self, worker: Worker, kind: str, name: str, is_there: bool) -> None:
        if worker not in self._held:
            return  # its assets are read when it is first asked for
        # It serves with its own model, which counts even while its memory is empty (holds_model).
        own = self._own.get(worker, worker.model)
        if own != worker.model:
            self._own[worker] = worker.model
            self.hold(worker, "model", worker.model)
            self.drop(worker, "model", own)
        if kind not in self._kinds:
            return
        if kind != "lora":
            (self.hold if is_there else self.drop)(worker, kind, name)
            return
        loras = self._loras.setdefault(worker, [])
        if loras:
            self.drop(worker, kind, name_of_set(loras))
        (loras.append if is_there else loras.remove)(name)
        if loras:
            self.hold(worker, kind, name_of_set(loras))


def name_of_set(loras: Iterable[str]) -> str:
    """Return one name for a set of LoRAs."""
    return "+".join(sorted({*loras}))
