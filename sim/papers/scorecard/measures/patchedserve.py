"""Measures of PatchedServe's evaluation (section 8; experiments: conf/experiment)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.profiled import Profiled
from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured, mean
from mezzotint.sim.papers.scorecard.alternatives import Alternatives
from mezzotint.sim.papers.scorecard.measures.formulas import Measure
from mezzotint.sim.papers.scorecard.measures.modm import by_rate
from mezzotint.sim.papers.scorecard.measures.rate_grids import POINTS, Curve, Floats, falls_below, grids

SLO = "5x"

MODELS = ("sdxl", "sd3-medium")

FIGURE11 = {"sdxl": ["patchedserve-figure11"], "sd3-medium": ["patchedserve-figure11-sd3"]}
"""Experiments by model."""

SEVERAL_GPUS = {
    model: [f"patchedserve-figure{figure}{gpus}" for gpus in ("", "-4gpus", "-8gpus")]
    for model, figure in zip(MODELS, (12, 13), strict=True)
}
"""Experiments by model, on 2, 4 and 8 GPUs."""

BASELINES = ("nirvana-orca", "patched-cache")
"""Baselines of Figure 11."""

MIN_IN_TIME = (0.99, 0.95, 0.90)
"""Shares of the requests in time at which a load counts as supported."""

MIN_LEAD = 0.005
"""Smallest difference of the satisfied share that counts: some five requests of a run."""


def satisfaction(runs: Runs, system: str) -> dict[float, float]:
    """Return the share of requests in time, by requests per minute, averaged over the seeds."""
    at = by_rate(runs.where(system=system))
    return {rate: mean([1 - run.number("slo", SLO, "violation_rate") for run in seeds]) for rate, seeds in at.items()}


def over_nirvana(runs: Runs) -> Alternatives:
    """Return the lead over NIRVANA's satisfaction in percentage points, averaged over a grid's rates and the models."""

    def lead(model: str, points: int) -> Floats:
        shares = _figure11(runs, model, points)
        mean_lead: Floats = (shares["patchedserve"] - shares["nirvana-orca"]).mean(axis=1)
        return mean_lead

    return _over_pairs(lambda sdxl, sd3: 100 * (sdxl + sd3) / 2, lead)


def at_moderate_load(runs: Runs) -> Alternatives:
    """Return the lowest satisfaction at the lower half of a grid's rates, of the worse model."""

    def lowest(model: str, points: int) -> Floats:
        shares: Floats = _figure11(runs, model, points)["patchedserve"][:, : points // 2].min(axis=1)
        return shares

    return _over_pairs(np.minimum, lowest)


def load_over_baselines(runs: Runs) -> Alternatives:
    """Return the rate that is supported at each share, over the best baseline's, averaged over the models.

    Only grids from which the rate of PatchedServe and that of a baseline can be read at each share count.
    """

    def ratios(model: str, points: int) -> Floats:
        curves = _curves(runs.of(FIGURE11[model]), ("patchedserve", *BASELINES))
        rates = grids(curves["patchedserve"], points)
        found = []
        for share in MIN_IN_TIME:
            ours, *theirs = (falls_below(rates, curve.at(rates), share) for curve in curves.values())
            best = np.max(theirs, axis=0)
            found.append(np.where(np.isfinite(ours) & np.isfinite(best), ours, np.nan) / best)
        return np.stack(found, axis=1)

    pairs = _over_pairs(lambda sdxl, sd3: (sdxl + sd3) / 2, ratios)
    readable = pairs.values[~np.isnan(pairs.values).any(axis=1)]
    if not len(readable):
        raise Unmeasured("no grid has rates on both sides of each share")
    return Alternatives(readable)


def gains_by_scheduling(runs: Runs) -> Alternatives:
    """Return True if at a grid's upper rates PatchedServe leads PatchedCache, and by more on SDXL."""

    def gain(model: str, points: int) -> Floats:
        shares = _figure11(runs, model, points)
        mean_lead: Floats = (shares["patchedserve"] - shares["patched-cache"])[:, points // 2 :].mean(axis=1)
        return mean_lead

    return _over_pairs(lambda sdxl, sd3: (sdxl > sd3) & (np.minimum(sdxl, sd3) > MIN_LEAD), gain)


def leads_on_several_gpus(runs: Runs) -> Alternatives:
    """Return True if PatchedServe is never behind, and Distrifusion is good at the lightest load alone.

    Distrifusion is above 90 % at a grid's lowest rate, and below 90 % and behind NIRVANA at its highest. The grids of a
    model have the same ends and starts on each number of GPUs.
    """

    def as_printed(model: str, points: int) -> NDArray[np.bool_]:
        found = []
        for experiment in SEVERAL_GPUS[model]:
            curves = _curves(runs.of([experiment]), ("patchedserve", *BASELINES, "distrifusion"))
            ours, *baselines, distrifusion = _on_grids(curves, points).values()
            others = np.max([*baselines, distrifusion], axis=0)
            nirvana = baselines[BASELINES.index("nirvana-orca")]
            light, heavy = distrifusion[:, 0], distrifusion[:, -1]
            ahead = (ours >= others - MIN_LEAD).all(axis=1)
            found.append(ahead & (light > 0.9) & (heavy < 0.9) & (nirvana[:, -1] > heavy))
        on_all: NDArray[np.bool_] = np.all(found, axis=0)
        return on_all

    return _over_pairs(np.logical_and, as_printed)


def _figure11(runs: Runs, model: str, points: int) -> dict[str, Floats]:
    return _on_grids(_curves(runs.of(FIGURE11[model]), ("patchedserve", *BASELINES)), points)


def _curves(runs: Runs, systems: Sequence[str]) -> dict[str, Curve]:
    return {system: Curve.of(satisfaction(runs, system)) for system in systems}


def _on_grids(curves: Mapping[str, Curve], points: int) -> dict[str, Floats]:
    """Return the shares in time by system, a row for each grid of ``points`` rates."""
    rates = grids(curves["patchedserve"], points)
    return {system: curve.at(rates) for system, curve in curves.items()}


def _over_pairs(combine: Callable[[Any, Any], Any], measure: Callable[[str, int], Any]) -> Alternatives:
    """Combine the values of every pair of grids, one of each model, with as many rates as each other."""
    found = []
    for points in POINTS:
        sdxl, sd3 = (measure(model, points) for model in MODELS)
        found.append(combine(np.repeat(sdxl, len(sd3), axis=0), np.concatenate([sd3] * len(sdxl))))
    return Alternatives(np.concatenate(found))


def batch_s(run: Finished) -> float:
    """Return the seconds that the steps of a run's only batch took."""
    return float(np.max(run.requests("denoise_s")["denoise_s"].to_numpy()))


def batch_of_three_s(runs: Runs, model: str, sides: Sequence[int]) -> float:
    """Return the seconds of the steps of a batch of three with these sides in pixels."""
    wanted = sorted(sides)
    for run in runs.where(models=model):
        if sorted(shape[0] for shape in run.config["trace"]["shapes"]) == wanted:
            return batch_s(run)
    raise Unmeasured(f"no run of {model} at {wanted}")


def large_over_small(runs: Runs) -> float:
    """Return the time of three large images over that of three small ones."""
    return batch_of_three_s(runs, "sdxl", [1024] * 3) / batch_of_three_s(runs, "sdxl", [512] * 3)


def third_size_adds_time(runs: Runs) -> bool:
    """Return True if a batch of all three sizes takes longer than one with more pixels of two sizes."""
    return batch_of_three_s(runs, "sdxl", [512, 768, 1024]) > batch_of_three_s(runs, "sdxl", [768, 768, 1024])


def patching_savings(runs: Runs, model: str) -> list[float]:
    """Return the share of a mixed batch's time that patches save without reuse, for batches of 3, 6, 9 and 12."""

    def seconds(batching: str, size: int) -> float:
        (run,) = runs.where(models=model, batching=batching, feature_cache="none", requests=size)
        return batch_s(run)

    return [1 - seconds("patched", size) / seconds("same-size", size) for size in (3, 6, 9, 12)]


def saving_shrinks(runs: Runs) -> bool:
    """Return True if the saving falls with the size of the batch, and is larger on SDXL at every size."""
    sdxl, sd3 = (patching_savings(runs, model) for model in MODELS)
    falls = all(np.diff(of).max() < 0 for of in (sdxl, sd3))
    return falls and all(one > other for one, other in zip(sdxl, sd3, strict=True))


def predictor_error(runs: Runs) -> float:
    """Return the mean squared error of the predicted step, averaged over the runs, of the worse model."""

    def of(model: str) -> float:
        errors = [
            float(assumption["value"])
            for run in runs.of(FIGURE11[model]).where(system="patchedserve")
            for assumption in run.summary["assumptions"]
            if assumption["what"].startswith("mean squared error of the predicted step")
        ]
        if not errors:
            raise Unmeasured(f"no run of {model} has a learnt predictor")
        return mean(errors)

    return max(of(model) for model in MODELS)


def reuses_more_by_patch(runs: Runs) -> bool:
    """Return True if patches reuse more than whole images at every size, and SDXL more than SD3."""

    def reused(model: str, cache: str) -> list[float]:
        its = sorted(runs.where(models=model, feature_cache=cache), key=lambda run: run.point.choices["trace.shapes"])
        return [float(np.mean(run.requests("reused_share")["reused_share"].to_numpy())) for run in its]

    (sdxl, sdxl_whole), (sd3, sd3_whole) = (
        (reused(model, "patch-level"), reused(model, "whole-image")) for model in MODELS
    )
    pairs = zip((*sdxl, *sd3), (*sdxl_whole, *sd3_whole), strict=True)
    return all(patch > whole for patch, whole in pairs) and min(sdxl) > max(sd3)


def step_ratio(model: str) -> float:
    """Return a step's time at 1024x1024 over that at 512x512, from the profile."""
    backend = Profiled("h100")
    return backend.seconds("step", model, 1024, 1024) / backend.seconds("step", model, 512, 512)


MEASURES: Mapping[str, Measure] = {
    "P1": over_nirvana,
    "P2": at_moderate_load,
    "P3": load_over_baselines,
    "P4": lambda _: [step_ratio(model) for model in MODELS],
    "P5": large_over_small,
    "P5b": third_size_adds_time,
    "P6": lambda runs: mean([mean(patching_savings(runs, model)) for model in MODELS]),
    "P6b": saving_shrinks,
    "P9": predictor_error,
    "P10": leads_on_several_gpus,
    "P11": gains_by_scheduling,
    "P15": reuses_more_by_patch,
}
"""Measures by target id; conf/data/scorecard-measures.yaml has the experiments of each."""
