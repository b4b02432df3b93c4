"""The clock: SimPy's event loop, with exact absolute times and a written order of same-time events."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy

COMPLETION, INSERTION, CONTROL, ARRIVAL, DISPATCH, LAST = 0, 1, 3, 4, 5, 6
"""The order at one instant: work ends, artifacts become visible, controllers act, requests come, what was formed of
them sets out, and last the run ends. SimPy's own events (a process that sleeps, is started or interrupted) come in
the controllers' turn."""

URGENT = CONTROL - 1
"""Where SimPy asks for a start or an interruption before all else of its turn."""


class Clock(simpy.Environment):  # type: ignore[misc]
    """SimPy's environment, with calls at absolute times beside its own events.

    ``schedule`` adds a delay to the present, which moves an arrival time by a rounding error and with it the
    order of events that were meant to be simultaneous; ``at`` takes the time itself. A call waits in SimPy's queue
    as it is, without an event around it.
    """

    def at(self, time_s: float, order: int, call: Callable[[Any], None], arg: Any = None) -> None:
        """Have ``call(arg)`` made at ``time_s``, in its ``order`` among the events of that instant.

        Calls of the same instant and order are made in the order of asking.
        """
        heappush(self._queue, (time_s, order, next(self._eid), call, arg))

    def schedule(self, event: simpy.Event, priority: int = simpy.events.NORMAL, delay: float = 0) -> None:
        """See simpy.Environment.schedule: in the controllers' turn of the instant, whatever SimPy calls normal."""
        order = CONTROL if priority == simpy.events.NORMAL else URGENT
        heappush(self._queue, (self._now + delay, order, next(self._eid), event))

    def sleep_until(self, time_s: float) -> simpy.Event:
        """An event at ``time_s`` exactly, for a process to yield: in the controllers' turn."""
        event = self.event()
        self.at(time_s, URGENT, event.succeed)
        return event

    def stop(self) -> None:
        """Nothing that is still to come happens: actors that sleep end with this."""
        self._queue.clear()

    def step(self) -> None:
        """Make the next call, or process SimPy's next event. Raises EmptySchedule where there is neither."""
        queue = self._queue
        if not queue or len(queue[0]) == 4:
            self._simpys()
            return
        self._now, _, _, call, arg = heappop(queue)
        call(arg)

    def _simpys(self) -> None:
        """Process the next event, which is SimPy's own.

        SimPy raises a copy of what an actor raised, made from its ``args``, which not every class of exception can be
        made from; here it is raised itself.
        """
        event = self._queue[0][3] if self._queue else None
        try:
            super().step()
        except Exception:
            if event is not None and not event._ok and not event.defused:
                raise event._value from None
            raise

    def run(self, until: Any = None) -> Any:
        """See simpy.Environment.run. Without ``until`` all is done that there is, without calling ``step`` for each."""
        if until is not None:
            return super().run(until)
        queue = self._queue
        while queue:
            if len(queue[0]) == 4:
                self._simpys()
            else:
                self._now, _, _, call, arg = heappop(queue)
                call(arg)
        return None
