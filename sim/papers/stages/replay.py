"""Every setting that Katz's artifact logged, simulated, and what each stage is off by."""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np

from sim.papers.scorecard.points import Point, composed
from sim.papers.scorecard.swiftdiffusion import CALIBRATED, SLOW
from sim.papers.scorecard.targets import REL_TOL
from sim.papers.verdicts import Judged, RequestColumns
from sim.run.simulate import Outcome, simulate

STAGES = ("latency_s", "denoise_s", "lora_s", "other_s", "patch_step")
"""Of the log: arrival to image; all steps with what is waited for and merged between them; LoRAs before the first step;
text encoder, VAE and post-processing; steps before the LoRAs are merged."""

MAX_STEPS_OFF = 1.0
"""Difference of ``patch_step`` that --check allows; the seconds are allowed REL_TOL."""

LOGGED = resources.files("conf") / "data" / "katz-stages.csv"
"""Means and medians over the requests of each run but its first, from the artifact's logs; without the constants that
it adds."""

Statistic = Literal["mean", "median"]
STATISTICS: tuple[Statistic, ...] = ("mean", "median")

OWN = {"nirvana-10": ("frontend.fetch_s=0",), "nirvana-20": ("frontend.fetch_s=0",)}
"""What is set of a system beside its setting: the logs have no fetch of an image."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A system with so many ControlNets and LoRAs for every request, and the seconds of its logged stages by statistic
    and name, logged and ours."""

    system: str
    controlnets: int
    loras: int
    logged: Mapping[Statistic, Mapping[str, float]]
    ours: Mapping[Statistic, Mapping[str, float]]

    @property
    def name(self) -> str:
        """As the paper writes it."""
        return f"{self.controlnets}C/{self.loras}L"

    @property
    def calibrated(self) -> bool:
        """Whether figures were taken from it."""
        return (self.controlnets, self.loras) in CALIBRATED

    def error(self, stage: str, statistic: Statistic = "mean") -> float | None:
        """Return ours over the logged less 1, of ``patch_step`` the difference in steps; None if it was not logged."""
        if stage not in self.logged[statistic]:
            return None
        ours, logged = self.ours[statistic][stage], self.logged[statistic][stage]
        return ours - logged if stage == "patch_step" else ours / logged - 1.0


def settings(which: Callable[[str, int, int], bool] = lambda *_: True) -> list[Setting]:
    """Those of the log for which ``which`` (system, ControlNets, LoRAs) is true, in its order."""
    columns: dict[Statistic, str] = {"mean": "", "median": "median_"}
    found = []
    for row in csv.DictReader(LOGGED.read_text(encoding="utf-8").splitlines()):
        of = (row["system"], int(row["controlnets"]), int(row["loras"]))
        if which(*of):
            took, logged, ours = stages(simulate(config(*of))), {}, {}
            for statistic, prefix in columns.items():
                told = logged[statistic] = {at: float(row[prefix + at]) for at in STAGES if row[prefix + at]}
                ours[statistic] = {stage: took[statistic][stage] for stage in told}
            found.append(Setting(*of, logged, ours))
    return found


def config(system: str, controlnets: int, loras: int) -> dict[str, Any]:
    """The run of one setting, one request at a time."""
    words = ["experiment=swiftdiffusion-evaluation", f"system={system}", f"trace.controlnets={controlnets}"]
    words += [f"trace.loras={loras}", *OWN.get(system, ())]
    if (system, controlnets, loras) == SLOW:
        words += ["lora_fetch=katz-slow-storage", "trace.requests=2010"]
    return composed(Point("swiftdiffusion-evaluation", {}, tuple(words)))


def stages(outcome: Outcome) -> dict[Statistic, dict[str, float]]:
    """Mean and median seconds of each stage over the requests after the warm-up."""
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


def worst(found: Iterable[Setting], stage: str, statistic: Statistic = "mean") -> float:
    """The largest error of a stage, whatever its sign, over the settings that nothing was calibrated on."""
    errors = [each.error(stage, statistic) for each in found if not each.calibrated]
    return max((abs(error) for error in errors if error is not None), default=0.0)


def judged(facts: RequestColumns) -> dict[str, Judged]:
    """Return the verdicts of the page's JSON: every logged stage of every setting."""
    found = {}
    for each in (Setting(**setting) for setting in facts["settings"]):
        for statistic in STATISTICS:
            for stage, logged in each.logged[statistic].items():
                error = each.error(stage, statistic)
                assert error is not None
                allowed = MAX_STEPS_OFF if stage == "patch_step" else REL_TOL
                within = f"{MAX_STEPS_OFF:g} step" if stage == "patch_step" else f"{REL_TOL:.0%}"
                found[f"{each.system} {each.name}, {statistic} {stage}"] = Judged(
                    f"{logged:.4g} within {within}", f"{each.ours[statistic][stage]:.4g}", abs(error) <= allowed
                )
    return found
