"""Plausible grids of request rates for a figure whose rates are plotted and not printed.

A grid has evenly spaced rates. It ends where the paper's own system serves a stated share of the requests in time, and
starts at a stated fraction of that rate. All combinations of `ENDS`, `STARTS` and `POINTS` count alike.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean

Floats = NDArray[np.float64]

ENDS = tuple(round(0.99 - 0.049 * step, 3) for step in range(11))
"""Shares in time of the paper's system at the highest rate: from 0.99, its abstract's, down to half."""

STARTS = tuple(round(0.1 + 0.05 * step, 2) for step in range(9))
"""Lowest rate over the highest: from 0.1 (1 to 10) to 0.5 (1 to 2)."""

POINTS = tuple(range(4, 11))
"""Rates of a grid; its lower half is the first ``points // 2``."""


def by_rate(runs: Runs) -> dict[float, list[Finished]]:
    """Group the runs of a sweep by requests per minute, ascending."""
    at = defaultdict[float, list[Finished]](list)
    for run in runs:
        at[float(run.point.choices["arrivals.rate_rpm"])].append(run)
    return dict(sorted(at.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Share of the requests in time at the simulated rates, ascending; linear between them."""

    rates: Floats
    shares: Floats

    @classmethod
    def of(cls, runs: Runs, slo: str) -> "Curve":
        """Return the curve of one system's runs, averaged over the seeds."""
        at = by_rate(runs)
        shares = [mean([1 - run.number("slo", slo, "violation_rate") for run in seeds]) for seeds in at.values()]
        return cls(np.array([*at]), np.array(shares))

    def at(self, rates: Floats) -> Floats:
        """Return the shares at ``rates``; beyond the simulated ones, the share at the nearest."""
        return np.interp(rates, self.rates, self.shares)


def grids(curve: Curve, points: int, ends: Sequence[float] = ENDS, starts: Sequence[float] = STARTS) -> Floats:
    """Return the grids of ``points`` rates, a row for each end and start, the starts varying fastest.

    ``curve`` is that of the paper's own system, which sets the highest rates.
    """
    highest = np.repeat([falls_below(curve.rates, curve.shares[None], share)[0] for share in ends], len(starts))
    if not np.isfinite(highest).all():
        raise Unmeasured(
            f"the share in time from {curve.rates[0]:g}/min to {curve.rates[-1]:g}/min does not fall from "
            f"{max(ends):.0%} to {min(ends):.0%}"
        )
    return np.linspace(np.tile(starts, len(ends)) * highest, highest, points, axis=1)


def falls_below(rates: Floats, shares: Floats, limit: float) -> Floats:
    """Return the rate at which each row of ``shares`` first falls below ``limit``, linear between two rates.

    Args:
        rates: ascending, for all rows together or a row for each.
        shares: a row for each curve, a column for each rate.

    Returns:
        A rate for each row; -inf if its share is below the limit at the lowest rate, inf if it is at none.
    """
    rates = np.broadcast_to(rates, shares.shape)
    below = shares < limit
    after = below.argmax(axis=1)
    rows, before = np.arange(len(shares)), np.maximum(after - 1, 0)
    drop = np.where(after > 0, shares[rows, before] - shares[rows, after], 1.0)
    part = (shares[rows, before] - limit) / drop
    crossing = rates[rows, before] + part * (rates[rows, after] - rates[rows, before])
    return np.select([below[:, 0], ~below.any(axis=1)], [-np.inf, np.inf], crossing)
