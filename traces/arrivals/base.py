"""What an arrival process gives: a schedule, of an open or a closed loop."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from traces.error import TraceError
from traces.table.validation import check_number

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the requests of a trace of n rows arrive, in the order of its rows.

    Attributes:
        times: (m,) seconds, never falling. m == n is an open loop: request i arrives at times[i]. With
            m < n the loop is closed: the first m arrive at `times`, and each later one arrives
            `think_s` after some earlier request ends.
        think_s: seconds between the end of a request and the next arrival in a closed loop.

    Raises:
        TraceError: `times` is not one row of finite seconds that never fall, or `think_s` is
            negative or not finite.
    """

    times: Times
    think_s: float = 0.0

    def __post_init__(self) -> None:
        times = self.times
        if times.ndim != 1 or not np.isfinite(times).all() or (times < 0).any() or (np.diff(times) < 0).any():
            raise TraceError("arrival times must be one row of finite seconds, 0 or later, that never fall")
        check_number("arrivals", "think_s", self.think_s, least=0.0)


@runtime_checkable
class Arrivals(Protocol):
    """Decides when the requests of a trace arrive."""

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        """Times for a trace whose own arrivals are `own_clock_s`, (n,) seconds, never falling.

        Args:
            own_clock_s: the trace's own arrivals.
            rng: the stream for whatever is random in the process.
        """
        ...
