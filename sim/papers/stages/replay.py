"""Replay of every setting in Katz's logs, with the error of each stage."""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np

from mezzotint.sim.papers.runs import Point, composed
from mezzotint.sim.papers.scorecard.measures.swiftdiffusion import CALIBRATED, SLOW
from mezzotint.sim.papers.scorecard.targets import REL_TOL
from mezzotint.sim.papers.study import Comparison, Results
from mezzotint.sim.run.simulate import Outcome, simulate

STAGES = ("latency_s", "denoise_s", "lora_s", "other_s", "patch_step")
"""Stages of the log: arrival to image; denoising with waits and merges; LoRAs before the first step; text encoder, VAE
and post-processing; steps before the LoRAs are merged."""

MAX_STEP_ERROR = 1.0
"""Tolerance of ``patch_step`` in --check, in steps; seconds have REL_TOL."""

LOGGED = resources.files("mezzotint.conf") / "data" / "katz-stages.csv"
"""Means and medians over each run's requests except the first, from the artifact's logs, without its constants."""

Statistic = Literal["mean", "median"]
STATISTICS: tuple[Statistic, ...] = ("mean", "median")

SYSTEM_OVERRIDES = {"nirvana-10": ("frontend.fetch_s=0",), "nirvana-20": ("frontend.fetch_s=0",)}
"""Overrides by system: the logs have no fetch of an image."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A system with a number of ControlNets and LoRAs per request, and its stages.

    Attributes:
        logged, ours: seconds by statistic and stage, from the log and simulated.
    """

    system: str
    controlnets: int
    loras: int
    logged: Mapping[Statistic, Mapping[str, float]]
    ours: Mapping[Statistic, Mapping[str, float]]

    @property
    def name(self) -> str:
        """The paper's name of the setting."""
        return f"{self.controlnets}C/{self.loras}L"

    @property
    def calibrated(self) -> bool:
        """True if profile or factors were fitted to this setting."""
        return (self.controlnets, self.loras) in CALIBRATED

    def error(self, stage: str, statistic: Statistic = "mean") -> float | None:
        """Return ours over logged, less 1; of ``patch_step`` the difference in steps. None if it was not logged."""
        if stage not in self.logged[statistic]:
            return None
        ours, logged = self.ours[statistic][stage], self.logged[statistic][stage]
        return ours - logged if stage == "patch_step" else ours / logged - 1.0


def settings(which: Callable[[str, int, int], bool] = lambda *_: True) -> list[Setting]:
    """Simulate the logged settings for which ``which(system, controlnets, loras)`` is true, in order."""
    columns: dict[Statistic, str] = {"mean": "", "median": "median_"}
    found = []
    for row in csv.DictReader(LOGGED.read_text(encoding="utf-8").splitlines()):
        of = (row["system"], int(row["controlnets"]), int(row["loras"]))
        if which(*of):
            simulated, logged, ours = stages(simulate(config(*of))), {}, {}
            for statistic, prefix in columns.items():
                values = {stage: float(row[prefix + stage]) for stage in STAGES if row[prefix + stage]}
                logged[statistic] = values
                ours[statistic] = {stage: simulated[statistic][stage] for stage in values}
            found.append(Setting(*of, logged, ours))
    return found


def config(system: str, controlnets: int, loras: int) -> dict[str, Any]:
    """Return the configuration of one setting, one request at a time."""
    words = ["experiment=swiftdiffusion-evaluation", f"system={system}", f"trace.controlnets={controlnets}"]
    words += [f"trace.loras={loras}", *SYSTEM_OVERRIDES.get(system, ())]
    if (system, controlnets, loras) == SLOW:
        words += ["lora_fetch=katz-slow-storage", "trace.requests=2010"]
    return composed(Point("swiftdiffusion-evaluation", {}, tuple(words)))


def stages(outcome: Outcome) -> dict[Statistic, dict[str, float]]:
    """Return mean and median seconds of each stage over the requests after the warm-up."""
    table = outcome.requests.slice(outcome.config["warmup"])
    wanted = ("arrival_s", "start_s", "finish_s", "load_s", "fetch_s", "decode_s", "patch_step")
    found = {name: np.nan_to_num(table[name].to_numpy()) for name in wanted if name in table.column_names}
    took_s = found["finish_s"] - found["start_s"]
    each = {
        "latency_s": found["finish_s"] - found["arrival_s"],
        "denoise_s": took_s - found["load_s"] - found["fetch_s"] - found["decode_s"],
        "lora_s": found["load_s"],
        "other_s": found["decode_s"],
        "patch_step": found.get("patch_step", np.zeros(len(took_s))),
    }
    return {of: {name: float(getattr(np, of)(values)) for name, values in each.items()} for of in STATISTICS}


def max_error(found: Iterable[Setting], stage: str, statistic: Statistic = "mean") -> float:
    """Return the largest absolute error of a stage over the settings that nothing was fitted to."""
    errors = [each.error(stage, statistic) for each in found if not each.calibrated]
    return max((abs(error) for error in errors if error is not None), default=0.0)


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare every stage of every setting in the JSON file with the log."""
    found = {}
    for each in (Setting(**setting) for setting in facts["settings"]):
        for statistic in STATISTICS:
            for stage, logged in each.logged[statistic].items():
                error = each.error(stage, statistic)
                assert error is not None
                allowed = MAX_STEP_ERROR if stage == "patch_step" else REL_TOL
                within = f"{MAX_STEP_ERROR:g} step" if stage == "patch_step" else f"{REL_TOL:.0%}"
                found[f"{each.system} {each.name}, {statistic} {stage}"] = Comparison(
                    f"{logged:.4g} within {within}", f"{each.ours[statistic][stage]:.4g}", abs(error) <= allowed
                )
    return found
