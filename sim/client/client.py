"""A client that holds requests back, gives up, retries and hedges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count, Factor, Seconds, Share, SomeSeconds, Tries
from mezzotint.sim.client.in_flight import InFlight
from mezzotint.sim.core.clock import CONTROL, Entry
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.core.streams import CLIENT
from mezzotint.sim.metrics.request_columns import TRY
from mezzotint.sim.protocols import Cancellation, Client, RequestColumn, Run, Sender

ANSWERED_ELSEWHERE = "another try of the request was answered first"


@dataclass(slots=True)
class ClientRequest:
    """A request as its client sees it, with all its tries; times in seconds, NaN before they happen.

    Attributes:
        due_s: when its arrivals had it due.
        standalone_s: its standalone latency.
        sent_s: when its first try was sent.
        answered_s: when it was answered.
        ended_s: when it was answered or given up for good.
        tries, hedges: tries sent, and those of them that were hedges.
        calls: the tries that are out, each with the calls of its patience and of its hedge.
        is_resend_due: True while a further try is due later.
    """

    due_s: float
    standalone_s: float
    sent_s: float = nan
    answered_s: float = nan
    ended_s: float = nan
    tries: int = 0
    hedges: int = 0
    calls: dict[Request, list[Entry]] = field(default_factory=dict)
    is_resend_due: bool = False


@dataclass(slots=True)
class Impatient(Client):
    """Send requests as they are due, at most ``max_in_flight`` at once; give up, retry and hedge.

    Without any limit a run is that without a client, to the byte (test_client_without_limits_changes_nothing).

    Args:
        max_in_flight: requests that may be out at once; the others wait at the client. Engines' benchmarks send so
            (``--max-concurrency``): what they measure is then no open loop. None is no limit.
        timeout_s: seconds from sending a try to giving it up; None waits for ever.
        patience: ``constant``, or ``exponential`` with the mean ``timeout_s``.
        cancellation: what the server stops of a try that was given up (mezzotint.sim.protocols.Client).
        max_retries: further tries of a request whose try was given up, discarded or failed.
        backoff_s, backoff_factor, max_backoff_s: seconds before the first retry, their growth with each, their bound.
        jitter: ``full`` draws each back-off uniformly from 0 to it; ``none`` takes it whole.
        retry_budget: retries for each request sent, on average; None is no bound. A retry beyond it is not sent.
            (Finagle's budget, 0.2 by default, without its reserve.)
        hedge_after_s: seconds after which a second try is sent beside the first; the first answer counts, the other
            try is given up. None sends none. (Dean and Barroso, "The Tail at Scale", CACM 2013.)

    Source of back-off and jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Raises ConfigError for a cancellation without anything to cancel.
    """

    max_in_flight: Count | None = None
    timeout_s: SomeSeconds | None = None
    patience: Literal["constant", "exponential"] = "constant"
    cancellation: Cancellation = "never"
    max_retries: Tries = 0
    backoff_s: Seconds = 1.0
    backoff_factor: Factor = 2.0
    max_backoff_s: Seconds = 60.0
    jitter: Literal["full", "none"] = "full"
    retry_budget: Share | None = None
    hedge_after_s: SomeSeconds | None = None
    max_tries: int = field(init=False)
    gives_up: bool = field(init=False)
    _run: Run = field(init=False, repr=False)
    _sender: Sender = field(init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)
    _number: RequestColumn | None = field(init=False, default=None, repr=False)
    _requests: dict[int, ClientRequest] = field(init=False, default_factory=dict, repr=False)
    """Each request that was due so far, by trace row."""
    _in_flight: InFlight = field(init=False, repr=False)
    _credit: float = field(init=False, default=0.0, repr=False)
    """Retries that the budget still allows."""

    def __post_init__(self) -> None:
        self.max_tries = 1 + self.max_retries + (self.hedge_after_s is not None)
        self.gives_up = self.timeout_s is not None or self.hedge_after_s is not None
        if self.cancellation != "never" and not self.gives_up:
            raise ConfigError(
                f"client.cancellation: found {self.cancellation}, and nothing is given up; set client.timeout_s or "
                "client.hedge_after_s, or client.cancellation=never"
            )
        if self.patience != "constant" and self.timeout_s is None:
            raise ConfigError(f"client.patience: found {self.patience} without a mean; set client.timeout_s")
        if self.retry_budget is not None and not self.max_retries:
            raise ConfigError("client.retry_budget: found one without retries; set client.max_retries, or leave it out")

    def bind(self, run: Run, sender: Sender) -> None:
        self._run, self._sender = run, sender
        self._in_flight = InFlight(run.clock, self.max_in_flight, self._begin)
        self._rng = run.rng(CLIENT)
        if self.max_tries > 1:
            self._number = run.add_column(TRY, int)
        if self.max_in_flight is not None:
            run.gauge("held_back", lambda _: len(self._in_flight.held))
        if self.timeout_s is not None:
            given = {"timeout [s]": self.timeout_s, "patience": self.patience, "cancellation": self.cancellation}
            run.assume("clients give up", given, "a setting of client=")

    # -- requests ------------------------------------------------------------------------------------------------------

    def due(self, row: int, now_s: float) -> None:
        self._requests[row] = ClientRequest(now_s, float(self._run.workload.standalone.total_s[row]))
        self._in_flight.add(row)

    def _begin(self, row: int) -> None:
        """Send the first try of the request in trace row ``row``."""
        if self.retry_budget is not None:
            self._credit += self.retry_budget
        self._requests[row].sent_s = self._run.clock._now
        self._send(row)

    def _conclude(self, row: int) -> None:
        """End the request in ``row`` for its client: another may be sent in its place."""
        self._requests[row].ended_s = self._run.clock._now
        self._in_flight.remove()
        self._sender.send_next()

    # -- tries ---------------------------------------------------------------------------------------------------------

    def _send(self, row: int) -> None:
        """Send the next try of the request in trace row ``row``."""
        client_request = self._requests[row]
        client_request.tries += 1
        client_request.is_resend_due = False
        request, clock = self._sender.make(row, client_request.tries), self._run.clock
        if self._number is not None:
            self._number[request.row] = client_request.tries
        # Before it is sent, since it may end at once. CONTROL: an answer of the same instant comes first
        # (test_answer_at_the_timeout_counts).
        calls = client_request.calls[request] = []
        if self.timeout_s is not None:
            wait_s = self.timeout_s if self.patience == "constant" else float(self._rng.exponential(self.timeout_s))
            calls.append(clock.at(clock._now + wait_s, CONTROL, self._give_up, request))
        if self.hedge_after_s is not None and client_request.tries == 1:
            calls.append(clock.at(clock._now + self.hedge_after_s, CONTROL, self._hedge, request))
        self._sender.send(request)

    def _give_up(self, request: Request) -> None:
        waited_s = self._run.clock._now - request.arrival_s
        self._sender.give_up(request, f"its client gave up after {waited_s:.6g} s")

    def _hedge(self, request: Request) -> None:
        row = self._sender.trace_row(request)
        client_request = self._requests[row]
        client_request.hedges += 1
        client_request.is_resend_due = True
        self._sender.send_at(self._run.clock._now, row)

    def resend(self, row: int) -> None:
        self._send(row)

    def ended(self, request: Request, outcome: int, now_s: float) -> None:
        row = self._sender.trace_row(request)
        client_request = self._requests[row]
        for call in client_request.calls.pop(request, ()):
            self._run.clock.cancel(call)
        if isfinite(client_request.ended_s):
            return  # the other try of a hedge, given up
        if outcome == COMPLETED:
            client_request.answered_s = now_s
            self._conclude(row)
            for other in list(client_request.calls):
                self._sender.give_up(other, ANSWERED_ELSEWHERE)
        elif client_request.calls or client_request.is_resend_due:
            return  # another try is out
        elif self._retries(client_request):
            client_request.is_resend_due = True
            self._sender.send_at(now_s + self._wait_s(client_request), row)
        else:
            self._conclude(row)

    def _retries(self, client_request: ClientRequest) -> bool:
        """Return True if another try may be sent, and take it from the budget."""
        if client_request.tries - client_request.hedges > self.max_retries:
            return False
        if self.retry_budget is None:
            return True
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True

    def _wait_s(self, client_request: ClientRequest) -> float:
        retries = client_request.tries - client_request.hedges - 1
        wait_s = min(self.backoff_s * self.backoff_factor**retries, self.max_backoff_s)
        return wait_s if self.jitter == "none" else float(self._rng.uniform(0.0, wait_s))

    def seen(self) -> Mapping[str, NDArray[np.float64]]:
        names = ("due_s", "sent_s", "answered_s", "tries", "hedges", "standalone_s")
        return {name: np.array([getattr(each, name) for each in self._requests.values()], float) for name in names}
