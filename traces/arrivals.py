"""When requests arrive: the trace's own clock or a process put in its place."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from traces.error import TraceError
from traces.validation import check_count, check_number

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


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The trace's own clock, faster or slower.

    The first request keeps its own arrival; every gap after it is divided by `speedup`.

    Args:
        speedup: 2 makes the requests arrive twice as fast, 0.5 half as fast.

    Raises:
        TraceError: `speedup` is not a positive finite number.
    """

    speedup: float = 1.0

    def __post_init__(self) -> None:
        check_number("arrivals", "speedup", self.speedup, above=0.0)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        own = np.asarray(own_clock_s, np.float64)
        if self.speedup == 1.0:  # exact: (a - b) + b need not be a
            return Schedule(own.copy())
        first = own[:1]
        return Schedule(first + (own - first) / self.speedup)


@dataclass(frozen=True, slots=True)
class Poisson:
    """A homogeneous Poisson process: independent exponential gaps of mean 60 / `rate_rpm` seconds.

    Source: MoDM's latency and SLO experiments (section 6), of every system compared (its artifact's
    multi-node script).

    Args:
        rate_rpm: requests per minute.

    Raises:
        TraceError: `rate_rpm` is not a positive finite number.
    """

    rate_rpm: float

    def __post_init__(self) -> None:
        check_number("arrivals", "rate_rpm", self.rate_rpm, above=0.0)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(np.cumsum(rng.exponential(60.0 / self.rate_rpm, len(own_clock_s))))


@dataclass(frozen=True, slots=True)
class Ramp:
    """Deterministic gaps of 60 / r_i seconds at a rate r_i that climbs (or falls) over the n requests.

    Request 0 arrives at 0, request i + 1 a gap of 60 / r_i after request i. "linear": r_i goes from
    `start_rpm` to `end_rpm` in equal steps. "sigmoid": r_i = start + (end - start) * sigmoid(1.5 x_i)
    with x_i in equal steps from -2 to 6, so it starts a twentieth of the way up and levels off.

    Source: MoDM's increasing-rate experiment (Fig. 10), as its artifact computes it.

    Args:
        start_rpm, end_rpm: requests per minute.
        shape: "sigmoid" or "linear".

    Raises:
        TraceError: a rate is not a positive finite number, or `shape` is another word.
    """

    start_rpm: float
    end_rpm: float
    shape: Literal["linear", "sigmoid"] = "sigmoid"

    def __post_init__(self) -> None:
        check_number("arrivals", "start_rpm", self.start_rpm, above=0.0)
        check_number("arrivals", "end_rpm", self.end_rpm, above=0.0)
        if self.shape not in ("linear", "sigmoid"):
            raise TraceError(f"arrivals: shape={self.shape!r}, expected linear or sigmoid")

    def rates_rpm(self, count: int) -> Times:
        """The rate in force after each of `count` requests, (count,) requests per minute."""
        if self.shape == "linear":
            climbed = np.linspace(0.0, 1.0, count)
        else:
            climbed = 1.0 / (1.0 + np.exp(-1.5 * np.linspace(-2.0, 6.0, count)))
        return self.start_rpm + (self.end_rpm - self.start_rpm) * climbed

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        count = len(own_clock_s)
        gaps_s = 60.0 / self.rates_rpm(count)
        return Schedule(np.cumsum(np.concatenate([np.zeros(min(count, 1)), gaps_s[:-1]])))


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: `outstanding` requests at first, and a new one whenever one ends.

    Source: NIRVANA's evaluation sends each prompt when the one before it completes (section 7.1).

    Args:
        outstanding: requests in flight.
        think_s: seconds from the end of a request to the arrival that replaces it.

    Raises:
        TraceError: `outstanding` is not a whole number of 1 or more, or `think_s` is negative or
            not finite.
    """

    outstanding: int = 1
    think_s: float = 0.0

    def __post_init__(self) -> None:
        check_count("arrivals", "outstanding", self.outstanding)
        check_number("arrivals", "think_s", self.think_s, least=0.0)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(np.zeros(min(self.outstanding, len(own_clock_s))), self.think_s)
