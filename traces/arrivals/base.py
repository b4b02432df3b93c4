"""Arrival processes and their schedules, of an open or a closed loop."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from mezzotint.settings.assumption import Assumption
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import check_number

Times = npt.NDArray[np.float64]

LAST_S = 2.0**33
"""Latest arrival, 272 years: neighbouring floats below 2^33 s differ by at most 2^(32 - 52) s = 0.95 us."""

MAX_RPM = 6e7
"""Highest rate, a request per microsecond; the times of faster arrivals would soon coincide."""

Rpm = Annotated[float, Ge(1e-9), Le(MAX_RPM)]
"""Requests per minute."""

Span = Annotated[float, Ge(0), Le(LAST_S)]
"""Seconds, 0 or more."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Arrival times of the requests of a trace of n rows, in row order.

    Attributes:
        times: (m,) seconds, never falling. m == n is an open loop: request i arrives at times[i]. With m < n the loop
            is closed: each later request arrives `think_s` after an earlier one ends.
        think_s: seconds between the end of a request and the next arrival in a closed loop: of all, or (n,) of the
            request in each row before it arrives.
        rows: number of rows that arrive, the first ones; None is all. A generator that stops by its own clock takes
            fewer.
        assumptions: what the arrivals rest on and no trace says, for the summary.

    Raises TraceError: `times` is not one row of seconds that never fall and end before `LAST_S`, or `think_s` is < 0.
    """

    times: Times
    think_s: float | Times = 0.0
    rows: int | None = None
    assumptions: tuple[Assumption, ...] = ()

    def __post_init__(self) -> None:
        times = self.times
        if not isinstance(times, np.ndarray) or times.dtype.kind not in "fiu":
            found = times.dtype if isinstance(times, np.ndarray) else type(times).__name__
            raise TraceError(f"arrival times: expected an array of seconds, found {found}; correct the process")
        if times.ndim != 1 or not (times >= 0).all() or (times[1:] < times[:-1]).any():
            raise TraceError(
                "arrival times: expected one row of seconds, 0 or later, that never fall; correct the process"
            )
        if times.size:
            check_last(float(times[-1]))
        for bound in (np.min, np.max):
            check_number("arrivals", "think_s", float(bound(self.think_s)), min_value=0.0, max_value=LAST_S)

    def with_times_moved(self, move: Callable[[Times], Times]) -> "Schedule":
        """Return the schedule with ``move(times)``, the same numbers in other memory, which are not checked again."""
        made = copy(self)
        object.__setattr__(made, "times", move(self.times))
        return made


def check_last(seconds: float) -> None:
    """Raise TraceError for a last arrival so late that a float cannot hold microseconds."""
    if not seconds < LAST_S:
        raise TraceError(
            f"arrivals: the last request arrives at {seconds:.3g} s, expected before {LAST_S:.2g} s (272 years), after"
            " which floats are coarser than a microsecond; raise the rate (rate_rpm), think less, or take fewer"
            " requests"
        )


@runtime_checkable
class Arrivals(Protocol):
    """Arrival process of the requests of a trace."""

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        """Return the schedule of a trace whose own arrivals are `own_clock_s`, (n,) seconds, never falling.

        `rng` is the random stream of the process.
        """
