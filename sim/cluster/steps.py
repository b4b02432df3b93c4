"""The step-by-step executor: who is active on a worker may change at every boundary between two steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, NoReturn

from annotated_types import Ge

from backends.base import FREE, Cost, Work, WorkFailed
from sim.addons.in_line import InLine
from sim.addons.kernels import Kernels
from sim.addons.servers import Servers
from sim.addons.steps import WithAddons, priced
from sim.addons.synchronous import Synchronous
from sim.clock import COMPLETION, DISPATCH
from sim.cluster.batched import Batched
from sim.cluster.residence import Unfit, ensure, seconds, spend
from sim.cluster.station import Even, Seat, Station, Tally
from sim.culprit import caller, of, sane
from sim.errors import ConfigError, SimulationError
from sim.parts import (
    ControlNets,
    Course,
    Executor,
    Fact,
    FeatureCache,
    Loads,
    Loras,
    Patience,
    Run,
    Steps,
    Worker,
)
from sim.record.record import BATCH_MEAN, STEP_SHARE
from sim.request import FAILED, MISSING, Request

EXPECTED = "expected a Cost of 0 or more seconds, and 0 or more joules or None"


@dataclass(slots=True)
class StepByStep(Executor):
    """Up to ``limit`` requests step together; one joins or leaves at a boundary (ORCA's iteration-level scheduling).

    A GPU does one thing at a time: while one request is prepared or decoded the others wait. A run of steps is planned
    up to the first request that ends, and cut at the next boundary when one joins. A live backend makes every step.

    Args:
        limit: requests that are active on a worker at most.
        steps: what the stages cost; by default as the backend has them.
        feature_cache: what a step reuses of the one before; None computes all.
        controlnets, loras: where ControlNets run, and when LoRAs come; without both, they are loaded one after another.
        kernels: of the denoiser and its ControlNets; None is plain.

    Raises ConfigError for a feature cache on a live backend, which computes all.
    """

    limit: Annotated[int, Ge(1)] = 16
    steps: Steps = field(default_factory=Batched)
    feature_cache: FeatureCache | None = None
    controlnets: ControlNets | None = None
    loras: Loras | None = None
    kernels: Kernels | None = None
    _run: Run = field(init=False, repr=False)
    _share: Fact = field(init=False, repr=False)
    _batch: Fact = field(init=False, repr=False)
    _reused: Fact = field(init=False, repr=False)
    _stations: dict[int, Station] = field(init=False, default_factory=dict, repr=False)
    _parked: dict[Request, tuple[int, Seat, int, str]] = field(init=False, default_factory=dict, repr=False)
    """By preempted request: its worker, its seat (``since`` is what it had), its steps left, and who preempted it."""

    def __post_init__(self) -> None:
        if self.feature_cache is not None and isinstance(self.controlnets, Servers):
            raise ConfigError(
                "feature_cache: how seldom steps that reuse something call the ControlNet servers is not modelled; add "
                "feature_cache=none, or give ControlNets GPUs of the gang (controlnets=services)"
            )
        if self.controlnets is not None or self.loras is not None or self.kernels is not None:
            controlnets, loras = self.controlnets or InLine(), self.loras or Synchronous()
            self.steps = WithAddons(self.steps, controlnets, loras, self.kernels or Kernels())

    def bind(self, run: Run) -> None:
        self._run = run
        self._share, self._batch = run.fact(STEP_SHARE, shown=False), run.fact(BATCH_MEAN)
        self.steps.bind(run, self.cut)
        if self.feature_cache is not None:
            if run.backend.live:
                raise ConfigError("feature_cache: a live backend computes every block; add feature_cache=none")
            self._reused = run.fact("reused_share")
            self.feature_cache.bind(run)

    def accept(self, worker: Worker, request: Request) -> None:
        station = self._stations.get(worker.id)
        if station is None:
            station = self._stations[worker.id] = Station(worker)
        station.joining.append(request)
        if not station.working:
            station.working = True
            self._at(station, DISPATCH, self._run.clock._now)
        elif station.planned:
            self._cut(station)

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        station = self._stations.pop(worker.id, None)
        for request in [request for request, (at, *_) in self._parked.items() if at == worker.id]:
            del self._parked[request]  # what it had made is gone with the GPU's memory
            request.left = request.steps - request.skipped
        if station is None:
            return []
        run, lost = self._run, [seat.request for seat in station.seats]
        due = station.due
        pending = due is not None and run.clock.cancel(due)
        if pending and station.staged is not None:
            lost.append(station.staged)
        lost += station.joining
        if due is not None and pending and due[1] != DISPATCH:  # else its turn comes now, and nothing has begun
            run.cluster.spend(worker, max(worker.until_s, station.anchor_s), now_s, "lost")
        for request in lost:
            self.steps.lost(worker, request)
        return lost

    def cut(self, worker: Worker) -> None:
        station = self._stations.get(worker.id)
        if station is not None:
            station.changed = True
            if station.planned:
                self._cut(station)

    def active(self, worker: Worker) -> Sequence[Request]:
        station = self._stations.get(worker.id)
        return () if station is None else [seat.request for seat in station.seats if seat.request.left > 0]

    def joining(self, worker: Worker) -> Sequence[Request]:
        station = self._stations.get(worker.id)
        return () if station is None else station.joining

    def between(self, worker: Worker) -> bool:
        station = self._stations.get(worker.id)
        return station is None or station.asking or not station.working

    def ask(self, worker: Worker, then: Callable[[Worker], None], patience: Patience | None = None) -> None:
        station = self._stations.get(worker.id)
        if station is not None and station.working:
            station.then, station.patience, station.asked_s = then, patience, self._run.clock._now
            if station.planned:
                self._cut(station)

    def park(self, worker: Worker, request: Request) -> None:
        station = self._stations[worker.id]
        seat = next(seat for seat in station.seats if seat.request is request)
        station.seats.remove(seat)
        station.changed = bool(station.seats)
        seat.since = station.tally.minus(seat.since)
        self._parked[request] = worker.id, seat, request.left, caller(1)
        request.worker = MISSING
        self._run.cluster.release(worker)

    def owe(self, worker: Worker, seconds: float) -> None:
        if not 0.0 <= seconds < inf:
            raise SimulationError(f"{caller(1)} holds {worker} for {seconds} s; expected 0 or more seconds")
        station = self._stations.get(worker.id)
        if station is None:
            station = self._stations[worker.id] = Station(worker)
        station.owed_s += seconds
        station.changed = True

    def price(self, works: Sequence[Work]) -> Cost:
        steps = priced(self.steps)
        if self.feature_cache is None:
            return steps.price(works)
        asked = [_asking(work) for work in works]
        of = dict(zip(asked, works, strict=True))
        count = works[0].steps
        course = self.feature_cache.course(asked, count, lambda some: steps.price([of[each] for each in some]))
        return Cost(course.seconds(count), course.joules(count)).over(count)

    def _at(self, station: Station, order: int, time_s: float) -> None:
        station.version += 1
        clock = self._run.clock
        station.staged = None
        station.due = clock.at(max(time_s, clock._now), order, self._go_on, (station, station.version))

    def _go_on(self, due: tuple[Station, int]) -> None:
        station, version = due
        if version == station.version:
            if station.planned:
                self._stepped(station)
            self._advance(station)

    def _cut(self, station: Station) -> None:
        if self._run.backend.live or station.course.seconds(station.planned) <= 0.0:
            return
        steps = station.course.reached(self._run.clock._now - station.run_s)
        if steps < station.planned:
            station.planned = max(steps, 0)
            self._at(station, COMPLETION, station.now_s(station.planned))

    def _advance(self, station: Station) -> None:
        """At a boundary: let one go that is done, or have one join that waits, or ask who else does, or step on."""
        done = next((seat for seat in station.seats if seat.request.left <= 0), None)
        if done is not None:
            self._leave(station, done)
        elif station.joining:
            self._join(station, station.joining.popleft())
        elif station.then is not None and station.patience is None:
            then, station.then = station.then, None
            station.asking = True
            then(station.worker)
            station.asking = False
            self._advance(station)
        elif station.changed and station.seats:
            self._boundary(station)
        elif station.seats:
            self._step(station)
        else:
            station.working = False

    def _join(self, station: Station, request: Request) -> None:
        run, worker = self._run, station.worker
        if not station.seats:  # count from now
            station.anchor_s, station.ready_s, station.other_s, station.tally = run.clock._now, 0.0, 0.0, Tally()
        if request in self._parked:
            seat = self._resumed(worker, request)
            seat.since = station.tally.minus(seat.since)
            station.seats.append(seat)
            station.changed = True
            self._advance(station)
            return
        if request.left != request.steps - request.skipped:
            raise run.wrong(
                "scheduler",
                f"handed over the request in row {request.row} with {request.left} steps left; its plan has "
                f"{request.steps - request.skipped}",
            )
        start_s = station.now_s()
        try:
            loads = ensure(run, worker, request, [seat.request for seat in station.seats], self.steps.bring)
        except Unfit as failure:
            request.start_s, request.load_s = start_s, seconds(failure.loads)
            station.ready_s += request.load_s
            self._stage(station, self._unprepared, (station, request, failure.loads, str(failure)), request)
            return
        request.start_s, request.load_s = start_s, seconds(loads)
        station.ready_s += request.load_s
        try:
            cost = self.steps.prepare(worker, request, start_s)
        except WorkFailed as failure:
            self._stage(station, self._unprepared, (station, request, loads, str(failure)), request)
            return
        if not (0.0 <= cost.seconds < inf and (cost.joules is None or 0.0 <= cost.joules < inf)):
            self._refuse(cost, "prepare")
        station.ready_s += request.fetch_s
        station.other_s += cost.seconds
        seat = Seat(request, station.tally.copy())
        for _, load in loads:
            seat.note(load)
        seat.note(cost)
        self._stage(station, self._joined, (station, seat, loads, cost), request)

    def _resumed(self, worker: Worker, request: Request) -> Seat:
        at, seat, left, parker = self._parked.pop(request)
        found = (worker.id, worker.model, request.left)
        if found == (at, request.model, left):
            return seat
        raise self._run.wrong(
            "scheduler",
            f"resumes the request in row {request.row}, preempted by {parker} with {left} steps left, on {worker} with "
            f"{worker.model} and {request.left} steps left; its state is on worker {at}, for {request.model}: moving "
            "it has no cost yet, so resume it there",
        )

    def _joined(self, what: tuple[Station, Seat, Loads, Cost]) -> None:
        station, seat, loads, cost = what
        request, worker, until_s = seat.request, station.worker, station.now_s()
        from_s, _ = spend(self._run, worker, loads, request.start_s, until_s)
        if request.fetch_s:
            fetched_s = min(from_s + request.fetch_s, until_s)
            self._run.cluster.spend(worker, from_s, fetched_s, "fetch", None, 1, request.row)
            from_s = fetched_s
        if until_s > from_s:
            self._run.cluster.spend(worker, from_s, until_s, "prepare", cost.joules, 1, request.row)
        request.decode_s = cost.seconds
        station.seats.append(seat)
        station.changed = True
        self._advance(station)

    def _unprepared(self, what: tuple[Station, Request, Loads, str]) -> None:
        station, request, loads, reason = what
        spend(self._run, station.worker, loads, request.start_s, station.now_s())
        self._fail(station, [request], reason)

    def _boundary(self, station: Station) -> None:
        station.changed = False
        start_s = station.now_s()
        cost = self.steps.boundary(station.worker, [seat.request for seat in station.seats], start_s)
        if cost is not FREE and not (0.0 <= cost.seconds < inf and (cost.joules is None or 0.0 <= cost.joules < inf)):
            self._refuse(cost, "boundary")
        if station.owed_s:
            cost, station.owed_s = Cost(cost.seconds + station.owed_s), 0.0
        station.other_s += cost.seconds
        self._stage(station, self._crossed, (station, start_s, cost))

    def _crossed(self, what: tuple[Station, float, Cost]) -> None:
        station, start_s, cost = what
        if cost.seconds:
            tally, batch = station.tally, len(station.seats)
            self._run.cluster.spend(station.worker, start_s, station.now_s(), "boundary", cost.joules, batch)
            tally.idle_s += cost.seconds / batch
            tally.meter(cost.seconds, cost.joules, batch)
        self._advance(station)

    def _step(self, station: Station) -> None:
        active = [seat.request for seat in station.seats]
        station.run_s = station.now_s()
        count = 1 if self._run.backend.live else min(request.left for request in active)
        try:
            if self.feature_cache is None:
                cost = self.steps.step(station.worker, active, station.run_s)
                if not (0.0 <= cost.seconds < inf and (cost.joules is None or 0.0 <= cost.joules < inf)):
                    self._refuse(cost, "step")
                station.course = Even(cost)
            else:
                station.course = self._reusing(station, active, count)
        except WorkFailed as failure:
            station.seats.clear()
            self._fail(station, active, str(failure))
            return
        if self._run.backend.live:
            station.patience = None  # the step is made: who wants to be asked is asked after it
        elif station.patience is not None:
            # Steps that reuse are shorter than the longest: it is asked early rather than late, and once an instant.
            now_s = self._run.clock._now
            patience = max(station.patience(now_s, station.course.longest_s), int(station.asked_s == now_s))
            if patience < 0:
                raise SimulationError(
                    f"{of(station.patience)} returned a patience of {patience} steps; expected 0 or more"
                )
            if not patience:
                station.patience = None
                self._advance(station)
                return
            count = min(count, patience)
        if (holds := self.steps.holds(station.worker, active)) is not None:
            if holds < 1:
                raise SimulationError(f"{of(self.steps)} returned {holds} from holds; expected 1 or more, or None")
            count = min(count, holds)
        station.planned = count
        self._at(station, COMPLETION, station.now_s(station.planned))

    def _reusing(self, station: Station, active: Sequence[Request], count: int) -> Course:
        cache = self.feature_cache
        assert cache is not None
        course = cache.course(
            active, count, lambda some: sane(self.steps.step(station.worker, some, station.run_s), self.steps, "step")
        )
        sane(Cost(course.seconds(count), course.joules(count)), cache, "course")
        return course

    def _refuse(self, cost: object, method: str) -> NoReturn:
        backend = of(self._run.backend)
        if of(self.steps).startswith("sim."):
            raise SimulationError(f"{backend}, by {of(self.steps)}.{method}, returned {cost}; {EXPECTED}")
        raise SimulationError(f"{of(self.steps)} returned {cost} from {method}; {EXPECTED}")

    def _stepped(self, station: Station) -> None:
        count, batch, tally = station.planned, len(station.seats), station.tally
        station.planned = 0
        from_s, seconds, joules = station.now_s(), station.course.seconds(count), station.course.joules(count)
        tally.steps_s += seconds
        tally.share_s += seconds / batch
        tally.batch_s += seconds * batch
        tally.meter(seconds, joules, batch)
        self._run.cluster.spend(station.worker, from_s, station.now_s(), "steps", joules, batch)
        for seat in station.seats:
            seat.request.left -= count
        for seat, reused in zip(station.seats, station.course.reused(count), strict=False):
            seat.reused += reused

    def _leave(self, station: Station, seat: Seat) -> None:
        station.seats.remove(seat)
        station.changed = bool(station.seats)
        request, start_s = seat.request, station.now_s()
        try:
            before, after = self.steps.finish(station.worker, request, start_s)
        except WorkFailed as failure:
            self._fail(station, [request], str(failure))
            return
        if not (0.0 <= before.seconds < inf and (before.joules is None or 0.0 <= before.joules < inf)):
            self._refuse(before, "finish")
        if after is not FREE and not (
            0.0 <= after.seconds < inf and (after.joules is None or 0.0 <= after.joules < inf)
        ):
            self._refuse(after, "finish")
        station.other_s += before.seconds
        seat.note(before)
        seat.note(after)
        self._tell(station, seat, before, after)
        self._stage(station, self._out, (station, seat, start_s, before, after), request)

    def _out(self, what: tuple[Station, Seat, float, Cost, Cost]) -> None:
        """The image is there; what comes after it still holds the GPU."""
        station, seat, start_s, before, after = what
        run, worker = self._run, station.worker
        until_s = station.now_s()
        if before.seconds:
            run.cluster.spend(worker, start_s, until_s, "finish", before.joules, 1, seat.request.row)
        run.end(seat.request)
        station.other_s += after.seconds
        self._stage(station, self._gone, (station, until_s, after))

    def _gone(self, what: tuple[Station, float, Cost]) -> None:
        station, start_s, after = what
        if after.seconds:
            self._run.cluster.spend(station.worker, start_s, station.now_s(), "after", after.joules)
        self._run.cluster.release(station.worker)
        self._advance(station)

    def _stage(
        self, station: Station, then: Callable[[Any], None], what: tuple[object, ...], request: Request | None = None
    ) -> None:
        """Go on with ``then(what)`` when the stage that was just added is over, of ``request``, which is not active."""
        clock = self._run.clock
        station.staged = request
        station.due = clock.at(max(station.now_s(), clock._now), COMPLETION, then, what)

    def _fail(self, station: Station, requests: list[Request], reason: str) -> None:
        for request in requests:
            self.steps.lost(station.worker, request)
            self._run.end(request, FAILED, reason)
        self._run.cluster.release(station.worker, len(requests))
        self._advance(station)

    def _tell(self, station: Station, seat: Seat, before: Cost, after: Cost) -> None:
        request, tally, since = seat.request, station.tally, seat.since
        request.denoise_s = tally.steps_s - since.steps_s
        share_s = tally.share_s - since.share_s
        self._batch[request.row] = (
            (tally.batch_s - since.batch_s) / request.denoise_s if request.denoise_s > 0.0 else 1.0
        )
        if self.feature_cache is not None:
            self._reused[request.row] = seat.reused / max(request.steps - request.skipped, 1)
        request.decode_s += before.seconds
        own_s = request.load_s + request.fetch_s + share_s + request.decode_s
        beside_s = (tally.idle_s - since.idle_s) + after.seconds
        metered_s = tally.metered_s - since.metered_s + seat.metered_s
        gpus = len(station.worker.gpus)
        estimated_j = self._run.cluster.gpu.energy_j(own_s + beside_s - metered_s) * gpus
        self._share[request.row] = share_s * gpus
        request.energy_j = tally.joules - since.joules + seat.joules + estimated_j


def _asking(work: Work) -> Request:
    request = Request(work.row, 0.0, work.width, work.height, work.steps)
    request.model, request.left = work.model, work.steps
    return request
