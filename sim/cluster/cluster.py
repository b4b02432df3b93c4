"""The cluster: who is idle, what is resident, and every second that a GPU works; workers change in no other way."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NoReturn

from backends.base import Asset, Backend, Cost
from sim.addons.assets import on_all
from sim.clock import COMPLETION, Clock, Entry
from sim.cluster.memory import Memory, common, own_model
from sim.cluster.rooms import Rooms
from sim.culprit import caller, named, nearest, sane
from sim.errors import SimulationError
from sim.gpu import Gpu
from sim.model import Model, in_role
from sim.parts.cluster import SERVER
from sim.record.ledger import PACK
from sim.record.record import Record
from sim.worker import Worker


class Cluster:
    """The GPUs of one run, all of kind ``gpu``, as sim.parts.Cluster describes them.

    Args:
        roles: of each GPU when the clock starts, its model resident; SERVER of one that serves ControlNets for good.
        models: the models by role.
        backend: what a load costs, and what lies in memory.
    """

    def __init__(self, gpu: Gpu, roles: Sequence[str], models: Mapping[str, Model], backend: Backend) -> None:
        self.gpu = gpu
        self.models = models
        self.backend = backend
        names = ["" if role == SERVER else in_role(models, role).name for role in roles]
        self._singles = [Worker(i, role, name) for i, (role, name) in enumerate(zip(roles, names, strict=True))]
        self._bases = [worker for worker in self._singles if worker._role != SERVER]
        self.servers = [worker for worker in self._singles if worker._role == SERVER]
        self._gangs: list[Worker] = []
        self._formed: dict[tuple[str, int, tuple[int, ...]], Worker] = {}
        self._live_gangs: dict[Worker, None] = {}
        self._loads: dict[Worker, tuple[str, float, Cost, Entry]] = {}
        self.last_order: dict[str, tuple[str, float]] = {}
        """By role: the class that ordered its last worker elsewhere, and when."""

    def open(
        self,
        clock: Clock,
        record: Record,
        limit: int,
        parts: Mapping[str, object],
        pull: Callable[[Worker], None],
        moved: Callable[[Worker, float], None],
        keeps: Callable[[Worker], bool],
    ) -> None:
        """Begin to serve, ``limit`` requests aboard a worker at most; ``parts`` are named in errors, the others are
        calls of the scheduler."""
        if not isinstance(limit, int) or limit < 1:
            raise SimulationError(f"{named(parts, 'executor')} takes {limit!r} requests at once, expected 1 or more")
        self._clock, self._record, self._parts = clock, record, parts
        self._pull, self._moved, self._keeps = pull, moved, keeps
        self._kinds, self._spans = record.ledger.kinds, record.ledger.buffer
        self._rooms, self._memory = Rooms(), Memory(self.gpu, parts)
        self.roomiest, self.idle = self._rooms.roomiest, self._rooms.idle
        self.admit, self.evict, self.check_memory = self._memory.admit, self._memory.evict, self._memory.check
        self._limit = limit
        for worker in self._singles:
            worker.limit = limit
        for worker in self._bases:
            self._install(worker, worker.model)
        for worker in self.servers:
            worker.closed = True
            worker.settle()
            worker.model_code = record.ledger.models.setdefault(SERVER, len(record.ledger.models))

    @property
    def gpus(self) -> int:
        return len(self._singles)

    @property
    def workers(self) -> list[Worker]:
        return [*(worker for worker in self._bases if worker.gang is None), *self._live_gangs]

    def beside(self, gang: Worker) -> list[Worker]:
        return [self._singles[number] for number in gang.gpus[gang.denoisers :]]

    def sizes(self) -> list[int]:
        return [1] * len(self._singles) + [len(gang.gpus) for gang in self._gangs]

    def gpus_of(self, worker_id: int) -> tuple[int, ...]:
        beyond = worker_id - len(self._singles)
        return self._gangs[beyond].gpus if beyond >= 0 else (worker_id,)

    def busy(self, now_s: float) -> int:
        busy = 0
        for worker in self._bases:  # looked at every minute of simulated time: written for speed
            if worker.aboard or worker.loading:
                busy += 1
        for worker in self.servers:
            busy += worker.until_s > now_s
        for gang in self._live_gangs:
            if gang.aboard or gang.loading:
                busy += len(gang.gpus)
        return busy

    def serving(self) -> bool:
        return any(worker.aboard for worker in self.workers)

    def take(self, worker: Worker) -> None:
        """A request goes aboard ``worker``. Raises SimulationError where it has no room, or takes nothing now."""
        try:
            aboard = worker.aboard + 1
        except AttributeError:
            raise SimulationError(
                f"{named(self._parts, 'scheduler')} returned {worker!r}; expected one of the cluster's workers, or None"
            ) from None
        if aboard > worker.limit or not worker.open:
            self._refuse(worker)
        if worker.lane is not None:
            self._rooms.remove(worker)
        worker.aboard = aboard
        if aboard < worker.limit:
            self._rooms.add(worker)

    def release(self, worker: Worker, count: int = 1) -> None:
        """Raises SimulationError where fewer than ``count`` were aboard."""
        aboard = worker.aboard - count
        if not 0 <= aboard < worker.aboard:
            who = named(self._parts, "executor")
            raise SimulationError(f"{who} released {count} requests of {worker}, which has {worker.aboard} aboard")
        if worker.lane is not None:
            self._rooms.remove(worker)
            worker.aboard = aboard
            self.rest(worker)
        else:
            worker.aboard = aboard
        if worker.open:
            pull = self._pull  # to call an attribute takes Python longer than to read it and call what was read
            pull(worker)
        elif not aboard and worker.ordered is not None:
            self._load(worker)

    def rest(self, worker: Worker) -> None:
        """``worker`` has room and nobody for it: list it, or have it begin what it was ordered to."""
        if worker.finishing:
            if not self._keeps(worker):
                worker.finishing = False
                worker.settle()
                if not worker.aboard:
                    self._load(worker)
        elif worker.lane is None:
            self._rooms.add(worker)

    def close(self, worker: Worker) -> None:
        if worker.lane is not None:
            self._rooms.remove(worker)
        worker.closed = True
        worker.settle()

    def reopen(self, worker: Worker) -> None:
        worker.closed = False
        worker.settle()
        if worker.has_room:
            self.rest(worker)
            if not worker.aboard:  # nobody will be released, so nobody else asks
                self._open_again(worker)

    def _refuse(self, worker: Worker) -> NoReturn:
        who = named(self._parts, "scheduler")
        if worker.gang is not None:
            reason = f"is one of the GPUs of {worker.gang}"
        elif not worker.limit:
            reason = "was disbanded"
        elif worker.ordered is not None or worker.loading:
            reason = "drains or loads for another role"
        elif worker.down:
            reason = "failed and is not back"
        elif worker.closed:
            reason = "runs a batch"
        else:
            reason = f"has {worker.aboard} of at most {worker.limit} aboard"
        raise SimulationError(f"{who} gave a request to {worker}, which {reason}; ask the cluster who has room")

    def order(self, worker: Worker, role: str, now_s: float) -> None:
        in_role(self.models, role)
        self._check_now("orders", worker, now_s)
        if worker.role == SERVER:
            raise SimulationError(f"{caller()} orders {worker}, which serves ControlNets and keeps to that")
        if worker.gang is not None or not worker.limit:
            what = "was disbanded" if worker.gang is None else f"is one of the GPUs of {worker.gang}"
            raise SimulationError(f"{caller()} orders {worker}, which {what}")
        if role == worker.role:
            return
        if worker.lane is not None:
            self._rooms.remove(worker)
        self._record.decisions.append((now_s, "order", {"worker": worker.id, "from": worker.role, "to": role}))
        if not any(other._role == worker._role for other in self.workers if other is not worker):
            self.last_order[worker.role] = caller(), now_s
        worker._role = role
        worker.finishing = False
        if worker.down:
            pass  # it loads when it is back
        elif in_role(self.models, role).name == worker.model and not worker.loading:  # back before it had begun to load
            worker.ordered = None
            self._open_again(worker)
        else:
            worker.ordered = role
            if not worker.loading and self._keeps(worker):
                worker.finishing = True
            elif not worker.aboard and not worker.loading:
                self._load(worker)
        worker.settle()
        self._moved(worker, now_s)

    def _check_now(self, does: str, worker: object, now_s: float) -> None:
        if now_s != self._clock._now:
            raise SimulationError(
                f"{caller()} {does} {worker} at {now_s} s, and the clock stands at {self._clock._now} s; act at "
                "clock.now"
            )

    def _load(self, worker: Worker) -> None:
        now_s = self._clock._now
        model = in_role(self.models, worker.role).name
        worker.ordered, worker.loading = None, True
        worker.settle()
        cost = on_all(worker, sane(self.backend.load(Asset("model", model, model)), self.backend, "load"))
        worker.resident.clear()
        loaded = self._clock.at(now_s + cost.seconds, COMPLETION, self._loaded, worker)
        self._loads[worker] = model, now_s, cost, loaded

    def _loaded(self, worker: Worker) -> None:
        model, from_s, cost, _ = self._loads.pop(worker)
        self._install(worker, model)
        self.spend(worker, from_s, from_s + cost.seconds, "load", cost.joules)
        worker.loading, worker.ordered = False, None
        worker.settle()
        if in_role(self.models, worker.role).name != model:  # another order came meanwhile
            self._load(worker)
            return
        self._moved(worker, self._clock._now)
        self._open_again(worker)

    def stop(self) -> None:
        for worker in list(self._loads):
            self._cut_load(worker)

    def _cut_load(self, worker: Worker) -> None:
        now_s = self._clock._now
        model, from_s, cost, loaded = self._loads.pop(worker)
        self._clock.cancel(loaded)
        models = self._record.ledger.models
        worker.model_code = models.setdefault(model, len(models))
        until_s = from_s + cost.seconds
        share = (now_s - from_s) / (until_s - from_s) if until_s > from_s else 1.0
        self.spend(worker, from_s, now_s, "load", cost.times(share).joules)

    def _open_again(self, worker: Worker) -> None:
        self._clock.at(self._clock._now, COMPLETION, self._pull, worker)

    def fail(self, worker: Worker, now_s: float) -> None:
        """Raises SimulationError for one that is down, or is or was part of a gang, or that has requests aboard."""
        self._check_now("fails", worker, now_s)
        if worker.aboard:
            raise SimulationError(f"{caller()} fails {worker} with {worker.aboard} requests aboard; use Run.fail")
        if worker.down or worker.gang is not None or len(worker.gpus) > 1:
            what = "is down already" if worker.down else "serves in a gang, of which no GPU can fail"
            raise SimulationError(f"{caller()} fails {worker}, which {what}")
        if worker.lane is not None:
            self._rooms.remove(worker)
        if worker in self._loads:
            self._cut_load(worker)
        worker.aboard, worker.ordered = 0, None
        worker.loading = worker.finishing = worker.closed = False
        worker.down = True
        worker.settle()
        self._record.decisions.append((now_s, "failure", {"worker": worker.id}))
        self._moved(worker, now_s)

    def repair(self, worker: Worker, now_s: float) -> None:
        self._check_now("repairs", worker, now_s)
        if not worker.down:
            raise SimulationError(f"{caller()} repairs {worker}, which is not down")
        worker.down = False
        self._record.decisions.append((now_s, "repair", {"worker": worker.id}))
        self._load(worker)

    def gang(self, workers: Sequence[Worker], role: str, now_s: float, denoisers: int | None = None) -> Worker:
        """Raises SimulationError where one of them is not idle, or named twice, or none steps the denoiser."""
        model = in_role(self.models, role).name
        self._check_now("makes a gang of", list(workers), now_s)
        if len({worker.id for worker in workers}) < len(workers) or len(workers) < 2:
            raise SimulationError(f"{caller()} wants a gang of {list(workers)}; expected two or more different workers")
        for worker in workers:
            if not worker.open or worker.aboard or len(worker.gpus) > 1:
                raise SimulationError(f"{caller()} wants {worker} in a gang, which is not idle; ask the cluster who is")
        stepping = len(workers) if denoisers is None else denoisers
        if not 1 <= stepping <= len(workers):
            raise SimulationError(f"{caller()} wants {stepping} GPUs of a gang of {len(workers)} to step its denoiser")
        first, others = (sorted(worker.id for worker in part) for part in (workers[:stepping], workers[stepping:]))
        members = (*first, *others)
        made = self._formed.get((role, stepping, members))
        if made is None:
            made = Worker(len(self._singles) + len(self._gangs), role, model, self._limit, members)
            made.denoisers = stepping
            self._gangs.append(made)
            self._formed[role, stepping, members] = made
        made.limit = self._limit
        made.settle()
        self._live_gangs[made] = None
        for worker in workers:
            if worker.lane is not None:
                self._rooms.remove(worker)
            worker.gang, worker.limit = made, 0
            worker.settle()
            made.until_s = max(made.until_s, worker.until_s)
        if any(worker.model != model for worker in workers):
            self._load(made)
        else:
            self._install(made, model)
            made.resident |= common([worker.resident for worker in workers[:stepping]])
        self._record.decisions.append((now_s, "gang", {"gpus": list(members), "role": role}))
        return made

    def disband(self, gang: Worker, now_s: float) -> None:
        """Raises SimulationError where it is not an idle gang."""
        self._check_now("disbands", gang, now_s)
        if gang not in self._live_gangs or gang.aboard or gang.loading:
            raise SimulationError(f"{caller()} disbands {gang}, which is no idle gang")
        if gang.lane is not None:
            self._rooms.remove(gang)
        del self._live_gangs[gang]
        gang.limit, gang.open = 0, False
        for number in gang.gpus:
            worker = self._singles[number]
            worker.gang, worker.limit, worker.until_s = None, self._limit, gang.until_s
            worker.settle()
            worker._role = gang.role
            if number in gang.gpus[: gang.denoisers] or worker.model != gang.model:
                self._install(worker, gang.model)
                worker.resident |= gang.resident
            self._moved(worker, now_s)
            self._open_again(worker)
        self._record.decisions.append((now_s, "disband", {"gpus": list(gang.gpus)}))

    def install(self, worker: Worker, model: str) -> None:
        """Raises SimulationError where the model is larger than the memory, or another part than an executor asks."""
        if nearest(self._parts) not in ("executor", None):
            raise SimulationError(
                f"{caller()} installs {model} on {worker} with {worker.aboard} requests aboard; only an executor may, "
                "which records the load: use Cluster.order"
            )
        self._install(worker, model)

    def _install(self, worker: Worker, model: str) -> None:
        worker.model = model
        models = self._record.ledger.models
        worker.model_code = models.setdefault(model, len(models))
        self._memory.install(worker, self.backend.bytes(own_model(worker)) or 0)

    def spend(
        self,
        worker: Worker,
        from_s: float,
        until_s: float,
        kind: str,
        joules: float | None = None,
        batch: int = 1,
        row: int = -1,
    ) -> float:
        """Raises SimulationError for a span that cannot be, or more requests at once than the worker may have."""
        if not (worker.until_s <= from_s <= until_s < inf and 0 < batch <= worker.limit):
            self._impossible(worker, from_s, until_s, kind, batch)
        worker.until_s = until_s
        if joules is None:
            joules = self.gpu.energy_j(until_s - from_s) * len(worker.gpus)
        try:
            code = self._kinds[kind]
        except KeyError:
            code = self._kinds[kind] = len(self._kinds)
        self._spans += PACK(from_s, until_s, joules, row, worker.id, batch, code, worker.model_code)
        return joules

    def _impossible(self, worker: Worker, from_s: float, until_s: float, kind: str, batch: int) -> NoReturn:
        who = named(self._parts, "executor")
        if worker.limit and batch > worker.limit:
            what = f"runs {batch} requests at once on {worker}, which takes {worker.limit} at most"
        elif batch < 1:
            what = f"runs {batch} requests on {worker}; expected 1 or more"
        elif worker.gang is not None:
            what = f"spends time of {worker}, which is one of the GPUs of {worker.gang}"
        elif not worker.limit:
            what = f"spends time of {worker}, which was disbanded"
        elif until_s == inf or until_s != until_s or from_s != from_s:
            what = f"spends {worker} from {from_s} s until {until_s} s, which are no times"
        elif not until_s >= from_s:
            what = f"spends {worker} from {from_s} s until {until_s} s, which is earlier"
        else:
            what = f"spends {worker} twice: {kind} from {from_s} s, and something else until {worker.until_s} s"
        raise SimulationError(f"{who} {what}")
