"""The clock: SimPy's event loop, with exact absolute times and a written order of same-time events."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import repeat
from math import inf
from typing import Any

import simpy
from simpy.core import EmptySchedule

from sim.core.culprit import caller
from sim.core.errors import SimulationError

COMPLETION, INSERTION, CONTROL, ARRIVAL, DISPATCH, LAST = 0, 1, 3, 4, 5, 6
"""The order at one instant: work ends, artifacts become visible, controllers act, requests come, what was formed of
them sets out, and last the run ends. SimPy's own events (a process that sleeps, is started or interrupted) come in
the controllers' turn."""

URGENT = CONTROL - 1
"""Where SimPy asks for a start or an interruption before all else of its turn."""

FEW = 1_000
"""Calls that may be asked for at the very instant of their time, between two looks at whether the clock advances."""

Entry = tuple[float, int, int, Callable[[Any], None], Any]
"""A call that waits: its time, its order at that instant, a number that grew with the asking, itself, its argument."""

NEVER: Entry = (inf, LAST + 1, 0, print, None)
"""After every call that there is."""


class Clock(simpy.Environment):  # type: ignore[misc]
    """SimPy's environment, with calls at absolute times beside its own events. ``schedule`` adds a delay to the
    present, which moves an arrival time by a rounding error; ``at`` takes the time itself. A call waits in SimPy's
    queue as it is.

    Attributes:
        overdue: called when very many calls of one instant were asked for at that instant; returns how many more there
            may be, or raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fed: Iterator[Entry] = iter(())
        self._due = NEVER
        self.overdue: Callable[[], int] = lambda: FEW
        self._number = self._eid.__next__
        self._instant, self._calls = -inf, 0
        self._allowed: float = FEW

    def at(self, time_s: float, order: int, call: Callable[[Any], None], arg: Any = None) -> Entry:
        """Have ``call(arg)`` made at ``time_s``, in its ``order`` among the events of that instant, of equals in the
        order of asking. Returns what ``cancel`` takes back. Raises SimulationError for a time that is past or NaN."""
        if not time_s > self._now:
            self._calls = calls = self._calls + 1
            if calls > self._allowed or time_s != self._now:
                self._look(time_s)
        entry = (time_s, order, self._number(), call, arg)
        heappush(self._queue, entry)
        return entry

    def _look(self, time_s: float) -> None:
        if time_s != self._now:
            raise SimulationError(
                f"{caller()} asked for a call at {time_s} s, and the clock stands at {self._now} s; expected a time "
                "that is not past"
            )
        more, self._allowed = FEW, inf  # where a process is at fault, SimPy asks for one more call to end it
        if time_s == self._instant:
            more = self.overdue()
        self._instant, self._allowed = time_s, self._calls + more

    def cancel(self, entry: Entry) -> bool:
        """Take back a call that was asked for; False where it was made, or taken back, before."""
        queue = self._queue
        place = next((place for place, each in enumerate(queue) if each is entry), None)
        if place is None:
            return False
        queue[place] = queue[-1]
        queue.pop()
        heapify(queue)
        return True

    def feed(self, times: Iterable[float], order: int, call: Callable[[Any], None], args: Iterable[Any]) -> None:
        """Have ``call(arg)`` made at each of ``times``, which do not fall: as ``at``, asked for each as the one before
        it is made. They do not wait in the queue, whose length is what a call in it costs."""
        self._fed = zip(times, repeat(order), self._eid, repeat(call), args, strict=False)
        self._due = next(self._fed, NEVER)

    def peek(self) -> float:
        """The time of the next call; infinity where there is none."""
        return float(min(super().peek(), self._due[0]))

    def schedule(self, event: simpy.Event, priority: int = simpy.events.NORMAL, delay: float = 0) -> None:
        """Have an event processed in the controllers' turn; it waits as a call, so that the loop need not tell them
        apart."""
        order, time_s = CONTROL if priority == simpy.events.NORMAL else URGENT, self._now + delay
        if not self._now < time_s < inf:
            if time_s == inf:
                return  # never
            self._calls += 1
            if self._calls > self._allowed or time_s != self._now:
                self._look(time_s)
        heappush(self._queue, (time_s, order, next(self._eid), _process, event))

    def sleep_until(self, time_s: float) -> simpy.Event:
        """An event at ``time_s`` exactly, for a process to yield: in the controllers' turn."""
        event = self.event()
        if time_s != inf:
            self.at(time_s, URGENT, event.succeed)
        return event

    def stop(self) -> None:
        """Nothing that is still to come happens: actors that sleep end with this."""
        self._queue.clear()
        self._fed, self._due = iter(()), NEVER

    def step(self) -> None:
        if self._queue and self._queue[0] < self._due:
            self._now, _, _, call, arg = heappop(self._queue)
        elif self._due is not NEVER:
            self._now, _, _, call, arg = self._due
            self._due = next(self._fed, NEVER)
        else:
            raise EmptySchedule
        call(arg)

    def run(self, until: Any = None) -> Any:
        """See simpy.Environment.run. Without ``until`` all is done that there is, without calling ``step`` for each."""
        if until is not None:
            return super().run(until)
        queue = self._queue
        while True:  # with a condition here CPython 3.11 would never specialise what the loop does
            if queue and queue[0] < self._due:
                self._now, _, _, call, arg = heappop(queue)
            elif self._due is not NEVER:
                self._now, _, _, call, arg = self._due
                self._due = next(self._fed, NEVER)
            else:
                return None
            call(arg)


def _process(event: simpy.Event) -> None:
    """What SimPy does with an event whose time has come (simpy.Environment.step): a failure that nobody takes up ends
    the run."""
    callbacks, event.callbacks = event.callbacks, None
    for callback in callbacks:
        callback(event)
    if not event._ok and not hasattr(event, "_defused"):
        raise event._value  # itself: SimPy makes a copy of it, which not every exception can be made into
