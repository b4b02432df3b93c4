"""The cluster: its workers, their roles and models, groups of GPUs, and the log of busy GPU time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from math import inf
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from mezzotint.backends.base import Asset, Backend, Cost, size_text, weights_of
from mezzotint.sim.addons.assets import on_gpus
from mezzotint.sim.cluster.free_workers import FreeWorkers, FreeWorkersByKind, remove
from mezzotint.sim.cluster.loads import record_loads
from mezzotint.sim.cluster.memory import Memory
from mezzotint.sim.cluster.residency import ModelResidency, activations
from mezzotint.sim.core.clock import COMPLETION, Clock, Entry
from mezzotint.sim.core.culprit import caller, calling_kind, error_of, innermost_kind, part_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model, in_role
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.server import Server, Size
from mezzotint.sim.core.worker import (
    BACKLOG,
    DOWN,
    DRAINING,
    LEAVING,
    LOADING,
    OFF,
    ON,
    REASONS,
    SERVICE,
    STARTING,
    GuardedWorker,
    Worker,
)
from mezzotint.sim.metrics.recorder import COMPILATIONS, STARTS, RunRecord
from mezzotint.sim.metrics.usage_log import PACK
from mezzotint.sim.protocols import Loads, Scheduler
from mezzotint.sim.protocols.cluster import IN_HOST, SERVER

AWAY = (STARTING, LEAVING, OFF)
"""States of a GPU that is not among the workers."""


class Cluster:
    """The GPUs of one run; the only code that changes workers (mezzotint.sim.protocols.Cluster).

    Args:
        kinds: kind of each GPU, with the costs of work on it; the order in which kinds appear is that of preference.
        roles: role of each GPU when the clock starts, its model resident; SERVER for a GPU that serves ControlNets.
        models: the models by role.
        residency: which models a GPU keeps; None: the one that it serves with.
        placed: roles of the models placed on each GPU, its own first; None where any GPU takes any request.
    """

    __slots__ = (  # faster to read and write than a dictionary of this many attributes
        "_by_number", "_by_role", "_clock", "_free", "_gpu_workers", "_is_occupied", "_is_rented", "_kept", "_kinds",
        "_loads", "_max_batch", "_memory", "_named_groups", "_not_on", "_parts", "_placed", "_pull", "_record",
        "_request_gpus", "_residency", "_scheduler", "_server", "_spans", "_starts", "_watchers", "_workers", "admit",
        "check_memory", "compiles", "evict", "idle", "kinds", "last_order", "least_loaded", "models", "models_held",
        "servers",
    )  # fmt: skip

    def __init__(
        self,
        kinds: Sequence[Kind],
        roles: Sequence[str],
        models: Mapping[str, Model],
        residency: ModelResidency | None = None,
        placed: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.kinds: Mapping[Gpu, Backend] = dict(kinds)
        self.models: Mapping[str, Model] = models
        names = ["" if role == SERVER else in_role(models, role).name for role in roles]
        self._gpu_workers = [
            Worker(number, role, name, gpu=kind.gpu, backend=kind.backend)
            for number, (kind, role, name) in enumerate(zip(kinds, roles, names, strict=True))
        ]
        self._request_gpus = [worker for worker in self._gpu_workers if worker._role != SERVER]
        self.servers = tuple(worker for worker in self._gpu_workers if worker._role == SERVER)
        self._residency, self._placed = residency, placed
        for worker, roles_there in zip(self._gpu_workers, placed or (), strict=False):
            worker.serves = frozenset(models[role].name for role in roles_there)
        self._by_number = list(self._gpu_workers)
        """The GPUs, and then the groups that stages use: Worker.id is the index."""
        self._named_groups: dict[tuple[int, ...], Worker] = {}
        """The groups by their GPUs, in any order that was asked for."""
        self._workers: tuple[Worker, ...] = ()
        self._by_role: dict[str, tuple[Worker, ...]] = {}
        self._is_occupied = False
        self._not_on: dict[Worker, None] = {}
        """GPUs for requests in another state than ON."""
        self._loads: dict[Worker, tuple[str, float, Loads, Entry]] = {}
        self._is_rented = False
        self._kept = ""
        self._starts: dict[Worker, Entry] = {}
        self._watchers: list[Callable[[Worker, str, str, bool], None]] = []
        self.last_order: dict[str, str] = {}
        """Role -> the class that took its last worker away, how and when, in words."""
        self.models_held: dict[tuple[str, str], int] = {}
        """Kind of GPU and model, of each model that a GPU held, and the code of the model in the usage log."""

    def open(
        self,
        clock: Clock,
        record: RunRecord,
        max_batch: int,
        parts: Mapping[str, object],
        pull: Callable[[Worker], None],
        scheduler: Scheduler,
        server: Server,
        compiles: bool,
    ) -> None:
        """Begin to serve, with at most ``max_batch`` requests running on a worker.

        ``parts`` are named in errors, and ``pull`` is that of the run. ``compiles`` is True if the first request of a
        shape may be charged.
        """
        if not isinstance(max_batch, int | np.integer) or max_batch < 1:
            raise SimulationError(
                f"{part_name(parts, 'executor')} takes {max_batch!r} requests at once; expected a whole number from "
                "1 on (max_batch)"
            )
        max_batch = int(max_batch)  # not NumPy's, which is slower
        self._clock, self._record, self._parts = clock, record, parts
        self._pull, self._scheduler = pull, scheduler
        self._kinds, self._spans = record.usage_log.kinds, record.usage_log.buffer
        self._free = FreeWorkers() if len(self.kinds) == 1 else FreeWorkersByKind([gpu.name for gpu in self.kinds])
        self._memory = Memory(parts, self._note_resident)
        self.least_loaded, self.idle = self._free.least_loaded, self._free.idle
        self.admit, self.evict, self.check_memory = self._memory.admit, self._memory.evict, self._memory.check
        self._max_batch = max_batch
        self._server, self.compiles = server, compiles
        for worker in self._gpu_workers:
            worker.max_batch = max_batch
        for worker in self._request_gpus:
            self._install(worker, worker.model)
            if server.begin != "warm":
                worker.compiled = self._warm_shapes(worker.model)
        if self._residency is not None:
            self._open_residency(self._residency)
        for worker in self.servers:
            self._move(worker, SERVICE)
            worker.model_code = record.usage_log.models.setdefault(SERVER, len(record.usage_log.models))

    def worker(self, worker_id: int) -> Worker:
        return self._by_number[worker_id]

    def _open_residency(self, residency: ModelResidency) -> None:
        models = {model.name: model for model in self.models.values()}
        residency.check(self.kinds, models.values())
        residency.changed = self._note_in_host
        for assumption in residency.assumptions():
            self._record.assume(assumption.what, assumption.value, assumption.source)
        for worker in self._request_gpus:
            roles = [] if self._placed is None else self._placed[worker.id]
            placed = [self.models[role].name for role in roles]
            slots = residency.slots(worker.gpu, worker.backend, [models[name] for name in placed or [worker.model]])
            # The own model last, so that it is the most recently used one.
            for name in [*placed[1:slots][::-1], worker.model]:
                self._install(worker, name, activations(worker.backend, models[name]))
                residency.keep(worker, name)

    def watch_assets(self, watcher: Callable[[Worker, str, str, bool], None]) -> None:
        self._watchers.append(watcher)

    def _note_resident(self, worker: Worker, asset: Asset, is_resident: bool) -> None:
        fleet = self._record.fleet
        if fleet is not None and asset.kind == "model" and len(worker.gpus) == 1:  # a group has what its GPUs have
            fleet.note_resident(worker.id, asset.name, is_resident, self._clock._now)
        for watcher in self._watchers:
            watcher(worker, asset.kind, asset.name, is_resident)

    def _note_in_host(self, worker: Worker, model: str, is_there: bool) -> None:
        size = worker.gpu.gpus_per_instance
        first = worker.id // size * size
        for other in self._gpu_workers[first : first + size]:
            if other.gpu.name == worker.gpu.name:
                for watcher in self._watchers:
                    watcher(other, IN_HOST, model, is_there)

    def models_in_host(self, worker: Worker) -> Collection[str]:
        return () if self._residency is None else self._residency.in_host(worker)

    @property
    def gpus(self) -> int:
        return len(self._gpu_workers)

    @property
    def workers(self) -> tuple[Worker, ...]:
        if not self._workers:
            self._workers = tuple(worker for worker in self._request_gpus if worker.state not in AWAY)
            self._by_role.clear()
        return self._workers

    def workers_of(self, role: str) -> tuple[Worker, ...]:
        workers = self.workers
        if role not in self._by_role:
            self._by_role[role] = tuple([worker for worker in workers if worker._role == role])
        return self._by_role[role]

    def roles(self) -> list[str]:
        return [worker._role for worker in self.workers]

    def gpu_counts(self) -> list[int]:
        return [len(worker.gpus) for worker in self._by_number]

    def gpu_kinds(self) -> list[Gpu]:
        return [worker.gpu for worker in self._by_number]

    def gpus_of(self, worker_id: int) -> tuple[int, ...]:
        return self.worker(worker_id).gpus

    def busy(self, now_s: float) -> int:
        if self._is_occupied:
            busy = sum(worker.running > 0 for worker in self._request_gpus)
        else:
            # Without a look at every worker: neither free and idle, nor in a state in which it has no request.
            busy = len(self._request_gpus) - self._free.idle_count()
            for worker in self._not_on:
                if not worker.running:
                    busy -= 1
        for worker in self.servers:
            busy += worker.running > 0 or worker.busy_until_s > now_s
        return busy + len(self._loads)

    def serving(self) -> bool:
        return any(worker.running for worker in self._request_gpus)

    def take(self, worker: Worker) -> None:
        """Count one more running request on ``worker``. Raises SimulationError if it has no capacity or is not open."""
        try:
            running = worker.running + 1
        except AttributeError:
            raise SimulationError(
                f"{part_name(self._parts, 'scheduler')} returned {worker!r}; expected one of the cluster's workers, "
                f"or None"
            ) from None
        if running > worker.max_batch or not worker.open:
            self._raise_not_free(worker)
        remove(worker)
        worker.running = running
        if running < worker.max_batch:
            self._free.add(worker)

    def release(self, worker: Worker, count: int = 1) -> None:
        running = worker.running - count
        if worker.bucket is not None:
            remove(worker)
            worker.running = running
            self.mark_free(worker)
        else:
            worker.running = running
        if worker.open:
            pull = self._pull  # reading and then calling is faster than calling an attribute
            pull(worker)
        elif not running:
            self._follow_order(worker)

    def _follow_order(self, worker: Worker) -> None:
        """Follow the order that waited for the last request of ``worker`` to leave."""
        if worker.state == DRAINING:
            self._load(worker)
        elif worker.state == LEAVING:
            self._end_leaving(worker)

    def mark_free(self, worker: Worker) -> None:
        """Add ``worker``, which has capacity and no request to take, to the free ones; if it has drained, load."""
        if worker.state == BACKLOG:
            # Its own queue first: nobody else would serve it (test_partial_batch_finishes_before_its_worker_loads).
            if not self._scheduler.has_backlog(worker):
                self._load_when_idle(worker)
        elif worker.bucket is None:
            self._free.add(worker)

    def close(self, worker: Worker) -> None:
        remove(worker)
        worker.closed = True
        worker.update_open()

    def reopen(self, worker: Worker) -> None:
        worker.closed = False
        worker.update_open()
        if worker.has_capacity:
            self.mark_free(worker)
            if not worker.running:  # no release is to come that would pull requests for it
                self._pull_later(worker)

    def _raise_not_free(self, worker: Worker) -> NoReturn:
        who = part_name(self._parts, "scheduler")
        full = f"has {worker.running} of at most {worker.max_batch} running"
        reason = full if worker.open else REASONS[worker.state]
        raise SimulationError(
            f"{who} gave a request to {worker}, which {reason}; ask Cluster.least_loaded or Cluster.idle"
        )

    def _move(self, worker: Worker, state: str) -> None:
        """Put ``worker`` into ``state``; every change of state passes here."""
        if (worker.state in AWAY) != (state in AWAY):
            self._workers = ()
        if state == ON:
            self._not_on.pop(worker, None)
        elif worker._role != SERVER:
            self._not_on[worker] = None
        worker.state = state
        worker.update_open()
        self._record.usage_log.state_changed(worker.id, state, self._clock._now)

    def guard(self) -> None:
        """Refuse changes of workers by others, where a class from outside the package sees them."""
        self.kinds, self.models = MappingProxyType(self.kinds), MappingProxyType(self.models)
        self.__class__ = GuardedCluster
        for worker in self._gpu_workers:
            worker.__class__ = GuardedWorker

    def keep_roles(self, why: str) -> None:
        self._kept = why

    def _check_may_order(self) -> None:
        if self._kept:
            who = caller()
            raise error_of(who)(
                f"{who} orders GPUs to another role or back, and {self._kept}; choose another executor= or "
                "group_policy=, or no such scheduler= or controller="
            )

    def change_role(self, worker: Worker, role: str, now_s: float) -> None:
        self._check_may_order()
        if role not in self.models:
            raise SimulationError(f"{caller()} orders {worker} to {role!r}; expected one of {', '.join(self.models)}")
        self._check_now("orders", worker, now_s)
        self._check_not_rented("orders to another role")
        if worker.state == SERVICE:
            raise SimulationError(f"{caller()} orders {worker}, which {REASONS[SERVICE]}; its role cannot change")
        if role == worker.role:
            return
        worker.backend.require(self.models[role].name)
        remove(worker)
        # From here on out of the free workers, which are kept by role.
        self._record.decisions.append((now_s, "order", {"worker": worker.id, "from": worker.role, "to": role}))
        # For the error of a run that never ends: its requests wait for a role without workers.
        if not any(other._role == worker._role for other in self.workers if other is not worker):
            what = f"ordered the last worker of role {worker.role!r} elsewhere at {now_s} s"
            self.last_order[worker.role] = f"{caller()} {what}"
        worker._role = role
        self._by_role.clear()
        # A repair, and the end of a load that runs, see the new role (test_order_during_a_load_starts_a_second_load).
        if worker.state not in (DOWN, LOADING):
            if in_role(self.models, role).name == worker.model:
                # Ordered back before it began to load: its model is still there.
                self._move(worker, ON)
                self._pull_later(worker)
            elif self._scheduler.has_backlog(worker):
                self._move(worker, BACKLOG)
            else:
                self._load_when_idle(worker)
        self._scheduler.worker_changed(worker, now_s)

    def _load_when_idle(self, worker: Worker) -> None:
        """Let ``worker`` load the model of its role, once its running requests have left."""
        if worker.running:
            self._move(worker, DRAINING)
        else:
            self._load(worker)

    def _check_not_rented(self, what: str) -> None:
        if self._is_rented:
            raise ConfigError(
                f"controller: found one that orders and gives back single GPUs, and {what}; choose another scheduler= "
                "or failures=none, or controller=none"
            )

    def _check_now(self, does: str, worker: object, now_s: float) -> None:
        if now_s != self._clock._now:
            raise SimulationError(
                f"{caller()} {does} {worker} at {now_s} s, and the clock stands at {self._clock._now} s; pass clock.now"
            )

    def _load(self, worker: Worker, is_start: bool = False) -> None:
        """Let ``worker`` load the model of its role; ``is_start`` if its server process starts before."""
        now_s = self._clock._now
        model = in_role(self.models, worker.role).name
        if worker.state != STARTING:  # which includes its first load
            # Before the load is scheduled: nothing may join it in between.
            self._move(worker, LOADING)
        idle_s, loads = self._loads_of(worker, model, is_start, *self.fetch(worker, model))
        if self._residency is None:
            self._memory.clear(worker)
        took_s = idle_s + sum(cost.seconds for _, cost in loads)
        if is_start:
            worker.compiled = self._warm_shapes(model)
            if STARTS in self._record.logs:
                self._record.logs[STARTS].add(now_s, took_s)
        loaded = self._clock.at(now_s + took_s, COMPLETION, self._loaded, worker)
        self._loads[worker] = model, now_s + idle_s, loads, loaded

    def _loads_of(self, worker: Worker, model: str, is_start: bool, kind: str, load: Cost) -> tuple[float, Loads]:
        """Return the seconds until ``model`` loads on ``worker``, and that load with what a start compiles after it."""
        server = self._server
        if not is_start:
            return 0.0, [(kind, load)]
        idle_s, load = server.loading(worker.backend.server_start(model), load)
        compiled = [self._first_s(worker, model, size) for size in server.warm_up]
        return idle_s, [(kind, load), *(("compile", Cost(seconds)) for seconds in compiled if seconds)]

    def _warm_shapes(self, model: str) -> set[tuple[str, int, int, int]]:
        return {(model, *size) for size in self._server.warm_up}

    def start_s(self, worker: Worker) -> float:
        model = in_role(self.models, worker.role).name
        idle_s, loads = self._loads_of(worker, model, True, *self._load_of(worker, model))
        return idle_s + sum(cost.seconds for _, cost in loads)

    def start_servers(self) -> None:
        """Start the server process of every worker now, for a run that begins cold."""
        for worker in self.workers:
            if worker.state == ON:
                remove(worker)
                if self._is_rented:  # a controller counts it as starting
                    self._move(worker, STARTING)
                    self._record.usage_log.state_changed(worker.id, LOADING, self._clock._now)
                self._load(worker, is_start=True)
                self._scheduler.worker_changed(worker, self._clock._now)

    def compile_s(self, worker: Worker, request: Request) -> float:
        size = request.width, request.height, request.frames
        shape = request.model or "", *size
        lacking = [gpu for gpu in (self._gpu_workers[number] for number in worker.gpus) if not gpu.has_compiled(shape)]
        if not lacking:
            return 0.0
        for gpu in lacking:
            assert gpu.compiled is not None
            gpu.compiled.add(shape)
        seconds = self._first_s(worker, shape[0], size)
        if seconds:
            self._record.logs[COMPILATIONS].add(self._clock._now, seconds)
        return seconds

    def _first_s(self, worker: Worker, model: str, size: Size) -> float:
        """Return the extra seconds of the first request of ``size`` of ``model`` on ``worker``; 0 if not known."""
        start = worker.backend.server_start(model)
        seconds = self._server.first_s(start, size)
        if seconds is None and start.knows_compile:  # else it is said at the begin
            known = ", ".join(size_text(*each) for each in start.compile_s)
            what = f"extra seconds of the first request of other shapes of {model} on {worker.gpu.name}"
            self._record.assume(what, 0, f"not charged: its profile has `compile` of {known} alone")
        return seconds or 0.0

    def _loaded(self, worker: Worker) -> None:
        # The model that was ordered when the load began, not that of the present role.
        model, from_s, loads, _ = self._loads.pop(worker)
        self._install(worker, model)
        record_loads(self, worker, loads, from_s, self._clock._now)
        if in_role(self.models, worker.role).name != model:  # ordered elsewhere while it loaded
            self._load(worker)
            return
        self._move(worker, ON)
        self._scheduler.worker_changed(worker, self._clock._now)
        self._pull_later(worker)

    def stop(self) -> None:
        for worker in list(self._loads):
            self._interrupt_load(worker)
        for worker in self._gpu_workers:
            self._record.usage_log.state_changed(worker.id, "", self._clock._now)

    def _interrupt_load(self, worker: Worker) -> None:
        now_s = self._clock._now
        model, from_s, loads, loaded = self._loads.pop(worker)
        self._clock.cancel(loaded)
        self._name_model(worker, model)
        # The spans are those of the model that was loading, which the worker never got.
        for kind, cost in loads:
            if from_s > now_s:
                break
            end_s = from_s + cost.seconds
            until_s = min(end_s, now_s)
            share = (until_s - from_s) / (end_s - from_s) if end_s > from_s else 1.0
            self.record_busy(worker, from_s, until_s, kind, cost.times(share).joules)
            from_s = end_s

    def _pull_later(self, worker: Worker) -> None:
        # Not at once: callers are amid a change of several workers, or of the scheduler's queues.
        self._clock.at(self._clock._now, COMPLETION, self._pull, worker)

    def fail(self, worker: Worker, now_s: float) -> None:
        """Take ``worker`` down. Raises SimulationError if it is down, a group, or has running requests."""
        self._check_now("fails", worker, now_s)
        self._check_not_rented("GPUs that fail")
        if worker.running:
            raise SimulationError(f"{caller()} fails {worker} with {worker.running} requests running; use Run.fail")
        if worker.state in (DOWN, SERVICE) or len(worker.gpus) > 1:
            what = "is a group, of which no GPU can fail" if len(worker.gpus) > 1 else REASONS[worker.state]
            raise SimulationError(f"{caller()} fails {worker}, which {what}")
        remove(worker)
        if worker in self._loads:
            self._interrupt_load(worker)
        if self._residency is not None:
            self._memory.clear(worker)
        worker.closed = False
        self._move(worker, DOWN)
        self._record.decisions.append((now_s, "failure", {"worker": worker.id}))
        self._scheduler.worker_changed(worker, now_s)

    def repair(self, worker: Worker, now_s: float) -> None:
        self._check_now("repairs", worker, now_s)
        if worker.state != DOWN:
            raise SimulationError(f"{caller()} repairs {worker}, which is not down")
        self._record.decisions.append((now_s, "repair", {"worker": worker.id}))
        self._load(worker, is_start=True)  # its memory was lost

    def group(self, gpus: tuple[int, ...]) -> Worker:
        group = self._named_groups.get(gpus)
        if group is None:
            members, first = tuple(sorted(gpus)), self._gpu_workers[min(gpus)]
            group = first if len(gpus) == 1 else self._named_groups.get(members)
            if group is None:
                group = type(first)(  # guarded or not
                    len(self._by_number), first._role, first.model, self._max_batch, members,
                    gpu=first.gpu, backend=first.backend,
                )  # fmt: skip
                self._by_number.append(group)
            self._named_groups[gpus] = self._named_groups[members] = group
        return group

    def occupy(self, group: Worker, requests: int = 1) -> None:
        self._is_occupied = True
        for number in group.gpus:
            worker = self._gpu_workers[number]
            if worker.running:
                raise SimulationError(
                    f"{part_name(self._parts, 'scheduler')} starts work on the GPUs {group.gpus}, and GPU {number} is "
                    "busy; start a launch once all its GPUs are idle"
                )
            # Checked on every start, so that no policy or scheduler can use a GPU twice (invariant 5).
            worker.running = requests

    def vacate(self, group: Worker) -> None:
        for number in group.gpus:
            worker = self._gpu_workers[number]
            worker.running = 0
            if not worker.open:
                self._follow_order(worker)

    def lacks(self, group: Worker, model: str) -> bool:
        return any(self._gpu_workers[number].model != model for number in group.gpus)

    def cut_short(self, group: Worker) -> None:
        if group.busy_until_s > self._clock._now:
            self._record.usage_log.cut(group.id, self._clock._now)
            group.busy_until_s = self._clock._now

    def rent(self, on: int) -> None:
        self._check_may_order()
        self._is_rented = True
        for worker in self._gpu_workers[on:]:
            self._move(worker, OFF)
            self._scheduler.worker_changed(worker, self._clock._now)

    def start_instance(self, instance: int, startup_s: float, now_s: float) -> None:
        members = self._instance(instance)
        self._check_now("orders", members, now_s)
        self._record.decisions.append((now_s, "rent", {"gpus": [worker.id for worker in members]}))
        for worker in members:
            if worker.state == OFF:
                self._move(worker, STARTING)
                self._starts[worker] = self._clock.at(now_s + startup_s, COMPLETION, self._started, worker)
            elif worker.state == LEAVING:
                self._move(worker, ON)
                self._scheduler.worker_changed(worker, now_s)
                self._pull_later(worker)

    def stop_instance(self, instance: int, now_s: float) -> None:
        members = self._instance(instance)
        self._check_now("gives back", members, now_s)
        self._record.decisions.append((now_s, "give back", {"gpus": [worker.id for worker in members]}))
        for worker in members:
            if worker.state == ON:
                remove(worker)
                self._move(worker, LEAVING)
                self._scheduler.worker_changed(worker, now_s)
            elif worker.state == STARTING:
                # Ordered and not there yet, or there and loading: neither has served anybody.
                if worker in self._starts:
                    self._clock.cancel(self._starts.pop(worker))
                else:
                    self._interrupt_load(worker)
                self._move(worker, LEAVING)
        for role in {worker.role for worker in members}.difference(self.roles()):
            self.last_order[role] = f"{caller()} gave back the last worker of role {role!r} at {now_s} s"
        # If nothing runs on it, no release is to come that would end it.
        self._end_leaving(members[0])

    def _instance(self, number: int) -> list[Worker]:
        size = self._gpu_workers[0].gpu.gpus_per_instance  # all GPUs are of one kind
        return self._gpu_workers[number * size : (number + 1) * size]

    def _end_leaving(self, worker: Worker) -> None:
        """Turn the instance of ``worker`` off if all its GPUs leave and none has a request."""
        members = self._instance(worker.id // worker.gpu.gpus_per_instance)
        # An instance is paid as a whole, so it goes back as a whole.
        if all(member.state == LEAVING and not member.running for member in members):
            for member in members:
                self._memory.clear(member)
                self._move(member, OFF)
            if self._residency is not None:
                self._residency.forget(worker)

    def _started(self, worker: Worker) -> None:
        # Its first load is busy time, so the usage log ends its start here.
        del self._starts[worker]
        self._record.usage_log.state_changed(worker.id, LOADING, self._clock._now)
        self._load(worker, is_start=True)

    def fetch(self, group: Worker, model: str, row: int = MISSING) -> tuple[str, Cost]:
        fleet = self._record.fleet
        if self._residency is None:
            kind, cost = self._load_of(group, model)
        else:
            workers = [self._gpu_workers[number] for number in group.gpus]
            lacking = [worker for worker in workers if worker.model != model] or workers
            # The GPUs of a group load side by side, so the slowest decides.
            kind, cost = max(
                [self._residency.fetch(worker, model) for worker in lacking], key=lambda load: load[1].seconds
            )
        if fleet is not None and row != MISSING:
            fleet.note_swap(row, kind)
        return kind, on_gpus(len(group.gpus), cost)

    @property
    def keeps_models(self) -> bool:
        return self._residency is not None

    def _load_of(self, worker: Worker, model: str) -> tuple[str, Cost]:
        """Return kind and cost of a load of ``model`` on ``worker`` now, of one of its GPUs."""
        if self._residency is None:
            return "load", worker.backend.load(weights_of(model))
        return self._residency.load(worker, model)

    def load_s(self, worker: Worker, model: str) -> float:
        return self._load_of(worker, model)[1].seconds

    def loads_s(self, worker: Worker, model: str) -> tuple[float, float]:
        if self._residency is not None:
            return self._residency.loads_s(worker, model)
        seconds = self.load_s(worker, model)
        return seconds, seconds

    def slots(self, worker: Worker) -> int:
        if self._residency is None:
            return 1
        return self._residency.slots(worker.gpu, worker.backend, list(self.models.values()))

    def install(self, group: Worker, model: str, free_bytes: int = 0) -> None:
        """Replace the model of ``group``. Raises SimulationError if it does not fit or no executor asks for it."""
        if innermost_kind(self._parts) not in ("executor", None):
            raise SimulationError(
                f"{caller()} installs {model} on {group} with {group.running} requests running; only an executor "
                "may, since it records the load: use Cluster.change_role"
            )
        for number in group.gpus:
            if self._gpu_workers[number].model != model:
                self._install(self._gpu_workers[number], model, free_bytes)

    def _install(self, worker: Worker, model: str, free_bytes: int = 0) -> None:
        worker.model = model
        self._name_model(worker, model)
        max_models = 1 if self._residency is None else self._residency.max_models
        self._memory.install(worker, worker.backend.bytes(weights_of(model)) or 0, max_models, free_bytes)

    def _name_model(self, worker: Worker, model: str) -> None:
        held = worker.gpu.name, model
        code = self.models_held.get(held)
        if code is None:
            models = self._record.usage_log.models
            code = self.models_held[held] = models.setdefault(model, len(models))
        worker.model_code = code

    def record_busy(
        self,
        worker: Worker,
        from_s: float,
        until_s: float,
        kind: str,
        joules: float | None = None,
        batch: int = 1,
        row: int = -1,
        model: str = "",
    ) -> float:
        """Log a span of busy time. Raises SimulationError for an impossible span, or a batch over ``max_batch``."""
        if model:
            self._name_model(worker, model)
            worker.max_batch = max(worker.max_batch, batch)  # the group policy bounds its batches
        # One chain of comparisons, which NaN fails too (test_invalid_busy_spans_are_refused).
        if not (worker.busy_until_s <= from_s <= until_s < inf and 0 < batch <= worker.max_batch):
            self._raise_impossible(worker, from_s, until_s, kind, batch)
        worker.busy_until_s = until_s
        if joules is None:
            joules = worker.gpu.energy_j(until_s - from_s) * len(worker.gpus)
        try:
            code = self._kinds[kind]
        except KeyError:
            code = self._kinds[kind] = len(self._kinds)
        self._spans += PACK(from_s, until_s, joules, row, worker.id, batch, code, worker.model_code)
        return joules

    def _raise_impossible(self, worker: Worker, from_s: float, until_s: float, kind: str, batch: int) -> NoReturn:
        who = part_name(self._parts, "executor")
        if worker.max_batch and batch > worker.max_batch:
            what = f"runs {batch} requests at once on {worker}, which takes {worker.max_batch} at most"
        elif batch < 1:
            what = f"runs {batch} requests on {worker}; expected 1 or more"
        elif not worker.max_batch:
            what = f"records busy time of {worker}, which {REASONS[worker.state]}"
        elif until_s == inf or until_s != until_s or from_s != from_s:
            what = f"records {worker} as busy from {from_s} s until {until_s} s, which are no times"
        elif not until_s >= from_s:
            what = f"records {worker} as busy from {from_s} s until {until_s} s, which is earlier"
        else:
            until_s = worker.busy_until_s
            what = f"records {worker} as busy twice: {kind} from {from_s} s, and something else until {until_s} s"
        raise SimulationError(f"{who} {what}")


class GuardedCluster(Cluster):
    """A cluster that classes from outside the package see: of them, only an executor records and releases."""

    __slots__ = ()

    def release(self, worker: Worker, count: int = 1) -> None:
        self._check_executes("releases requests of", worker)
        if not 0 <= worker.running - count < worker.running:
            who = part_name(self._parts, "executor")
            raise SimulationError(f"{who} released {count} requests of {worker}, which has {worker.running} running")
        Cluster.release(self, worker, count)

    def open(self, *args: Any, **kwargs: Any) -> None:
        Cluster.open(self, *args, **kwargs)
        self.admit = partial(self._let_execute, "puts an asset on", self.admit)
        self.evict = partial(self._let_execute, "evicts an asset from", self.evict)

    def _let_execute(self, does: str, method: Callable[..., Any], worker: Worker, *args: Any, **kwargs: Any) -> Any:
        self._check_executes(does, worker)
        if not isinstance(args[0] if args else kwargs.get("asset"), Asset):
            raise SimulationError(f"{caller()} {does} {worker} by {args!r:.100} {kwargs!r:.100}; expected an Asset")
        return method(worker, *args, **kwargs)

    def _check_executes(self, does: str, worker: Worker) -> None:
        kind = calling_kind(self._parts, 3)
        if kind not in ("executor", None):
            raise SimulationError(f"{part_name(self._parts, kind)} {does} {worker}; only an executor may")


def _executed(name: str, does: str) -> Callable[..., Any]:
    method = getattr(Cluster, name)

    @wraps(method)
    def call(self: GuardedCluster, worker: Worker, *args: Any, **kwargs: Any) -> Any:
        self._check_executes(does, worker)
        return method(self, worker, *args, **kwargs)

    return call


for _name, _does in (
    ("record_busy", "records busy time of"),
    ("compile_s", "compiles a shape on"),
    ("fetch", "fetches a model for"),
    ("occupy", "counts as busy"),
    ("vacate", "counts as idle"),
    ("cut_short", "cuts short"),
    ("close", "closes"),
    ("reopen", "reopens"),
):
    setattr(GuardedCluster, _name, _executed(_name, _does))
