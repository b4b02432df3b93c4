"""Measures of MoDM's evaluation (section 7, appendix; experiments: conf/experiment)."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean
from mezzotint.sim.papers.scorecard.measures.formulas import Measure, Number, crossing, hits, ratio, reduction

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


def times_vanilla(system: str, models: str) -> Number:
    """Measure throughput over vanilla's, with more requests than either can serve."""
    return lambda runs: ratio(system, "vanilla", "throughput_rpm")(runs.where(models=models))


def times_vanilla_on_mjhq(models: str) -> Number:
    """Measure throughput with the declared hits of MJHQ over vanilla's, which no prompts change."""

    def times(runs: Runs) -> float:
        on_mjhq, vanilla = runs.of(["modm-figure7-mjhq"]), runs.of(["modm-figure7"]).where(system="vanilla")
        modm_rpm, vanilla_rpm = (of.where(models=models).mean("throughput_rpm") for of in (on_mjhq, vanilla))
        return modm_rpm / vanilla_rpm

    return times


def less_energy(system: str, models: str) -> Number:
    """Measure 1 - energy of an image over that of vanilla's."""
    return lambda runs: reduction(system, "vanilla", "energy_j", "per_image")(runs.where(models=models))


def sustained_rpm(systems: Sequence[str], slo: str) -> Number:
    """Measure the sustained rate of the best of ``systems``; the highest simulated rate if violations stay below."""
    return lambda runs: max(_crossing(runs.where(system=system), slo) for system in systems)


def _crossing(runs: Runs, slo: str) -> float:
    late = {rate: mean([run.number("slo", slo, "violation_rate") for run in at]) for rate, at in by_rate(runs).items()}
    lowest = min(late)
    if late[lowest] > SUSTAINED:
        raise Unmeasured(f"more than {SUSTAINED:.0%} of the requests are late at {lowest:g}/min already")
    rate = crossing(late, SUSTAINED, rises=True)
    return max(late) if rate is None else rate


def by_rate(runs: Runs) -> dict[float, list[Finished]]:
    """Group the runs of a sweep by requests per minute, ascending."""
    at = defaultdict[float, list[Finished]](list)
    for run in runs:
        at[float(run.point.choices["arrivals.rate_rpm"])].append(run)
    return dict(sorted(at.items()))


def p99s(runs: Runs, systems: Sequence[str], rate_rpm: float) -> list[float]:
    """Return the 99th percentile [s] of each system at a rate, averaged over the seeds."""
    at = [by_rate(runs.where(system=system)).get(rate_rpm, []) for system in systems]
    return [mean([run.number("latency_s", "p99") for run in seeds]) for seeds in at]


def grows_rpm(runs: Runs, system: str) -> float:
    """Return the lowest rate at which the backlog of every seed grows; infinite if it grows at none."""
    at = by_rate(runs.where(system=system))
    growing = (rate for rate, seeds in at.items() if all(run.summary["backlog"]["grows"] for run in seeds))
    return next(growing, float("inf"))


def stable_as_printed(runs: Runs) -> bool:
    """Return True if vanilla and NIRVANA sustain 10/min and not 16, and MoDM 20."""
    others = [grows_rpm(runs, system) for system in ("vanilla", "nirvana")]
    return all(10 < rate <= 16 for rate in others) and grows_rpm(runs, "modm-quality") > 20


def hit_rates(runs: Runs, admission: str) -> list[float]:
    """Return MoDM's hit rate for each of `SIZES`."""
    return [mean([hits(run) for run in runs.where(admission=admission, capacity=n)]) for n in SIZES]


def has_highest_hit_rate(runs: Runs) -> bool:
    """Return True if at every size caching all images beats caching the large model's, and that beats NIRVANA."""
    modm, others = runs.of(["modm-figure9"]), runs.of(["modm-figure9-nirvana"])
    nirvana = [mean([hits(run) for run in others.where(capacity=5 * n)]) for n in SIZES]
    by_size = zip(hit_rates(modm, "cache-all"), hit_rates(modm, "cache-large"), nirvana, strict=True)
    return all(both > large > other for both, large, other in by_size)


def is_steady(runs: Runs) -> bool:
    """Return True if, in the two larger caches, each tenth of the requests has a hit rate near the mean."""
    return all(
        max(abs(share - float(np.mean(tenths))) for share in tenths) <= STEADY
        for tenths in (hits_by_tenth(run) for n in SIZES[1:] for run in runs.where(admission="cache-all", capacity=n))
    )


def hits_by_tenth(run: Finished) -> list[float]:
    """Return the hit rate of ten equal parts of a run, in the order of arrival."""
    hit = np.asarray(run.requests("skipped")["skipped"]) > 0
    return [float(part.mean()) for part in np.array_split(hit, 10)]


def fresh(runs: Runs) -> float:
    """Return the share of the largest cache's hits whose image is at most `FRESH_S` old on the trace's own clock."""
    (run,) = runs.where(admission="cache-all", capacity=SIZES[-1])
    age_s = run.requests("source_age_trace_s")["source_age_trace_s"].drop_null().to_numpy()
    if not len(age_s):
        raise Unmeasured("no hit, or a trace without times of its own")
    return float(np.mean(age_s <= FRESH_S))


def is_superlinear(runs: Runs) -> bool:
    """Return True if the throughput per GPU rises with the number of GPUs."""
    per_gpu = [
        run.number("throughput_rpm") / run.number("gpu", "count")
        for run in sorted(runs, key=lambda run: run.number("gpu", "count"))
    ]
    return all(more > fewer for fewer, more in itertools.pairwise(per_gpu))


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
    found = {system: [lag(run) for run in runs.where(system=system)] for system in SYSTEMS}
    late = {system: all(min(of) > LAG for of in lags) for system, lags in found.items()}
    is_prompt = all(max(of) <= LAG for of in found["modm-quality"])
    return late["vanilla"] and late["nirvana"] and is_prompt


def search_s(runs: Runs) -> float:
    """Return the mean seconds of a search over 100,000 images."""
    (run,) = runs.where(admission="cache-all", capacity=SIZES[-1])
    return float(run.requests("search_s")["search_s"].to_numpy().mean())


SYSTEMS = ("vanilla", "nirvana", "modm-quality")

MEASURES: Mapping[str, Measure] = {
    "M01": times_vanilla("modm-throughput", "sd35l-sdxl"),
    "M02": times_vanilla("modm-throughput", "sd35l-sana"),
    "M03": times_vanilla_on_mjhq("sd35l-sdxl"),
    "M04": times_vanilla_on_mjhq("sd35l-sana"),
    "M05": times_vanilla("modm-throughput", "flux-sdxl"),
    "M06": times_vanilla("modm-throughput", "flux-sana"),
    "M07": lambda runs: runs.where(system="vanilla", models="sd35l-sdxl").mean("throughput_rpm"),
    "M08": times_vanilla("nirvana", "sd35l-sdxl"),
    "M10": smallest_from_rpm,
    "M11": lambda runs: hit_rates(runs, "cache-all")[-1],
    "M12": has_highest_hit_rate,
    "M13": is_steady,
    "M14": is_superlinear,
    "M15": sustained_rpm(("modm-quality",), "2x"),
    "M15b": sustained_rpm(("vanilla", "nirvana"), "2x"),
    "M16": sustained_rpm(("modm-quality",), "2x"),
    "M17": sustained_rpm(("modm-quality",), "4x"),
    "M18": lambda runs: max(p99s(runs, SYSTEMS, 4)),
    "M19": lambda runs: min(p99s(runs, SYSTEMS[:2], 10)),
    "M20": stable_as_printed,
    "M21": only_others_lag,
    "M22a": less_energy("nirvana", "sd35l-sdxl"),
    "M22b": less_energy("modm-throughput", "sd35l-sdxl"),
    "M22c": less_energy("modm-throughput", "sd35l-sana"),
    "M23": fresh,
    "M26": search_s,
}
"""Measures by target id; conf/data/scorecard-measures.yaml has the experiments of each."""
