"""The clock: SimPy's event loop, with exact absolute times and a written order of same-time events."""

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy

COMPLETION, INSERTION, CONTROL, ARRIVAL = range(4)
"""The order at one instant: work ends, artifacts become visible, controllers act, requests come."""


class Call:
    """One call that is due: the least that SimPy's loop asks of an event."""

    __slots__ = ("_ok", "arg", "callbacks")

    def __init__(self, call: Callable[[Any], None], arg: Any) -> None:
        self.callbacks: tuple[Callable[[Any], None], ...] | None = (call,)
        self.arg = arg
        self._ok = True


class Clock(simpy.Environment):  # type: ignore[misc]
    """SimPy's environment, with calls at absolute times.

    ``schedule`` adds a delay to the present, which moves an arrival time by a rounding error and with it the
    order of events that were meant to be simultaneous; ``at`` takes the time itself.
    """

    def at(self, time_s: float, order: int, call: Callable[[Call], None], arg: Any = None) -> None:
        """Have ``call(event)`` made at ``time_s``, in its ``order`` among the events of that instant.

        ``event.arg`` is ``arg``. Calls of the same instant and order are made in the order of asking.
        """
        heappush(self._queue, (time_s, order, next(self._eid), Call(call, arg)))
