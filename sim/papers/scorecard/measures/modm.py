"""Measures of MoDM's evaluation (section 7, appendix) that no formula states."""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.rate_grids import Curve, by_rate, falls_below

SIZES = (1_000, 10_000, 100_000)
"""Images in Figure 9's caches; NIRVANA stores five latents for each."""

SUSTAINED = 0.05
"""Highest mean violation rate at which a rate counts as sustained; the paper defines it in words only."""

FRESH_S = 4 * 3600.0
"""Figure 15: highest age of a fresh image, on the trace's own clock."""

STEADY = 0.05
"""Largest difference of a tenth's hit rate from the mean that counts as steady; our threshold."""

LAG = 0.15
"""Figure 17: a system lags if it leaves more than this share of a load level unserved; our threshold."""


def sustained_rpm(runs: Runs, systems: Sequence[str], slo: str) -> float:
    """Return the sustained rate of the best of ``systems``; the highest simulated rate if violations stay below."""
    return max(_sustained_rpm(Curve.of(runs.where(system=system), slo)) for system in systems)


def _sustained_rpm(curve: Curve) -> float:
    rate_rpm = float(falls_below(curve.rates, curve.shares[None], 1 - SUSTAINED)[0])
    if rate_rpm == -np.inf:
        raise Unmeasured(f"more than {SUSTAINED:.0%} of the requests are late at {curve.rates[0]:g}/min already")
    return min(rate_rpm, float(curve.rates[-1]))


def grows_rpm(runs: Runs, system: str) -> float:
    """Return the lowest rate at which every seed is overloaded; infinite if there is none."""
    at = by_rate(runs.where(system=system))
    verdicts = ((rate, {run.summary["load"]["verdict"] for run in seeds}) for rate, seeds in at.items())
    return next((rate for rate, found in verdicts if found == {"overloaded"}), float("inf"))


def stable_as_printed(runs: Runs) -> bool:
    """Return True if vanilla and NIRVANA sustain 10/min and not 16, and MoDM 20."""
    others = [grows_rpm(runs, system) for system in ("vanilla", "nirvana")]
    return all(10 < rate <= 16 for rate in others) and grows_rpm(runs, "modm-quality") > 20


def is_steady(runs: Runs) -> bool:
    """Return True if, in the two larger caches, each tenth of the requests has a hit rate near the mean."""

    def has_steady_tenths(run: Finished) -> bool:
        is_hit = np.asarray(run.requests("skipped")["skipped"]) > 0
        tenths = np.array([part.mean() for part in np.array_split(is_hit, 10)])
        return bool(np.abs(tenths - tenths.mean()).max() <= STEADY)

    large = [run for size in SIZES[1:] for run in runs.where(admission="cache-all", capacity=size)]
    return all(has_steady_tenths(run) for run in large)


def fresh(runs: Runs) -> float:
    """Return the share of the largest cache's hits whose image is at most `FRESH_S` old on the trace's own clock."""
    (run,) = runs.where(admission="cache-all", capacity=SIZES[-1])
    age_s = run.requests("source_age_trace_s")["source_age_trace_s"].drop_null().to_numpy()
    if not len(age_s):
        raise Unmeasured("no hit, or a trace without times of its own")
    return float(np.mean(age_s <= FRESH_S))


def smallest_from_rpm(runs: Runs) -> float:
    """Return requests per minute in the ten minutes before a GPU first loads the smallest model.

    Raises Unmeasured: no GPU ever loads it.
    """
    (run,) = runs.where(system="modm-quality")
    table = run.cluster("time_s", "gpus_smallest")
    loaded = table.filter(pc.greater(table["gpus_smallest"], 0))
    if not len(loaded):
        raise Unmeasured("the monitor never needed the smallest model")
    at_s = float(loaded["time_s"][0].as_py())
    arrival_s = run.requests("arrival_s")["arrival_s"].to_numpy()
    before = np.count_nonzero((arrival_s > at_s - 600.0) & (arrival_s <= at_s))
    return float(before) / 10.0


def lag(run: Finished) -> tuple[float, float]:
    """Return how much a system lags behind a changing rate.

    Returns:
        The share of the highest level's requests that it leaves unserved, and what it serves at the lowest level above
        the arrivals, as a share of them; both over all periods of the level.
    """
    levels: Sequence[float] = run.config["arrivals"]["levels"]
    every_s = float(run.config["arrivals"]["every_s"])
    table = run.requests("arrival_s", "finish_s")
    arrival_s, finish_s = (table[name].drop_null().to_numpy() for name in ("arrival_s", "finish_s"))
    periods = int(arrival_s[-1] // every_s)
    edges = np.arange(periods + 1) * every_s
    arrived, finished = (np.histogram(of, edges)[0] for of in (arrival_s, finish_s))
    level = np.asarray([levels[n % len(levels)] for n in range(periods)])
    high = level == max(levels)
    low = (level == min(levels)) & np.logical_or.accumulate(high)  # after the first peak
    if not low.any():
        raise Unmeasured("the trace ends before the rate has risen and fallen")
    return 1 - float(finished[high].sum() / arrived[high].sum()), float(finished[low].sum() / arrived[low].sum()) - 1


def only_others_lag(runs: Runs) -> bool:
    """Return True if vanilla and NIRVANA lag at peaks and catch up at low rates, and MoDM does neither."""
    vanilla, nirvana, modm = (
        [lag(run) for run in runs.where(system=system)] for system in ("vanilla", "nirvana", "modm-quality")
    )
    return all(min(late) > LAG for late in (*vanilla, *nirvana)) and all(max(late) <= LAG for late in modm)
