"""Measures of PatchedServe's evaluation (section 8) that no formula states."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mezzotint.backends.profiled import Profiled
from mezzotint.sim.papers.runs import Runs, Unmeasured, mean
from mezzotint.sim.papers.scorecard.measures.rate_grids import POINTS, Curve, Floats, falls_below, grids
from mezzotint.sim.papers.scorecard.verdict import Alternatives

SLO = "5x"

MODELS = ("sdxl", "sd3-medium")

FIGURE11 = {"sdxl": "patchedserve-figure11", "sd3-medium": "patchedserve-figure11-sd3"}
"""Experiment by model."""

SEVERAL_GPUS = {
    model: [f"patchedserve-figure{figure}{gpus}" for gpus in ("", "-4gpus", "-8gpus")]
    for model, figure in zip(MODELS, (12, 13), strict=True)
}
"""Experiments by model, on 2, 4 and 8 GPUs."""

SYSTEMS = ("patchedserve", "nirvana-orca", "patched-cache")
"""PatchedServe and the baselines of Figure 11."""

MIN_IN_TIME = (0.99, 0.95, 0.90)
"""Shares of the requests in time at which a load counts as supported."""

MIN_LEAD = 0.005
"""Smallest difference of the satisfied share that counts: some five requests of a run."""


def over_nirvana(runs: Runs) -> Alternatives:
    """Return the lead over NIRVANA's satisfaction in percentage points, averaged over a grid's rates and the models."""

    def lead(model: str, points: int) -> Any:
        ours, nirvana, _ = _shares(runs.of([FIGURE11[model]]), SYSTEMS, points)
        return (ours - nirvana).mean(axis=1)

    return _over_pairs(lead, lambda sdxl, sd3: 100 * (sdxl + sd3) / 2)


def at_moderate_load(runs: Runs) -> Alternatives:
    """Return the lowest satisfaction at the lower half of a grid's rates, of the worse model."""

    def lowest(model: str, points: int) -> Any:
        ours, *_ = _shares(runs.of([FIGURE11[model]]), SYSTEMS, points)
        return ours[:, : points // 2].min(axis=1)

    return _over_pairs(lowest, np.minimum)


def load_over_baselines(runs: Runs) -> Alternatives:
    """Return the rate that is supported at each share, over the best baseline's, averaged over the models.

    Only grids from which the rate of PatchedServe and that of a baseline can be read at each share count.
    """

    def ratios(model: str, points: int) -> Any:
        curves = _curves(runs.of([FIGURE11[model]]), SYSTEMS)
        rates = grids(curves[0], points)
        by_share = []
        for share in MIN_IN_TIME:
            ours, *theirs = (falls_below(rates, curve.at(rates), share) for curve in curves)
            best = np.max(theirs, axis=0)
            by_share.append(np.where(np.isfinite(ours) & np.isfinite(best), ours, np.nan) / best)
        return np.stack(by_share, axis=1)

    pairs = _over_pairs(ratios, lambda sdxl, sd3: (sdxl + sd3) / 2)
    readable = pairs.values[~np.isnan(pairs.values).any(axis=1)]
    if not len(readable):
        raise Unmeasured("no grid has rates on both sides of each share")
    return Alternatives(readable)


def gains_by_scheduling(runs: Runs) -> Alternatives:
    """Return True if at a grid's upper rates PatchedServe leads PatchedCache, and by more on SDXL."""

    def gain(model: str, points: int) -> Any:
        ours, _, patched_cache = _shares(runs.of([FIGURE11[model]]), SYSTEMS, points)
        return (ours - patched_cache)[:, points // 2 :].mean(axis=1)

    return _over_pairs(gain, lambda sdxl, sd3: (sdxl > sd3) & (np.minimum(sdxl, sd3) > MIN_LEAD))


def leads_on_several_gpus(runs: Runs) -> Alternatives:
    """Return True if PatchedServe is never behind, and Distrifusion is good at the lightest load alone.

    Distrifusion is above 90 % at a grid's lowest rate, and below 90 % and behind NIRVANA at its highest. The grids of a
    model have the same ends and starts on each number of GPUs.
    """

    def is_as_printed(experiment: str, points: int) -> Any:
        ours, nirvana, patched_cache, distrifusion = _shares(runs.of([experiment]), (*SYSTEMS, "distrifusion"), points)
        is_ahead = (ours >= np.max([nirvana, patched_cache, distrifusion], axis=0) - MIN_LEAD).all(axis=1)
        light, heavy = distrifusion[:, 0], distrifusion[:, -1]
        return is_ahead & (light > 0.9) & (heavy < 0.9) & (nirvana[:, -1] > heavy)

    return _over_pairs(
        lambda model, points: np.all([is_as_printed(name, points) for name in SEVERAL_GPUS[model]], axis=0),
        np.logical_and,
    )


def _curves(runs: Runs, systems: Sequence[str]) -> list[Curve]:
    return [Curve.of(runs.where(system=system), SLO) for system in systems]


def _shares(runs: Runs, systems: Sequence[str], points: int) -> list[Floats]:
    """Return the shares in time of each system, a row for each grid of ``points`` rates of the first, PatchedServe."""
    curves = _curves(runs, systems)
    rates = grids(curves[0], points)
    return [curve.at(rates) for curve in curves]


def _over_pairs(measure: Callable[[str, int], Any], combine: Callable[[Any, Any], Any]) -> Alternatives:
    """Combine the values of every pair of grids, one of each model, with as many rates as each other."""
    pairs = []
    for points in POINTS:
        sdxl, sd3 = (measure(model, points) for model in MODELS)
        pairs.append(combine(np.repeat(sdxl, len(sd3), axis=0), np.concatenate([sd3] * len(sdxl))))
    return Alternatives(np.concatenate(pairs))


def predictor_error(runs: Runs) -> float:
    """Return the mean squared error of the predicted step, averaged over the runs, of the worse model."""

    def of(model: str) -> float:
        errors = [
            float(assumption["value"])
            for run in runs.of([FIGURE11[model]]).where(system="patchedserve")
            for assumption in run.summary["assumptions"]
            if assumption["what"].startswith("mean squared error of the predicted step")
        ]
        if not errors:
            raise Unmeasured(f"no run of {model} has a learnt predictor")
        return mean(errors)

    return max(of(model) for model in MODELS)


def step_ratios() -> list[float]:
    """Return each model's step time at 1024x1024 over that at 512x512, from its profile."""
    backend = Profiled("h100")
    return [backend.seconds("step", model, 1024, 1024) / backend.seconds("step", model, 512, 512) for model in MODELS]
