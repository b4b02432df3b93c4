"""Clients: when a request is sent, how long its answer is waited for, and whether it is sent again."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols.run import Run

Cancellation = Literal["never", "queued", "step"]
"""What the server stops of a request that its client has given up."""


class Sender(Protocol):
    """The run, as a client sees it: requests go out by it, one or several tries each.

    A try is a request of the server. Each has a row of its own (Request.row); the row of a first try is that of the
    trace.
    """

    def make(self, row: int, number: int = 1) -> Request:
        """Return try ``number``, from 1, of the request in trace row ``row``, to be sent now."""

    def send(self, request: Request) -> None:
        """Send ``request`` (``make``). It may end before this returns. Later tries take the plan of the first."""

    def refuse(self, request: Request, reason: str) -> None:
        """End ``request`` (``make``) as discarded: it arrives, and no front end plans it."""

    def send_at(self, time_s: float, row: int) -> None:
        """Have Client.resend called at ``time_s``, to send a further try of the request in trace row ``row``."""

    def give_up(self, request: Request, reason: str) -> None:
        """End ``request``, which is in the system, as failed for its client. The server goes on by ``cancellation``."""

    def trace_row(self, request: Request) -> int:
        """Return the trace row of the request of which ``request`` is a try."""

    def send_next(self) -> None:
        """In a closed loop, have the next request of the trace fall due after the think time."""


@runtime_checkable
class Client(Protocol):
    """The client: sends the requests of a trace (``client=``).

    Attributes:
        max_tries: tries of a request at most; each has a row of its own. It is read before ``bind``.
        gives_up: True if it may give a try up.
        cancellation: what the server stops of a request that was given up. ``never``: nothing, it serves it in vain.
            ``queued``: a request that waits is dropped when its turn comes, one that runs is run to its end. ``step``:
            that, and a request that runs stops at its next step boundary.
    """

    __slots__ = ()
    max_tries: Count = 1
    gives_up: bool = True
    cancellation: Cancellation = "never"

    @abstractmethod
    def bind(self, run: Run, sender: Sender) -> None: ...

    @abstractmethod
    def due(self, row: int, now_s: float) -> None:
        """Send the request in trace row ``row``, which its arrivals have due now (Sender.send), or hold it back."""

    def resend(self, row: int) -> None:
        """Send a further try, which is due now (Sender.send_at)."""
        return

    @abstractmethod
    def ended(self, request: Request, outcome: int, now_s: float) -> None:
        """Take note that the try ``request`` ended, given up or not."""

    def seen(self) -> Mapping[str, NDArray[np.float64]]:
        """Return what clients saw of each request that was due, (n,) each, for the summary's ``client``.

        In this order: ``due_s``, ``sent_s`` and ``answered_s``, the instants at which it was due, first sent and
        answered (NaN if it was not); ``tries`` and ``hedges``, the tries sent and those sent beside another;
        ``standalone_s``, its standalone latency. A client of streaming sessions returns what their viewers saw.
        """
        return {}
