"""How the numbers of PatchedServe's evaluation are measured (section 8; its experiments are in conf/experiment)."""

from collections.abc import Mapping, Sequence

import numpy as np

from backends.profiled import Profiled
from sim.papers.scorecard.finished import Finished, Runs, Unmeasured, mean
from sim.papers.scorecard.measures import Measure, crossing
from sim.papers.scorecard.modm import by_rate

SLO = "5x"

MODELS = ("sdxl", "sd3-medium")

FIGURE11 = {"sdxl": ["patchedserve-figure11"], "sd3-medium": ["patchedserve-figure11-sd3"]}
"""Experiments by model."""

BASELINES = ("nirvana-orca", "patched-cache")
"""Those of Figure 11."""

SUPPORTED = (0.99, 0.95, 0.90)
"""Shares of the requests that must be in time for a load to be supported."""

NEAR = 0.005
"""A share of satisfied requests that tells nothing: some five requests of a run."""


def satisfaction(runs: Runs, system: str) -> dict[float, float]:
    """Share of the requests that are in time, by requests per minute, averaged over the seeds."""
    at = by_rate(runs.where(system=system))
    return {rate: mean([1 - run.number("slo", SLO, "violation_rate") for run in seeds]) for rate, seeds in at.items()}


def over_nirvana(runs: Runs) -> float:
    """Percentage points of satisfaction over NIRVANA's, averaged over the rates and both models."""
    return 100 * mean([mean(_ahead(runs.of(FIGURE11[model]), "nirvana-orca")) for model in MODELS])


def at_moderate_load(runs: Runs) -> float:
    """The least satisfaction at the lower half of the rates, of the worse model."""
    shares = [list(satisfaction(runs.of(FIGURE11[model]), "patchedserve").values()) for model in MODELS]
    return min(min(of[: len(of) // 2]) for of in shares)


def load_over_baselines(runs: Runs) -> list[float]:
    """Rate at which a share is still in time, over the best baseline's, averaged over the models."""

    def times(model: str, share: float) -> float:
        its = runs.of(FIGURE11[model])
        best = max(_supported(satisfaction(its, system), share) for system in BASELINES)
        return _supported(satisfaction(its, "patchedserve"), share) / best

    return [mean([times(model, share) for model in MODELS]) for share in SUPPORTED]


def _supported(shares: Mapping[float, float], least: float) -> float:
    """The rate at which the share falls below ``least``. Raises Unmeasured: at the lowest already, or at none."""
    lowest, highest = min(shares), max(shares)
    rate = crossing(shares, least, rises=False)
    if shares[lowest] < least or rate is None:
        where = f"at {lowest:g}/min already" if shares[lowest] < least else f"at none up to {highest:g}/min"
        raise Unmeasured(f"fewer than {least:.0%} are in time {where}")
    return rate


def _ahead(runs: Runs, of: str) -> list[float]:
    ours, theirs = (satisfaction(runs, system) for system in ("patchedserve", of))
    return [ours[rate] - theirs[rate] for rate in ours]


def by_scheduling(runs: Runs) -> bool:
    """At the upper half of the rates PatchedServe is ahead of PatchedCache, and by more on SDXL."""
    ahead = [_ahead(runs.of(FIGURE11[model]), "patched-cache") for model in MODELS]
    gains = [mean(of[len(of) // 2 :]) for of in ahead]
    return all(gain > NEAR for gain in gains) and gains[0] > gains[1]


def on_several_gpus(runs: Runs) -> bool:
    """Never behind another; Distrifusion is above 90 % at the lightest load, and at the heaviest behind NIRVANA."""
    for experiments in _SEVERAL:
        its = runs.of([experiments])
        ours = satisfaction(its, "patchedserve")
        others = {system: satisfaction(its, system) for system in (*BASELINES, "distrifusion")}
        if any(shares[rate] > ours[rate] + NEAR for shares in others.values() for rate in ours):
            return False
        lightest, heaviest = min(ours), max(ours)
        distrifusion, nirvana = others["distrifusion"], others["nirvana-orca"]
        if not (distrifusion[lightest] > 0.9 > distrifusion[heaviest] and nirvana[heaviest] > distrifusion[heaviest]):
            return False
    return True


def batch_s(run: Finished) -> float:
    """Seconds that the steps of a run's only batch took."""
    return float(np.max(run.requests("denoise_s")["denoise_s"].to_numpy()))


def three(runs: Runs, model: str, sides: Sequence[int]) -> float:
    """Seconds of the steps of a batch of three of these sizes."""
    wanted = sorted(sides)
    for run in runs.where(models=model):
        if sorted(shape[0] for shape in run.config["trace"]["shapes"]) == wanted:
            return batch_s(run)
    raise Unmeasured(f"no run of {model} at {wanted}")


def large_over_small(runs: Runs) -> float:
    """Three large images over three small ones."""
    return three(runs, "sdxl", [1024] * 3) / three(runs, "sdxl", [512] * 3)


def another_size_counts(runs: Runs) -> bool:
    """A batch of all three sizes takes longer than one with more pixels of two."""
    return three(runs, "sdxl", [512, 768, 1024]) > three(runs, "sdxl", [768, 768, 1024])


def cuts(runs: Runs, model: str) -> list[float]:
    """By how much patches make mixed batches faster, nothing being reused, by size of the batch."""

    def at(steps: str, size: int) -> float:
        (run,) = runs.where(models=model, steps=steps, feature_cache="none", requests=size)
        return batch_s(run)

    return [1 - at("patched", size) / at("batched", size) for size in (3, 6, 9, 12)]


def shrinks(runs: Runs) -> bool:
    """The cut falls from each batch to the next larger one, and is SDXL's the larger at every one."""
    sdxl, sd3 = (cuts(runs, model) for model in MODELS)
    falls = all(np.diff(of).max() < 0 for of in (sdxl, sd3))
    return falls and all(one > other for one, other in zip(sdxl, sd3, strict=True))


def predictor_error(runs: Runs) -> float:
    """Mean squared error of the predicted step, averaged over the runs, of the worse model."""

    def of(model: str) -> float:
        told = [
            float(said["value"])
            for run in runs.of(FIGURE11[model]).where(system="patchedserve")
            for said in run.summary["assumptions"]
            if said["what"].startswith("mean squared error of the predicted step")
        ]
        if not told:
            raise Unmeasured(f"no run of {model} has a learnt predictor")
        return mean(told)

    return max(of(model) for model in MODELS)


def more_by_patch(runs: Runs) -> bool:
    """More is reused by patch than by whole batches at every size of both models, and more of SDXL than of SD3."""

    def reused(model: str, cache: str) -> list[float]:
        its = sorted(runs.where(models=model, feature_cache=cache), key=lambda run: run.point.choices["trace.shapes"])
        return [float(np.mean(run.requests("reused_share")["reused_share"].to_numpy())) for run in its]

    (sdxl, sdxl_whole), (sd3, sd3_whole) = (
        (reused(model, "patch-level"), reused(model, "whole-image")) for model in MODELS
    )
    pairs = zip((*sdxl, *sd3), (*sdxl_whole, *sd3_whole), strict=True)
    return all(patch > whole for patch, whole in pairs) and min(sdxl) > max(sd3)


def step_ratio(model: str) -> float:
    """A step at 1024x1024 over one at 512x512, as the profile has them."""
    backend = Profiled("h100")
    return backend.seconds("step", model, 1024, 1024) / backend.seconds("step", model, 512, 512)


_SEVERAL = tuple(f"patchedserve-figure{figure}{gpus}" for figure in (12, 13) for gpus in ("", "-4gpus", "-8gpus"))

MEASURES: Mapping[str, Measure] = {
    "P1": over_nirvana,
    "P2": at_moderate_load,
    "P3": load_over_baselines,
    "P4": lambda _: [step_ratio(model) for model in MODELS],
    "P5": large_over_small,
    "P5b": another_size_counts,
    "P6": lambda runs: mean([mean(cuts(runs, model)) for model in MODELS]),
    "P6b": shrinks,
    "P9": predictor_error,
    "P10": on_several_gpus,
    "P11": by_scheduling,
    "P15": more_by_patch,
}
"""By target id; conf/data/scorecard-measures.yaml has the experiments of each."""
