"""`mezzotint reproduce stages`: requests with ControlNets and LoRAs, stage by stage, compared with Katz's logs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from mezzotint.sim.papers.rows import read_cells
from mezzotint.sim.papers.runs import Point, compose_point
from mezzotint.sim.papers.scorecard.measures.swiftdiffusion import CALIBRATED, SLOW
from mezzotint.sim.papers.scorecard.targets import REL_TOL
from mezzotint.sim.papers.study import DATA, RESULTS, Check, Comparison, Output, Results, Study
from mezzotint.sim.run.simulate import Outcome, simulate

STAGES = {
    "latency_s": "end to end [s]",
    "denoise_s": "denoising [s]",
    "lora_s": "LoRAs before it [s]",
    "other_s": "text, VAE, post [s]",
    "patch_step": "merged after step",
}
"""Stages of the log: arrival to image; denoising with waits and merges; LoRAs before the first step; text encoder, VAE
and post-processing; steps before the LoRAs are merged."""

MAX_STEP_ERROR = 1.0
"""Tolerance of ``patch_step`` in --check, in steps; seconds have REL_TOL."""

NEAR = 0.05
"""Error that the page counts as near."""

LOGGED = DATA / "katz-stages.csv"
"""Means and medians over each run's requests except the first, from the artifact's logs, without its constants."""

Statistic = Literal["mean", "median"]
STATISTICS: Mapping[Statistic, str] = {"mean": "", "median": "median_"}
"""Beginning of a statistic's columns in the log."""

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


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Compare systems with add-ons, stage by stage, with Katz's logs, and write swiftdiffusion.md and .json.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    return STUDY.reproduce(lambda: {"settings": [asdict(setting) for setting in settings()]}, output, check=check)


def settings(which: Callable[[str, int, int], bool] = lambda *_: True) -> Iterator[Setting]:
    """Simulate the logged settings for which ``which(system, controlnets, loras)`` is true, in order."""
    for row in read_cells(LOGGED):
        setting = (row["system"], int(row["controlnets"]), int(row["loras"]))
        if which(*setting):
            logged = {
                statistic: {stage: float(row[prefix + stage]) for stage in STAGES if prefix + stage in row}
                for statistic, prefix in STATISTICS.items()
            }
            simulated = stages(simulate(config(*setting)))
            ours = {of: {stage: simulated[of][stage] for stage in values} for of, values in logged.items()}
            yield Setting(*setting, logged, ours)


def config(system: str, controlnets: int, loras: int) -> dict[str, Any]:
    """Return the configuration of one setting, one request at a time."""
    words = ["experiment=swiftdiffusion-evaluation", f"system={system}", f"trace.controlnets={controlnets}"]
    words += [f"trace.loras={loras}", *SYSTEM_OVERRIDES.get(system, ())]
    if (system, controlnets, loras) == SLOW:
        words += ["lora_fetch=katz-slow-storage", "trace.requests=2010"]
    return compose_point(Point("swiftdiffusion-evaluation", {}, tuple(words)))


def stages(outcome: Outcome) -> dict[Statistic, dict[str, float]]:
    """Return mean and median seconds of each stage over the requests after the warm-up."""
    table = outcome.requests.slice(len(outcome.requests) - outcome.summary["requests"]["arrived"])
    names = ("arrival_s", "start_s", "finish_s", "load_s", "fetch_s", "decode_s", "patch_step")
    columns = {name: np.nan_to_num(table[name].to_numpy()) for name in names if name in table.column_names}
    took_s = columns["finish_s"] - columns["start_s"]
    by_stage = {
        "latency_s": columns["finish_s"] - columns["arrival_s"],
        "denoise_s": took_s - columns["load_s"] - columns["fetch_s"] - columns["decode_s"],
        "lora_s": columns["load_s"],
        "other_s": columns["decode_s"],
        "patch_step": columns.get("patch_step", np.zeros(len(took_s))),
    }
    return {of: {name: float(getattr(np, of)(values)) for name, values in by_stage.items()} for of in STATISTICS}


def read_settings(facts: Results) -> list[Setting]:
    """Return the settings of the JSON file."""
    return TypeAdapter(list[Setting]).validate_python(facts["settings"])


def max_error(settings: Iterable[Setting], stage: str, statistic: Statistic = "mean") -> float:
    """Return the largest absolute error of a stage over the settings that nothing was fitted to."""
    errors = [setting.error(stage, statistic) for setting in settings if not setting.calibrated]
    return max((abs(error) for error in errors if error is not None), default=0.0)


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare every stage of every setting in the JSON file with the log."""
    rows = {}
    for setting in read_settings(facts):
        for statistic in STATISTICS:
            for stage, logged in setting.logged[statistic].items():
                is_step = stage == "patch_step"
                allowed, within = (MAX_STEP_ERROR, "1 step") if is_step else (REL_TOL, f"{REL_TOL:.0%}")
                rows[f"{setting.system} {setting.name}, {statistic} {stage}"] = Comparison(
                    f"{logged:.4g} within {within}",
                    f"{setting.ours[statistic][stage]:.4g}",
                    abs(setting.error(stage, statistic) or 0.0) <= allowed,
                )
    return rows


def lines(facts: Results) -> Iterator[str]:
    """Yield the largest errors of each stage."""
    found = read_settings(facts)
    for stage in STAGES:
        mean, median = (max_error(found, stage, statistic) for statistic in STATISTICS)
        yield f"{stage}: largest error of a predicted setting: mean {mean:.3g}, median {median:.3g}"


def values(facts: Results) -> Results:
    """Return the settings with their errors, in the order of the page."""
    found = sorted(read_settings(facts), key=lambda setting: (setting.system, setting.loras, setting.controlnets))
    near = {of: sum(abs(setting.error("latency_s", of) or 0.0) <= NEAR for setting in found) for of in STATISTICS}
    return {"settings": found, "stages": STAGES, "near": near, "limit": NEAR, "max_error": max_error}


STUDY = Study("swiftdiffusion", comparisons, values=values, lines=lines)
