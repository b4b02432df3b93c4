"""The parts that a request meets on its way, and those that change the cluster around it. A part must have the methods
that are abstract here; the others may be left out."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from backends.base import FREE, Backend, Cost, Work
from conf.assumption import Assumption
from sim.core.culprit import of
from sim.core.errors import SimulationError
from sim.core.model import Model
from sim.core.request import Request
from sim.core.worker import Worker
from sim.protocols.addons import Loads
from sim.protocols.run import Run


@runtime_checkable
class FrontEnd(Protocol):
    """The front end: decides what will run for a request. It takes time but no GPU."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def admit(self, request: Request, now_s: float) -> float:
        """Write the plan into ``request``; return the seconds that deciding took."""

    def completed(self, request: Request) -> bool:
        """Whether the image just made leaves an artifact that ``insert`` must be called for."""
        return False

    def insert(self, request: Request, now_s: float) -> None:
        """Make the artifacts of ``request`` visible to searches."""
        return


@runtime_checkable
class Scheduler(Protocol):
    """Who runs next, and where. It keeps queues; who has room is asked of the cluster."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def offer(self, request: Request, now_s: float) -> Worker | None:
        """A request is ready: return the worker with room that takes it now, or keep it and return None. Each request
        is handed over once, here or by ``next``, with the plan that it came with."""

    @abstractmethod
    def next(self, worker: Worker, now_s: float) -> Request | None:
        """``worker`` has room (it is asked again until it has none): return what it takes, or None."""

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        """The role, the model or the group of ``worker`` changed."""
        return

    def has_backlog(self, worker: Worker) -> bool:
        """Whether ``worker``, ordered to another role, has requests in a queue of its own to end before it changes."""
        return False

    def request_ended(self, request: Request, now_s: float) -> None:
        """``request`` ended, or a GPU lost it."""
        return

    @abstractmethod
    def __len__(self) -> int:
        """Requests that wait."""


@runtime_checkable
class Router(Protocol):
    """To which worker a request goes when it comes, where each has a queue of its own (``scheduler=per-worker``)."""

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        """One of ``workers``, those that may serve ``request``, room or not."""

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        """``request`` went to ``worker``: it is outstanding there."""
        return

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        """It ended, or is about to be sent elsewhere."""
        return


@runtime_checkable
class Executor(Protocol):
    """How a worker turns plans into time; ``max_batch`` is the most requests that may be aboard a worker at once."""

    __slots__ = ()
    max_batch: int = 1

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def accept(self, worker: Worker, request: Request) -> None:
        """``worker`` takes ``request`` aboard now. In the end call Run.end and Cluster.release once each, and before
        that write the request's start_s and denoise_s, and record every second between its start and its end
        (Cluster.record_busy) with its model on the worker (Cluster.install)."""

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        """The GPU of ``worker`` is lost: let go of whatever is aboard, and return it, without Run.end or
        Cluster.release; the seconds so far are spent (Cluster.record_busy)."""
        raise SimulationError(
            f"{worker} fails and the executor ({of(self)}) has no method abort; choose another executor= or "
            "failures=none"
        )


@runtime_checkable
class Steps(Protocol):
    """What step-by-step execution is composed of: what each stage costs, on a GPU that does one thing at a time."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        """Take the run. ``interrupt`` ends the present run of steps of a worker at its next boundary, where ``boundary``
        and ``step`` are asked anew: for what changes between arrivals, such as an add-on that has come."""

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads | None:
        """Put the add-ons of ``request``, which joins ``active``, where they run; None: they are to be loaded one after
        another. Raises WorkFailed where they cannot be."""
        return None

    @abstractmethod
    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        """What comes before the first step of ``request``, at the boundary at which it joins (text encoding); its
        model and its artifact are there."""

    @abstractmethod
    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """One step of all of ``active``, waits at servers included. Asked again only when the set changes, was cut, or
        the backend is live."""

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """For how many steps the last answer of ``step`` holds; then it is asked anew. None: for all of them."""
        return None

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """What a boundary costs at which the set changed, or that was asked for: patch a LoRA, split a batch."""
        return FREE

    @abstractmethod
    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        """What comes after the last step of ``request`` until its image is out, and what after that."""

    def request_lost(self, worker: Worker, request: Request) -> None:
        """``request`` left without ``finish``."""
        return


NEARLY = 1e-9
"""A share of a step: what lies no further past a boundary is at it."""


class StepCosts(Protocol):
    """The steps of a batch that nobody joins or leaves, where one may cost more than the next. What is asked of it is
    the sum over its first ``count`` steps, so that whoever jumps over steps need not make them."""

    @property
    def longest_s(self) -> float:
        """What none of its steps takes more than."""

    def seconds(self, count: int) -> float: ...

    def joules(self, count: int) -> float | None:
        """None where they are not known."""

    def steps_by(self, elapsed_s: float) -> int:
        """The steps after which at least ``elapsed_s`` are gone, as few as can be; see NEARLY."""

    def reused(self, count: int) -> Sequence[float]:
        """Of each request of the batch, in steps: what its denoiser did not compute anew."""


@runtime_checkable
class FeatureCache(Protocol):
    """What the denoiser takes from an earlier step instead of computing it anew, and what that saves: the cost of a
    step then depends on how far each request of the batch has come."""

    def bind(self, run: Run) -> None: ...

    def step_costs(self, active: Sequence[Request], count: int, step: Callable[[Sequence[Request]], Cost]) -> StepCosts:
        """The next ``count`` steps of ``active``; ``step`` is what one step of some of them costs without any reuse."""


@runtime_checkable
class Priced(Protocol):
    """Steps that can say beforehand what a batch would cost."""

    def price(self, works: Sequence[Work]) -> Cost:
        """One step of ``works``, which were not begun and belong to no request; the mean over all of their steps, where
        those differ."""


@runtime_checkable
class Stepper(Protocol):
    """An executor whose requests join and leave between two steps, as a discipline of a queue sees it."""

    max_batch: int

    def active(self, worker: Worker) -> Sequence[Request]:
        """Those that step together on ``worker``; those whose last step was made are not among them."""

    def joining(self, worker: Worker) -> Sequence[Request]:
        """Those that were accepted and are not prepared yet."""

    def is_at_boundary(self, worker: Worker) -> bool:
        """Whether ``worker`` is where who is active may change: nothing runs on it, or it has asked (``at_boundary``)."""

    def at_boundary(self, worker: Worker, then: Callable[[Worker], None], patience: "StepsUntil | None" = None) -> None:
        """Have ``then(worker)`` called once at a boundary at which all have left that were done and all have joined
        that were accepted: the next one or, if it comes to a step before, the one that ``patience`` says."""

    def preempt(self, worker: Worker, request: Request) -> None:
        """Take ``request``, active, from the batch; it resumes when the same worker accepts it again. Where another one
        does the run ends with an error. Where ``worker`` is ``is_at_boundary`` alone."""

    def charge_overhead(self, worker: Worker, seconds: float) -> None:
        """Hold the GPU of ``worker`` for ``seconds`` at its next boundary."""

    def price(self, works: Sequence[Work]) -> Cost:
        """See Priced."""


StepsUntil = Callable[[float, float], int]
"""(now, seconds of each step from now on) -> the steps after which there is something new to decide, at least 0."""


@runtime_checkable
class Discipline(Protocol):
    """In which order those that wait at a worker join its batch, and whether they do (``scheduler=per-worker``)."""

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """``request`` comes to ``worker``, which is asked to take one (``next``) if it has room."""

    @abstractmethod
    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Scheduler.next."""

    @abstractmethod
    def leave(self, worker: Worker) -> Sequence[Request]:
        """All that wait at ``worker``, in the order in which they came; they do so no more."""

    @abstractmethod
    def __len__(self) -> int:
        """Requests that wait, at all workers."""


@runtime_checkable
class Controller(Protocol):
    """A slow loop that changes the cluster. Its ``bind`` starts what it needs (Run.process)."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    def arrived(self, request: Request, now_s: float) -> None:
        """``request`` came and was planned."""
        return


@runtime_checkable
class Allocation(Protocol):
    """Which role each GPU of the cluster has when the clock starts."""

    __slots__ = ()

    @abstractmethod
    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        """A role for each of ``gpus`` GPUs."""

    def assumptions(self) -> list[Assumption]:
        """What the split rests on that nobody measured."""
        return []
