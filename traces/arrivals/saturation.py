"""More requests than can be served: what is measured is the highest throughput."""

from dataclasses import dataclass

import numpy as np

from traces.arrivals.base import Schedule, Span, Times


@dataclass(frozen=True, slots=True)
class Saturation:
    """A request every `gap_s` seconds, so soon after one another that no GPU is ever without work.

    With a gap of 0 all are there at the start, and what a cache finds for them is what it was filled with before. A
    gap lets images enter the cache while requests still come; it may not be longer than the cluster takes for one,
    which the run's `gpu.busy_fraction` shows.

    Source: MoDM's throughput experiments ("enough requests to keep the system busy", section 6); its artifact, on
    several nodes, hands them out 1 s apart, of the Vanilla system all at once.

    Args:
        gap_s: seconds from one request to the next.
    """

    gap_s: Span = 0.0

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(self.gap_s * np.arange(len(own_clock_s), dtype=np.float64))
