"""Scheduling: which request runs next, and on which worker."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from mezzotint.backends.base import Cost, Work
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols.run import Run


@runtime_checkable
class Scheduler(Protocol):
    """The scheduler: keeps the queues, and chooses the worker of each request.

    A request arrives once by ``offer`` and leaves once: ``offer`` or ``next`` hands it to a worker, or the scheduler
    drops it with Run.end(request, DISCARDED, reason). The engine then has the executor accept it. Hand a request only
    to a worker with capacity (Cluster.least_loaded, Cluster.idle, Worker.has_capacity), and do not change its plan.
    """

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def offer(self, request: Request, now_s: float) -> Worker | None:
        """Queue ``request``, which is planned, and return None; or return the worker that runs it now."""

    @abstractmethod
    def next(self, worker: Worker, now_s: float) -> Request | None:
        """Return the next request for ``worker``, which has capacity; None leaves it as it is.

        The engine calls this when requests are released, and again until ``worker`` is full or None is returned. It
        may drop a request whose client has given it up, and call again.
        """

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        """Take note that the role, the model or the state of ``worker`` changed."""
        return

    def has_backlog(self, worker: Worker) -> bool:
        """Return True if ``worker``, ordered to another role, must first serve requests queued for it alone."""
        return False

    def request_ended(self, request: Request, now_s: float) -> None:
        """Take note that ``request`` ended, or was lost with its GPU and will be offered anew."""
        return

    def stranded(self) -> Sequence[tuple[Request, str]]:
        """Give up the requests that wait when no event is left, each with the reason; they end as failed.

        Returns:
            An empty sequence by default: a request that is left behind then ends the run with an error.
        """
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of requests that wait."""


@runtime_checkable
class BatchQueues(Protocol):
    """A scheduler of batches whose sizes a controller sets by role."""

    max_batch: dict[str, int]

    def batch_s(self, role: str, batch: int) -> Seconds:
        """Return the seconds of ``batch`` requests of the model in ``role``. Raises BackendError if unknown."""

    def queued(self, role: str) -> int:
        """Return the number of requests that wait for workers of ``role``."""


@runtime_checkable
class Router(Protocol):
    """A router: chooses the worker of a request at arrival, where each has its own queue (``scheduler=per-worker``)."""

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        """Return one of ``workers``, which may all serve ``request``; they may be full."""

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        """Take note that ``request`` was sent to ``worker`` and is outstanding there."""
        return

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        """Take note that ``request`` ended, or is about to be sent to another worker."""
        return


@runtime_checkable
class Discipline(Protocol):
    """A queue discipline: in which order queued requests are served (``scheduler=per-worker`` or ``central``).

    The queue of all workers together (``scheduler=central``) is that of one of them, whoever takes the request.
    """

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """Queue ``request`` at ``worker``, or discard it. If the worker has capacity, ``next`` is called after this."""

    @abstractmethod
    def next(self, worker: Worker, now_s: float) -> Request | None:
        """Return the next request for ``worker``, which has capacity; None leaves it as it is."""

    def ended(self, worker: Worker, request: Request, now_s: float) -> None:
        """Take note that ``request``, which ``next`` returned and ``worker`` ran, ended or was lost with its GPU."""
        return

    @abstractmethod
    def leave(self, worker: Worker) -> Sequence[Request]:
        """Empty the queue of ``worker`` and return its requests in the order in which they came."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of requests that wait, at all workers."""


StepsUntil = Callable[[float, float], int]
"""(now in seconds, seconds of each step from now on) -> the steps until there is a new decision to make, at least 0."""


@runtime_checkable
class Stepper(Protocol):
    """An executor with continuous batching, as a queue discipline sees it."""

    max_batch: int

    def active(self, worker: Worker) -> Sequence[Request]:
        """Return the requests that step together on ``worker``; those with no steps left are not among them."""

    def joining(self, worker: Worker) -> Sequence[Request]:
        """Return the requests that ``worker`` accepted and has not prepared yet."""

    def is_at_boundary(self, worker: Worker) -> bool:
        """Return True if the batch of ``worker`` may change now: it is idle, or calling back (``at_boundary``)."""

    def at_boundary(
        self, worker: Worker, then: Callable[[Worker], None], steps_until: StepsUntil | None = None
    ) -> None:
        """Call ``then(worker)`` once, at a step boundary after finished requests left and accepted ones joined.

        Args:
            steps_until: the steps to wait before the call; None calls at the next boundary.
        """

    def preempt(self, worker: Worker, request: Request) -> None:
        """Take the active ``request`` out of the batch, at a boundary (``is_at_boundary``). It keeps its progress.

        It resumes when the same worker accepts it again. The run ends with an error if another worker does.
        """

    def charge_overhead(self, worker: Worker, seconds: float) -> None:
        """Hold the GPU of ``worker`` for ``seconds`` at its next boundary."""

    def price(self, works: Sequence[Work]) -> Cost:
        """Return what one step of ``works`` would cost, as Steps.price does."""
