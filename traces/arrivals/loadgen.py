"""Arrivals of MLPerf's load generator, regenerated from the seed in a submission's log."""

from dataclasses import dataclass

import numpy as np

from mezzotint.settings.ranges import Count, Seconds, Seed
from mezzotint.traces.arrivals.base import Rpm, Schedule, Times
from mezzotint.traces.error import TraceError

MAX_SPAN_S = 1e9
"""Longest span of the arrivals, thirty years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGen:
    """Poisson process of MLPerf Inference's server scenario, draw for draw.

    Gaps come from a Mersenne Twister seeded with `seed` mod 2^32. Two draws of 32 bits make u = (g0 + g1 2^32) / 2^64.
    The gap is -ln(1 - u) / rate, cut to whole nanoseconds. The first request comes at 0. Requests are issued until both
    `least_s` and `least_requests` are reached; later rows of the trace do not arrive.

    Source: published logs of SDXL server submissions (MLPerf Inference v4.1 and v5.1), whose scheduled rates are
    reproduced to all printed digits.

    Args:
        seed, least_requests, least_s: the log's `schedule_rng_seed`, `min_query_count` and `min_duration` (seconds).
        rate_rpm: requests per minute; 60 times the log's `target_qps`.

    Raises TraceError at scheduling, if the trace has too few rows.
    """

    seed: Seed
    rate_rpm: Rpm
    least_requests: Count = 100
    least_s: Seconds = 600.0

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        rows = len(own_clock_s)
        twister = np.random.RandomState(self.seed % 2**32)  # the load generator's own kind
        uniform = np.frombuffer(twister.bytes(8 * max(rows - 1, 0)), "<u8").astype(np.float64) / 2.0**64
        uniform = np.minimum(uniform, np.nextafter(1.0, 0.0))  # the largest round to 1
        # Cut like the generator's conversion to integers, or later gaps drift (test_loadgen_gaps_match_mt19937).
        gaps = np.floor(-np.log(1.0 - uniform) / (self.rate_rpm / 60.0) * 1e9)
        if not gaps.sum() < MAX_SPAN_S * 1e9:
            raise TraceError(
                f"arrivals.rate_rpm: found {self.rate_rpm:g}, at which {rows:,} requests take more than "
                f"{MAX_SPAN_S:g} s; raise it"
            )
        gaps_ns = gaps.astype(np.int64)
        # Summed as integers: the generator's times have no rounding error of their own.
        times_ns = np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps_ns)])
        # The request that reaches the duration is still issued
        # (test_loadgen_stops_at_its_minimum_requests_and_duration).
        last = max(int(np.searchsorted(times_ns, self.least_s * 1e9)), self.least_requests - 1)
        if last >= rows:
            expected = max(self.least_requests, self.least_s * self.rate_rpm / 60.0)
            raise TraceError(
                f"arrivals: the load generator issues about {expected:,.0f} requests at {self.rate_rpm:g} a minute, "
                f"the trace has {rows:,}; take a longer one (trace.requests={round(1.2 * expected) + 100})"
            )
        return Schedule(times_ns[: last + 1] / 1e9, rows=last + 1)
