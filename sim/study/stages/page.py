"""The page on add-ons, stage by stage, as Markdown."""

from collections.abc import Sequence

from sim.study.stages.replay import STAGES, STATISTICS, Setting, Statistic, worst

TITLES = {
    "latency_s": "end to end [s]",
    "denoise_s": "denoising [s]",
    "lora_s": "LoRAs before it [s]",
    "other_s": "text, VAE, post [s]",
    "patch_step": "merged after step",
}

NEAR = 0.05
"""What counts as near, end to end."""

HEAD = """# ControlNets and LoRAs on H800, stage by stage

Katz's artifact (SwiftDiffusion's successor) logged five systems with *n* ControlNets and *m* LoRAs (nC/mL), one
request at a time: SDXL, 1024 x 1024, 50 steps. The profile (backends/profiles/h800_sdxl.yaml) and the factors of the
systems (conf/system) were taken from 0C/0L, 1C/0L, 0C/1L and 3C/0L alone; every other setting is **predicted**. Times
are fitted to means. What a LoRA takes is drawn from its spread in the system's own log of 0C/1L, each LoRA alone, so
that medians are predicted beside the means.

Each cell has ours, the log's in brackets, and the error. Denoising holds what is merged and waited for between steps,
as in the log. Katz's 1C/2L was logged on a day of slow storage and is simulated with the times of loads of that very
log (conf/fetch/katz-slow-storage.yaml): its loads are given, the rest is predicted. The constants that the artifact
adds when it plots (0.28 s for a ControlNet, 0.35 s for NIRVANA's image) are in neither.

Made by `mezzotint scorecard stages`.
"""

REASONS = """
What is off, and why:

- **LoRAs before the first step** take as long as their bytes say, as one LoRA was measured. In the log two files
  are read in 1.04 s for our 1.12, and their layers are created in 5.7 s for our 6.5; but the second LoRA has layers
  in the text encoders too, 0.6 s that one LoRA does not show. The two nearly cancel.
- **Katz merges two LoRAs** in 0.12 s and copies them in 0.09. Here each is merged as the one that was logged alone,
  one after the other: 0.18 s, and 0.10 for the copies. That is most of its error.
- **Medians with two LoRAs**: each LoRA draws alone, so that two even each other out and their median is near their
  mean. In diffusers' log it is 4 % below: what slows one seems to slow the other. One LoRA a request cannot show that.
- **DistriFusion's medians without LoRAs** are up to 4 % below its means, to which its steps are fitted.
- **NIRVANA's steps** are 1 to 2 % faster in the log than diffusers', with which ours are made.
- **What is beside the steps** grows a little with ControlNets and LoRAs in the log (0.17 to 0.20 s: more
  conditioning images), and not here.
"""


def render(found: Sequence[Setting]) -> str:
    """The page."""
    tables = [f"## {statistic.capitalize()}s\n\n{_table(found, statistic)}" for statistic in STATISTICS]
    return "\n".join([HEAD, *tables, REASONS.lstrip("\n")])


def _table(found: Sequence[Setting], statistic: Statistic) -> str:
    rows = ["| system | setting | |" + "".join(f" {TITLES[stage]} |" for stage in STAGES)]
    rows.append("|---|---|---|" + "---|" * len(STAGES))
    for each in sorted(found, key=lambda each: (each.system, each.loras, each.controlnets)):
        how = "calibrated" if each.calibrated else "**predicted**"
        cells = "".join(f" {_cell(each, stage, statistic)} |" for stage in STAGES)
        rows.append(f"| {each.system} | {each.name} | {how} |{cells}")
    said = ", ".join(
        f"{TITLES[stage].partition(' [')[0]} {_error(stage, worst(found, stage, statistic)).lstrip('+')}"
        for stage in STAGES
    )
    near = [abs(each.error("latency_s", statistic) or 0.0) <= NEAR for each in found]
    return "\n".join(rows) + (
        f"\n\nThe largest error of a predicted setting: {said}. End to end, {sum(near)} of {len(near)} settings are "
        f"within {100 * NEAR:g} %.\n"
    )


def _cell(setting: Setting, stage: str, statistic: Statistic) -> str:
    error = setting.error(stage, statistic)
    if error is None:
        return "–"
    digits = 1 if stage == "patch_step" else 2
    ours, logged = setting.ours[statistic][stage], setting.logged[statistic][stage]
    return f"{ours:.{digits}f} ({logged:.{digits}f}) {_error(stage, error)}"


def _error(stage: str, error: float) -> str:
    return f"{error:+.1f}" if stage == "patch_step" else f"{100 * error:+.1f} %"
