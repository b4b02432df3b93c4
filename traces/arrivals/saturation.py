"""Saturating arrivals, to measure the highest throughput."""

from dataclasses import dataclass

import numpy as np

from mezzotint.traces.arrivals.base import Schedule, Span, Times


@dataclass(frozen=True, slots=True)
class Saturation:
    """A request every `gap_s` seconds, often enough to keep every GPU busy.

    With a gap of 0 all requests arrive at the start, so they hit only what the cache was filled with before. A gap lets
    new images enter the cache while requests arrive. It has to be shorter than the cluster's time per request; check
    `gpu.busy_fraction` of the run.

    Source: MoDM's throughput experiments ("enough requests to keep the system busy", section 6). On several nodes its
    artifact sends them 1 s apart, and to the Vanilla system all at once.

    Args:
        gap_s: seconds from one request to the next.
    """

    gap_s: Span = 0.0

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(self.gap_s * np.arange(len(own_clock_s), dtype=np.float64))
