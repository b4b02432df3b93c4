"""Measures of PatchedServe's evaluation (section 8; experiments: conf/experiment)."""

from collections.abc import Mapping, Sequence

import numpy as np

from backends.profiled import Profiled
from sim.papers.scorecard.measures.formulas import Measure, crossing
from sim.papers.scorecard.measures.modm import by_rate
from sim.papers.scorecard.runs.finished import Finished, Runs, Unmeasured, mean

SLO = "5x"

MODELS = ("sdxl", "sd3-medium")

FIGURE11 = {"sdxl": ["patchedserve-figure11"], "sd3-medium": ["patchedserve-figure11-sd3"]}
"""Experiments by model."""

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


def over_nirvana(runs: Runs) -> float:
    """Return the lead over NIRVANA's satisfaction in percentage points, averaged over rates and models."""
    return 100 * mean([mean(_lead(runs.of(FIGURE11[model]), "nirvana-orca")) for model in MODELS])


def at_moderate_load(runs: Runs) -> float:
    """Return the lowest satisfaction at the lower half of the rates, of the worse model."""
    shares = [list(satisfaction(runs.of(FIGURE11[model]), "patchedserve").values()) for model in MODELS]
    return min(min(of[: len(of) // 2]) for of in shares)


def load_over_baselines(runs: Runs) -> list[float]:
    """Return the rate that is supported at each share, over the best baseline's, averaged over the models."""

    def ratio(model: str, share: float) -> float:
        its = runs.of(FIGURE11[model])
        best = max(_supported(satisfaction(its, system), share) for system in BASELINES)
        return _supported(satisfaction(its, "patchedserve"), share) / best

    return [mean([ratio(model, share) for model in MODELS]) for share in MIN_IN_TIME]


def _supported(shares: Mapping[float, float], min_share: float) -> float:
    """Return the rate at which the share falls below ``min_share``. Raises Unmeasured: at the lowest or no rate."""
    lowest, highest = min(shares), max(shares)
    rate = crossing(shares, min_share, rises=False)
    if shares[lowest] < min_share or rate is None:
        where = f"at {lowest:g}/min already" if shares[lowest] < min_share else f"at none up to {highest:g}/min"
        raise Unmeasured(f"fewer than {min_share:.0%} are in time {where}")
    return rate


def _lead(runs: Runs, baseline: str) -> list[float]:
    ours, theirs = (satisfaction(runs, system) for system in ("patchedserve", baseline))
    return [ours[rate] - theirs[rate] for rate in ours]


def gains_by_scheduling(runs: Runs) -> bool:
    """Return True if at the upper rates PatchedServe leads PatchedCache, and by more on SDXL."""
    leads = [_lead(runs.of(FIGURE11[model]), "patched-cache") for model in MODELS]
    gains = [mean(of[len(of) // 2 :]) for of in leads]
    return all(gain > MIN_LEAD for gain in gains) and gains[0] > gains[1]


def leads_on_several_gpus(runs: Runs) -> bool:
    """Return True if PatchedServe is never behind, and Distrifusion is good at the lightest load alone.

    Distrifusion is above 90 % at the lightest load, and below 90 % and behind NIRVANA at the heaviest.
    """
    for experiments in _SEVERAL:
        its = runs.of([experiments])
        ours = satisfaction(its, "patchedserve")
        others = {system: satisfaction(its, system) for system in (*BASELINES, "distrifusion")}
        if any(shares[rate] > ours[rate] + MIN_LEAD for shares in others.values() for rate in ours):
            return False
        lightest, heaviest = min(ours), max(ours)
        distrifusion, nirvana = others["distrifusion"], others["nirvana-orca"]
        if not (distrifusion[lightest] > 0.9 > distrifusion[heaviest] and nirvana[heaviest] > distrifusion[heaviest]):
            return False
    return True


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


_SEVERAL = tuple(f"patchedserve-figure{figure}{gpus}" for figure in (12, 13) for gpus in ("", "-4gpus", "-8gpus"))

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
