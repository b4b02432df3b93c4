"""From a request that falls due to its tries: what a client sends, gives up and sends again, as the engine serves it.

A try is a request of the server with a row of its own. The rows of a run are those of the trace, then all served ones
once more for second tries, and so on, as many times as the client may send a request. So no part meets two requests in
one row, though an earlier try may still run when the next one is sent.

A client that gives a try up ends it at once, as failed. The server may go on with it: it is in ``_given_up`` until the
server is done with it, and the run lasts until then. What the server spends on it is wasted.
"""

from collections.abc import Callable
from typing import Protocol

from mezzotint.sim.core.clock import ARRIVAL
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import COMPLETED, FAILED, Request
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.metrics.recorder import STEP_SHARE, WASTED, RunRecord
from mezzotint.sim.protocols import Client, Executor, FrontEnd, Log, RequestColumn, Run, Scheduler


class ClientRun(Run, Protocol):
    """The engine: what a client's tries need of it besides Run.

    Attributes:
        rows: requests that are to end before the run does.
    """

    rows: int
    record: RunRecord
    frontend: FrontEnd
    scheduler: Scheduler
    executor: Executor

    def arrive(self, request: Request, first: Request | None) -> None:
        """Have ``request`` arrive now; with ``first``, by the plan of this earlier try."""

    def refuse(self, request: Request, reason: str) -> None:
        """End ``request``, which arrives now, as discarded."""

    def next_due(self, due: Callable[[int], None]) -> None:
        """In a closed loop, call ``due`` with the next row of the trace after the think time."""

    def insert_later(self, request: Request) -> None:
        """Have the front end cache the artifact of ``request``, after all completions of the instant."""

    def stop_if_over(self) -> None:
        """Stop the run after this instant, if every request has ended."""


class Tries:
    """The tries of a run: sends them for the client, and ends them.

    Args:
        engine: the run; this is the part of it that only a run with a client has.
        detour: delays ends, as the engine would without a client; None if nothing does.
        released: tells the scheduler of ends; None if it does not listen.
    """

    __slots__ = (
        "_client", "_detour", "_due", "_engine", "_first", "_firsts", "_given_up", "_giving_up", "_made", "_released",
        "_rows", "_sent", "_wasted", "_wasted_gpu_s",
    )  # fmt: skip

    def __init__(
        self,
        engine: ClientRun,
        client: Client,
        detour: Callable[[Request, int], bool] | None,
        released: Callable[[Request, float], None] | None,
    ) -> None:
        self._engine, self._client, self._detour, self._released = engine, client, detour, released
        self._giving_up: Request | None = None
        self._first, self._rows = engine.workload.preload, engine.workload.rows
        self._firsts: dict[int, Request] = {}
        """The first try of each request that may have another, by trace row."""
        self._given_up: dict[int, Request] = {}
        """The tries that were given up and that the server is not done with, by row."""
        self._sent: set[int] = set()
        self._due = 0
        """Further tries that the client asked for (``send_at``) and did not send yet."""
        self._made: set[int] = set()
        """The trace rows whose artifact was offered to the cache: once, whichever tries complete."""
        self._wasted_gpu_s: RequestColumn
        self._wasted: Log

    def bind(self) -> None:
        """Bind the client. Raises ConfigError for what it cannot be combined with."""
        engine, client = self._engine, self._client
        if engine.backend.live:
            raise ConfigError("client: found one beside a live backend, which no client cancels; add client=null")
        if client.cancellation == "step" and type(engine.executor).stop is Executor.stop:
            raise ConfigError(
                f"client.cancellation: found step, and {type(engine.executor).__name__} runs what it began to its end; "
                "choose client.cancellation=queued or never, or executor=sequential, continuous-batching or stages"
            )
        if client.gives_up:
            self._wasted_gpu_s = engine.add_column("wasted_gpu_s", default=0.0)
            self._wasted = engine.log(WASTED)
            engine.gauge("given_up", lambda _: len(self._given_up))
        client.bind(engine, self)
        if client.max_tries != engine.workload.max_tries:
            raise engine.policy_error(
                "client",
                f"has max_tries = {client.max_tries!r} once bound, and {engine.workload.max_tries} before; set it in "
                "its constructor, since each try has a row",
            )

    # -- for the client (protocols.Sender) ---------------------------------------------------------------------------

    def due(self, row: int) -> None:
        """Tell the client that the request in trace row ``row`` is due: the clock's call at its arrival."""
        self._client.due(row, self._engine.clock._now)

    def make(self, row: int, number: int = 1) -> Request:
        return self._engine.request(row + (number - 1) * self._rows, self._engine.clock._now)

    def send(self, request: Request) -> None:
        row = self.trace_row(request)
        self._check_new(request)
        if request.row != row:
            if not self._due or row not in self._firsts:
                raise self._engine.policy_error(
                    "client",
                    f"sends a further try of the request in row {row}, which it did not ask for or whose first try was "
                    "never sent; ask for each by Sender.send_at, and send it in resend",
                )
            self._due -= 1
            self._engine.arrive(request, self._firsts[row])
            return
        if self._client.max_tries > 1:
            self._firsts[row] = request
        self._engine.arrive(request, None)

    def refuse(self, request: Request, reason: str) -> None:
        self._check_new(request)
        self._engine.refuse(request, reason)

    def _check_new(self, request: Request) -> None:
        """Check that ``request`` was made now, and not sent or refused before."""
        now_s = self._engine.clock._now
        if request.arrival_s != now_s:
            raise self._engine.policy_error(
                "client",
                f"sends the request in row {request.row} at {now_s} s, and it was made for {request.arrival_s} s; make "
                "it when it is sent (Sender.make)",
            )
        if request.row in self._sent:
            raise self._engine.policy_error(
                "client", f"sends the request in row {request.row} twice; each try is made anew, with its number"
            )
        self._sent.add(request.row)

    def send_at(self, time_s: float, row: int) -> None:
        # From now on, so that the run does not end before it is sent.
        self._engine.rows += 1
        self._due += 1
        self._engine.clock.at(time_s, ARRIVAL, self._client.resend, row)

    def trace_row(self, request: Request) -> int:
        return (request.row - self._first) % self._rows + self._first

    def send_next(self) -> None:
        self._engine.next_due(self.due)

    def give_up(self, request: Request, reason: str) -> None:
        engine = self._engine
        if not self._client.gives_up:
            raise engine.policy_error(
                "client", f"gives up the request in row {request.row}, and its gives_up is False; set it to True"
            )
        # Before it ends: the run must not be over as long as the server is not done with it.
        self._given_up[request.row] = self._giving_up = request
        engine.end(request, FAILED, reason)
        self._giving_up = None
        if self._client.cancellation == "step":
            engine.executor.stop(request, engine.clock._now)

    # -- for the engine ------------------------------------------------------------------------------------------------

    def ended(self, request: Request, outcome: int) -> None:
        """Tell the client of an end; after the last one, stop the run."""
        self._client.ended(request, outcome, self._engine.clock._now)
        self._stop_if_over()

    def _stop_if_over(self) -> None:
        if not self._given_up:
            self._engine.stop_if_over()

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """Return the next request for ``worker`` from the scheduler, but none that was given up and may be dropped."""
        scheduler_next = self._engine.scheduler.next
        while True:
            request = scheduler_next(worker, now_s)
            if request is None or not self.drops(request):
                return request

    def drops(self, request: Request) -> bool:
        """Return True if ``request`` was given up and its turn has come: the server drops it, and is done with it."""
        if not self.is_given_up(request):
            return False
        self.end_given_up(request, FAILED)
        return True

    def is_given_up(self, request: Request) -> bool:
        """Return True if the server may drop ``request``."""
        return self._client.cancellation != "never" and request.row in self._given_up

    def end_given_up(self, request: Request, outcome: int) -> bool:
        """Return True if ``request`` ends later (Answering), or was given up before: it ended then."""
        if self._detour is not None and self._detour(request, outcome):
            return True
        if request.row not in self._given_up or request is self._giving_up:
            return False
        self._wasted_gpu_s[request.row] = gpu_s = self._gpu_s(request)
        self._wasted.add(self._engine.clock._now, gpu_s)
        if outcome == COMPLETED and self._engine.frontend.completed(request):
            self._engine.insert_later(request)
        self._done_with(request)
        return True

    def _done_with(self, request: Request) -> None:
        """Forget ``request``, which was given up and which the server is done with."""
        del self._given_up[request.row]
        self.request_ended(request, self._engine.clock._now)
        self._stop_if_over()

    def request_ended(self, request: Request, now_s: float) -> None:
        """Tell the scheduler that the server is done with ``request``: of one given up, not yet."""
        if self._released is not None and request is not self._giving_up:
            self._released(request, now_s)

    def _gpu_s(self, request: Request) -> float:
        """Return the GPU-seconds that ``request`` took: its share of the steps of its batch, and its own other work."""
        engine, columns = self._engine, self._engine.record.request_columns
        row = request.row - self._first
        if "gpu_s" in columns:  # of executor=stages
            return float(columns["gpu_s"][row])
        if request.worker == MISSING:
            return 0.0
        gpus = len(engine.cluster.gpus_of(request.worker))
        steps_s = float(columns[STEP_SHARE][row]) if STEP_SHARE in columns else request.denoise_s * gpus
        return steps_s + gpus * (request.load_s + request.plan.fetch_s + request.decode_s)

    def artifact_of(self, request: Request) -> Request | None:
        """Return the request whose artifact the cache is offered: the first try, once; None if it was before."""
        row = self.trace_row(request)
        if row in self._made:
            return None
        self._made.add(row)
        return request if request.row == row else self._firsts[row]
