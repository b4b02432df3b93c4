"""What an arrival process gives: a schedule, of an open or a closed loop."""

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from traces.error import TraceError
from traces.table.validation import check_number

Times = npt.NDArray[np.float64]

LAST_S = 2.0**33
"""Before it two neighbouring floats lie less than a microsecond apart: a float has 53 bits, so those below 2^33 are
2^(32 - 52) s = 0.95 us apart. It is 272 years."""

MAX_RPM = 6e7
"""A request each microsecond in the mean; faster than that, arrivals are not told apart for long."""

Rpm = Annotated[float, Ge(1e-9), Le(MAX_RPM)]
"""Requests per minute."""

Span = Annotated[float, Ge(0), Le(LAST_S)]
"""Seconds, none or more."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the requests of a trace of n rows arrive, in the order of its rows.

    Attributes:
        times: (m,) seconds, never falling. m == n is an open loop: request i arrives at times[i]. With m < n the loop
            is closed: each later request arrives `think_s` after some earlier one ends.
        think_s: seconds between the end of a request and the next arrival in a closed loop.
        rows: rows of the trace that arrive at all, of its head; None is all. A generator that stops by its own clock
            takes fewer.

    Raises TraceError: `times` is not one row of seconds that never fall and end before `LAST_S`, or `think_s` is < 0.
    """

    times: Times
    think_s: float = 0.0
    rows: int | None = None

    def __post_init__(self) -> None:
        times = self.times
        if times.ndim != 1 or not (times >= 0).all() or (times[1:] < times[:-1]).any():
            raise TraceError("arrival times must be one row of seconds, 0 or later, that never fall")
        if times.size:
            check_last("arrivals: the last request arrives", float(times[-1]))
        check_number("arrivals", "think_s", self.think_s, min_value=0.0, max_value=LAST_S)


def check_last(what: str, seconds: float) -> None:
    """Refuse times so late that a float no longer tells microseconds apart. Raises TraceError."""
    if not seconds < LAST_S:
        raise TraceError(
            f"{what} at {seconds:.3g} s, expected before {LAST_S:.2g} s (272 years), from where on floats are coarser"
            " than a microsecond; raise the rate (rate_rpm), think less, or take fewer requests"
        )


@runtime_checkable
class Arrivals(Protocol):
    """Decides when the requests of a trace arrive."""

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        """Times for a trace whose own arrivals are `own_clock_s`, (n,) seconds, never falling.

        `rng` is the stream for whatever is random in the process.
        """
