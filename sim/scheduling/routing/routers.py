"""Routers: choose the worker whose queue an arriving request joins."""

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from math import inf, nextafter
from typing import Literal

import numpy as np

from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import ROUTER
from mezzotint.sim.protocols import Router, Run, Worker
from mezzotint.sim.scheduling.routing.holders import SLACK_S, Among, Holders, Key, LowestCost
from mezzotint.sim.scheduling.routing.lowest import LowestWorkers, Ties, rank_of
from mezzotint.sim.scheduling.typical_latency import TypicalLatency


@dataclass(slots=True)
class RandomWorker(Router):
    """Choose a worker uniformly at random, whatever its load."""

    _rng: np.random.Generator = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._rng = run.rng(ROUTER)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return workers[int(self._rng.integers(len(workers)))]


@dataclass(slots=True)
class RoundRobin(Router):
    """Choose the workers of a request's model in turn."""

    _turns: dict[str | None, int] = field(init=False, default_factory=dict, repr=False)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        turn = self._turns.get(request.model, 0)
        self._turns[request.model] = turn + 1
        return workers[turn % len(workers)]


@dataclass(slots=True)
class LeastOutstanding(Router):
    """Choose the worker with the least outstanding load, waiting or running; no profile is needed.

    Args:
        of: load of a request. ``requests`` counts 1, ``pixels`` the pixels of all its frames (PatchedServe, 8.1),
            ``declared-cost`` steps x pixels, as llm-d's router for diffusion serving, which breaks ties at random
            (llm-d-router, 2053).
        ties: of workers with the same load, the ``first`` by number or a ``random`` one.
    """

    of: Literal["requests", "pixels", "declared-cost"] = "requests"
    ties: Ties = "first"
    _load: "OutstandingLoad" = field(init=False, repr=False)
    _lowest: LowestWorkers = field(init=False, repr=False)
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._load, self._rng = OutstandingLoad(), _rng_of(self.ties, run)
        self._lowest = LowestWorkers(run, self.ties, self._load.total)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return workers[self._lowest.among(workers).pick(self._rng)]

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self._lowest.set(worker, self._load.add(worker, request, self._load_of(request)))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._lowest.set(worker, self._load.remove(worker, request))

    def _load_of(self, request: Request) -> int:
        if self.of == "requests":
            return 1
        return request.pixels if self.of == "pixels" else request.steps * request.pixels


@dataclass(slots=True)
class LeastWorkLeft(Router):
    """Choose the worker whose outstanding requests end first, each taking its standalone latency.

    A running request counts with its remaining seconds. Latencies are the profile's typical ones, of the steps that a
    plan runs after skipping.

    Raises ConfigError for a live backend, which cannot tell the duration of a request beforehand.
    """

    ties: Ties = "first"
    _load: "OutstandingLoad" = field(init=False, repr=False)
    _until_s: dict[Worker, float] = field(init=False, default_factory=dict, repr=False)
    """When the work of a worker is expected to end; absent if none is left."""
    _sum_s: dict[Worker, float] = field(init=False, default_factory=dict, repr=False)
    """The sum of a worker's latencies, where that is less than what is left until the expected end."""
    _ends: list[tuple[float, int]] = field(init=False, default_factory=list, repr=False)
    """A heap of expected ends and workers, outdated ones among them."""
    _earliest: LowestWorkers = field(init=False, repr=False)
    _lowest_sum: LowestWorkers = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _typical: TypicalLatency = field(init=False, repr=False)
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        remedy = "choose router=least-requests or router=least-declared-cost"
        self._typical = TypicalLatency(run, "router: least-work-left", remedy)
        self._run, self._load, self._rng = run, OutstandingLoad(), _rng_of(self.ties, run)
        self._earliest = LowestWorkers(run, self.ties, lambda worker: self._until_s.get(worker, -inf))
        self._lowest_sum = LowestWorkers(run, self.ties, lambda worker: self._sum_s.get(worker, inf))

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        self._expire(now_s)
        earliest, lowest_sum = self._earliest.among(workers), self._lowest_sum.among(workers)
        until_s: float = earliest.low
        sum_s: float = lowest_sum.low
        left_s = max(until_s - now_s, 0.0)
        if sum_s < left_s:
            return workers[lowest_sum.pick(self._rng)]
        # The next later end may be as many seconds away, after rounding.
        bound_s = until_s
        while left_s and nextafter(bound_s, inf) - now_s == left_s:
            bound_s = nextafter(bound_s, inf)
        if sum_s > left_s and bound_s == until_s:
            return workers[earliest.pick(self._rng)]
        if self._rng is None:
            return workers[min(earliest.first(bound_s), lowest_sum.first(left_s) if sum_s == left_s else len(workers))]
        tied: list[int] = sorted({*earliest.up_to(bound_s), *(lowest_sum.up_to(left_s) if sum_s == left_s else ())})
        return workers[tied[rank_of(len(tied), self._rng)]]

    def _expire(self, now_s: float) -> None:
        """Forget the ends that were expected until now."""
        ends = self._ends
        while ends and ends[0][0] <= now_s:
            until_s, number = heappop(ends)
            worker = self._run.cluster.worker(number)
            if self._until_s.get(worker) == until_s:
                self._set(worker)

    def _set(self, worker: Worker, until_s: float = -inf, sum_s: float = inf) -> None:
        if self._until_s.get(worker, -inf) != until_s:
            self._until_s[worker] = until_s
            self._earliest.set(worker, until_s)
        if self._sum_s.get(worker, inf) != sum_s:
            self._sum_s[worker] = sum_s
            self._lowest_sum.set(worker, sum_s)

    def sent(self, worker: Worker, request: Request, now_s: float, loading_s: float = 0.0) -> None:
        """Add ``request`` to the load of ``worker``, with ``loading_s`` seconds on top of its standalone latency."""
        self._expire(now_s)
        nanoseconds = self._typical.ns(worker, request) + round(loading_s * 1e9)
        # From what is left now: an idle worker's end lies in the past.
        until_s = now_s + self.left_s(worker, now_s) + nanoseconds / 1e9
        self._expect(worker, until_s, self._load.add(worker, request, nanoseconds), now_s)
        heappush(self._ends, (until_s, worker.id))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._expect(worker, self._until_s.get(worker, -inf), self._load.remove(worker, request), now_s)

    def _expect(self, worker: Worker, until_s: float, total_ns: int, now_s: float) -> None:
        total_s = total_ns / 1e9
        # What is left until the end only shrinks: where it is not more than the sum now, it never is.
        self._set(worker, until_s if total_s else -inf, total_s if 0.0 < total_s < until_s - now_s else inf)

    def left_s(self, worker: Worker, now_s: float) -> float:
        """Return the seconds to the end of what is outstanding on ``worker``, at most the sum of its latencies."""
        outstanding_s = self._load.total(worker) / 1e9
        # At most the sum: the end was expected, and requests may have ended earlier than that.
        return min(max(self._until_s.get(worker, -inf) - now_s, 0.0), outstanding_s)


@dataclass(slots=True)
class WorkAndLoads(Router):
    """Choose the worker with the least work left, counting the loads that a request would add as work.

    A request looks at few workers (mezzotint.sim.scheduling.routing.holders); with random ties, at all equal ones.

    Args:
        load_weight: seconds of waiting that a second of loading counts as; 0 is ``least-work-left``.
        ties: of workers with the same work left, the ``first`` by number or a ``random`` one.

    Raises ConfigError for a live backend, which cannot tell the duration of a request beforehand.
    """

    load_weight: Seconds = 1.0
    ties: Ties = "first"
    _run: Run = field(init=False, repr=False)
    _work: LeastWorkLeft = field(init=False, default_factory=LeastWorkLeft, repr=False)
    _outstanding: dict[Worker, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    """The requests that were sent to each worker and have not ended."""
    _holders: Holders = field(init=False, repr=False)
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._work.bind(run)
        self._run, self._rng, self._holders = run, _rng_of(self.ties, run), Holders(run, self.kinds, self._coming)

    def _coming(self, worker: Worker) -> Iterator[tuple[str, str]]:
        return chain.from_iterable(map(self.assets, self._outstanding.get(worker, ())))

    @property
    @abstractmethod
    def kinds(self) -> Collection[str]:
        """The kinds of assets that requests may miss."""

    @abstractmethod
    def assets(self, request: Request) -> Iterable[tuple[str, str]]:
        """Return kind and name of each asset that ``request`` needs."""

    @abstractmethod
    def lists(self, request: Request, among: Among) -> Iterable[tuple[list[Key], float]]:
        """Yield the lists to search together, with the least missing load of a worker in all (Among.search)."""

    @abstractmethod
    def missing_load_s(self, worker: Worker, request: Request) -> float:
        """Return the seconds of loading what ``request`` needs and ``worker`` will not hold by then."""

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        among, work, weight = self._holders.among(workers), self._work, self.load_weight
        lowest = LowestCost(
            lambda left_s, load_s: left_s + weight * load_s,
            lambda position: self.missing_load_s(workers[position], request),
            self._rng is None,
        )
        tied = among.search(
            self.lists(request, among), lowest, now_s, lambda position: work.left_s(workers[position], now_s)
        )
        return workers[tied[rank_of(len(tied), self._rng)]]

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        # Before it is outstanding itself, or it would find its own assets there.
        self._work.sent(worker, request, now_s, self.missing_load_s(worker, request))
        self._outstanding.setdefault(worker, deque()).append(request)
        if self._holders.is_used:
            for kind, name in self.assets(request):
                self._holders.hold(worker, kind, name)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._outstanding[worker].remove(request)
        if not self._holders.is_used:
            self._work.left(worker, request, now_s)
            return
        before_s = self._work.left_s(worker, now_s)
        self._work.left(worker, request, now_s)
        for kind, name in self.assets(request):
            self._holders.drop(worker, kind, name)
        # A worker that is idle as soon as expected is found without a note, since its listed end is past.
        if before_s > SLACK_S or self._work.left_s(worker, now_s):
            self._holders.sooner(worker)


class OutstandingLoad:
    """The load of each worker: the sum of whole numbers over its outstanding requests."""

    __slots__ = ("_loads", "_totals")

    def __init__(self) -> None:
        self._totals: dict[Worker, int] = {}
        self._loads: dict[Request, int] = {}

    def total(self, worker: Worker) -> int:
        return self._totals.get(worker, 0)

    def add(self, worker: Worker, request: Request, load: int) -> int:
        """Return the new total of ``worker``."""
        self._loads[request] = load
        total = self._totals[worker] = self._totals.get(worker, 0) + load
        return total

    def remove(self, worker: Worker, request: Request) -> int:
        """Return the new total of ``worker``."""
        total = self._totals[worker] = self._totals[worker] - self._loads.pop(request)
        return total


def _rng_of(ties: Ties, run: Run) -> np.random.Generator | None:
    return run.rng(ROUTER) if ties == "random" else None
