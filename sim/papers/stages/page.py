"""Page on add-ons, stage by stage, in Markdown."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

import mezzotint.figures.page
from mezzotint.figures.page import DASH, percent
from mezzotint.sim.papers.stages.replay import STAGES, STATISTICS, Setting, Statistic, max_error
from mezzotint.sim.papers.study import Results

TITLES = {
    "latency_s": "end to end [s]",
    "denoise_s": "denoising [s]",
    "lora_s": "LoRAs before it [s]",
    "other_s": "text, VAE, post [s]",
    "patch_step": "merged after step",
}

NEAR = 0.05


def render(facts: Results) -> str:
    """Fill the page with the JSON file's content."""
    found = TypeAdapter(list[Setting]).validate_python(facts["settings"])
    tables = [_table(found, statistic) for statistic in STATISTICS]
    return mezzotint.figures.page.render(
        __package__, "page.md.jinja", tables=tables, titles=[*TITLES.values()], near=NEAR
    )


def _table(found: Sequence[Setting], statistic: Statistic) -> dict[str, Any]:
    rows = [
        [each.system, each.name, "calibrated" if each.calibrated else "**predicted**"]
        + [_cell(each, stage, statistic) for stage in STAGES]
        for each in sorted(found, key=lambda each: (each.system, each.loras, each.controlnets))
    ]
    largest = {stage: _error(stage, max_error(found, stage, statistic)).lstrip("+") for stage in STAGES}
    return {
        "name": statistic,
        "rows": rows,
        "worst": ", ".join(f"{TITLES[stage].partition(' [')[0]} {error}" for stage, error in largest.items()),
        "near": sum(abs(each.error("latency_s", statistic) or 0.0) <= NEAR for each in found),
    }


def _cell(setting: Setting, stage: str, statistic: Statistic) -> str:
    error = setting.error(stage, statistic)
    if error is None:
        return DASH
    digits = 1 if stage == "patch_step" else 2
    ours, logged = setting.ours[statistic][stage], setting.logged[statistic][stage]
    return f"{ours:.{digits}f} ({logged:.{digits}f}) {_error(stage, error)}"


def _error(stage: str, error: float) -> str:
    return f"{error:+.1f}" if stage == "patch_step" else percent(error, sign=True)
