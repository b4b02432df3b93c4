"""The clock: SimPy's event loop, with exact absolute times and a written order of same-time events."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import heappop, heappush
from itertools import repeat
from math import inf
from typing import Any

import numpy as np
import simpy
from simpy.core import EmptySchedule

from mezzotint.sim.core.culprit import caller, is_ours
from mezzotint.sim.core.errors import SimulationError

# INSERTION before ARRIVAL (test_artifact_is_visible_to_an_arrival_at_its_completion_time), CONTROL before ARRIVAL
# (test_sample_precedes_the_arrivals_of_its_instant), DISPATCH after it
# (test_batch_takes_the_service_time_of_its_workers_kind).
COMPLETION, INSERTION, CONTROL, ARRIVAL, DISPATCH, LAST = 0, 1, 3, 4, 5, 6
"""The order of same-time calls: work ends, artifacts become visible, controllers act, requests arrive, batches start,
the run ends. SimPy's own events (processes) come in the controllers' turn."""

URGENT = CONTROL - 1
"""The order of SimPy's urgent events (start or interruption of a process): first in the controllers' turn."""

MAX_SAME_TIME_CALLS = 1_000
"""Calls that may be scheduled for the present instant before a check that the clock advances."""

SAME_TIME_S = 1e-6
"""A call at most this many seconds ahead counts as one for the present instant: waits of nanoseconds never end."""

STANDS_S = 1e-3
"""The clock stands still if it has advanced by less than this many seconds since such a check."""

Entry = tuple[float, int, int, Callable[[Any], None], Any]
"""A scheduled call: time, order at that instant, serial number, function, argument."""

NEVER: Entry = (inf, LAST + 1, 0, print, None)
"""An entry after all others."""


class Clock(simpy.Environment):  # type: ignore[misc]
    """SimPy's environment, with calls at absolute times (``at``) in SimPy's own queue.

    SimPy's delays are relative, which would move an arrival time by a rounding error.

    Attributes:
        overdue: called with the present instant when very many calls were scheduled for it; returns how many more are
            allowed, or raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrivals: Iterator[Entry] = iter(())
        self._next_arrival = NEVER
        self.overdue: Callable[[float], int] = lambda _: MAX_SAME_TIME_CALLS
        self._instant, self._calls = -inf, 0
        self._canceled: set[int] = set()
        self._max_calls: float = MAX_SAME_TIME_CALLS

    def at(self, time_s: float, order: int, call: Callable[[Any], None], arg: Any = None) -> Entry:
        """Schedule ``call(arg)`` at ``time_s``; same-time calls run by ``order``, then first scheduled, first run.

        Returns:
            The entry, for ``cancel``.

        Raises:
            SimulationError: ``time_s`` is past or NaN.
        """
        # Written so that NaN is caught by the same comparison.
        if not time_s - self._now > SAME_TIME_S:
            self._calls = calls = self._calls + 1
            if calls > self._max_calls or not time_s >= self._now:
                self._check_progress(time_s)
        entry = (time_s, order, next(self._eid), call, arg)
        heappush(self._queue, entry)
        return entry

    def _check_progress(self, time_s: float) -> None:
        now_s = self._now
        if not time_s >= now_s:
            raise SimulationError(
                f"{caller()} asked for a call at {time_s} s, and the clock stands at {now_s} s; expected a time "
                "that is not past"
            )
        more, self._max_calls = MAX_SAME_TIME_CALLS, inf  # SimPy schedules one more call to end a faulty process
        if now_s - self._instant < STANDS_S:
            more = self.overdue(self._instant)
        else:
            self._instant = now_s
        self._max_calls = self._calls + more

    def cancel(self, entry: Entry) -> bool:
        """Cancel a scheduled call; return False if it ran or was canceled before."""
        # Marked, and dropped when its turn comes: no search but for a call of the present instant.
        if entry[0] < self._now or entry[2] in self._canceled or (entry[0] == self._now and entry not in self._queue):
            return False
        self._canceled.add(entry[2])
        return True

    def feed(self, times: Iterable[float], order: int, call: Callable[[Any], None], args: Iterable[Any]) -> None:
        """Schedule ``call(arg)`` at each of the ascending ``times``, without filling the queue.

        The serial number of each is drawn when the one before it runs: it comes after what was scheduled by then.
        """
        self._arrivals = zip(times, repeat(order), self._eid, repeat(call), args, strict=False)
        self._next_arrival = next(self._arrivals, NEVER)

    def has_call_before(self, later: Entry) -> bool:
        """Return True if a call is still to come that was scheduled before ``later``.

        Calls of processes do not count: a process may go on for ever.
        """
        return any(
            serial < later[2] and order != URGENT and call is not _process and serial not in self._canceled
            for _, order, serial, call, _ in self._queue
        )

    def peek(self) -> float:
        """Return the time of the next call; infinity if there is none."""
        while self._queue and self._queue[0][2] in self._canceled:
            self._canceled.remove(heappop(self._queue)[2])
        return float(min(super().peek(), self._next_arrival[0]))

    def schedule(self, event: simpy.Event, priority: int = simpy.events.NORMAL, delay: float = 0) -> None:
        """Schedule a SimPy event in the controllers' turn, as a call like any other, which keeps the loop simple."""
        # A process acts as a controller does: after completions, before arrivals.
        order, time_s = CONTROL if priority == simpy.events.NORMAL else URGENT, self._now + delay
        if time_s != inf:  # else never
            Clock.at(self, time_s, order, _process, event)

    def sleep_until(self, time_s: float) -> simpy.Event:
        """Return an event at exactly ``time_s``, in the controllers' turn, for a process to yield."""
        event = self.event()
        if time_s != inf:
            # succeed() schedules the event itself, in the controllers' turn of the same instant.
            self.at(time_s, URGENT, event.succeed)
        return event

    def every(self, period_s: float, call: Callable[[float], None]) -> Generator[simpy.Event, Any, None]:
        """Call ``call(time_s)`` at the end of each period, in the controllers' turn; for Run.process."""
        time_s = 0.0
        while True:
            time_s += period_s
            yield self.sleep_until(time_s)
            call(time_s)

    def stop(self) -> None:
        """Drop all scheduled calls, which ends the run and its processes, for the engine alone."""
        if not is_ours(sys._getframe(1).f_globals["__name__"]):
            raise SimulationError(f"{caller()} stops the clock; it stops after the last request")
        self._queue.clear()
        self._canceled.clear()
        self._arrivals, self._next_arrival = iter(()), NEVER

    def step(self) -> None:
        # Entries compare by time, order and serial number, which is unique: functions are never compared.
        if self._queue and self._queue[0] < self._next_arrival:
            time_s, _, serial, call, arg = heappop(self._queue)
            if serial in self._canceled:
                self._canceled.remove(serial)
                return
        elif self._next_arrival is not NEVER:
            time_s, _, _, call, arg = self._next_arrival
            self._next_arrival = next(self._arrivals, NEVER)
        else:
            raise EmptySchedule
        self._now = time_s
        call(arg)

    def run(self, until: Any = None) -> Any:
        """Run to the end, or to ``until`` as simpy.Environment.run does; to the end is faster than ``step`` by step."""
        if until is not None:
            return super().run(until)
        queue, canceled = self._queue, self._canceled
        while True:  # a condition here keeps CPython 3.11 from specialising the loop
            if queue and queue[0] < self._next_arrival:
                time_s, _, serial, call, arg = heappop(queue)
                if canceled and serial in canceled:
                    canceled.remove(serial)
                    continue
                self._now = time_s
            elif self._next_arrival is not NEVER:
                self._now, _, _, call, arg = self._next_arrival
                self._next_arrival = next(self._arrivals, NEVER)
            else:
                return None
            call(arg)


class GuardedClock(Clock):
    """A clock that classes from outside the package schedule calls with: it names who schedules what is none."""

    def at(self, time_s: float, order: int, call: Callable[[Any], None], arg: Any = None) -> Entry:
        if type(time_s) is not float and isinstance(time_s, np.number):
            time_s = time_s.item()  # with float32 the clock would go on in float32
        if not (isinstance(time_s, (int, float)) and isinstance(order, int) and 0 <= order <= LAST and callable(call)):
            raise SimulationError(
                f"{caller()} schedules the call {call!r:.100} at {time_s!r} s in the order {order!r:.100}; expected "
                "Clock.at(time_s, order, call, arg) with a number, an order such as COMPLETION, and a function"
            )
        return Clock.at(self, time_s, order, call, arg)

    def schedule(self, event: simpy.Event, priority: int = simpy.events.NORMAL, delay: float = 0) -> None:
        Clock.schedule(self, event, priority, delay.item() if isinstance(delay, np.generic) else delay)


def _process(event: simpy.Event) -> None:
    """Process a due SimPy event as simpy.Environment.step does: a failure that nothing handles ends the run."""
    callbacks, event.callbacks = event.callbacks, None
    for callback in callbacks:
        callback(event)
    if not event.ok and not hasattr(event, "_defused"):
        raise event.value  # not a copy as in SimPy, since some exceptions cannot be copied
