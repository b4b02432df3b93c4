"""The scorecard of real machines as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from conf.page import table
from sim.study.hardware.card import BANDED

Facts = Mapping[str, Any]
"""The card as its JSON has it (card.plain)."""

TOLD = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "maximum"}


def render(facts: Facts, image: str | None) -> str:
    """The page; ``image`` is the figure's file name, None where there is none."""
    blocks = ["# Real machines, replayed", _head(facts)]
    if image is not None:
        blocks.append(f"![Predicted against measured]({image})")
    if facts["submissions"]:
        blocks += _submissions(facts)
    if facts["routed"]:
        blocks += _routed(facts["routed"])
    return "\n\n".join(blocks) + "\n"


def tally(facts: Facts) -> str:
    """The errors in a line."""
    said = [f"{TOLD[name]} {_share(facts['errors'][name]['median'])}" for name in ("p50", "p90", "p99", "max")]
    runs = len(facts["submissions"])
    line = f"{runs} submissions ({facts['form']}), median error: {', '.join(said)}" if runs else "no submissions"
    return line + (f"; {_band_tally(facts['routed'])}" if facts["routed"] else "")


def _band_tally(runs: Sequence[Facts]) -> str:
    """Count the measured values in the band of their draws, and say how far outside the others are."""
    every, planned = _outside(runs), _outside([each for each in runs if each["routing"] != "random"])
    line = f"routed, nothing fitted: {every.count(0)} of {len(every)} measured means and p99 in the band of the draws"
    return line + (f", of planned routers at most {_share(max(planned))} outside" if planned else "")


def _outside(runs: Sequence[Facts]) -> list[float]:
    found = (each["outside"][name] for each in runs for name in BANDED)
    return [abs(value) for value in found if value is not None]


def _head(facts: Facts) -> str:
    return (
        f"Made by `mezzotint scorecard hardware` ({facts['form']}). Runs that others measured on real GPUs are served "
        "again by the simulator: their own arrivals, their own server, and of the machine one number. "
        "MLPerf is a trademark of MLCommons; every result is cited by round, division, submitter and system, and what "
        "stands beside it is ours, not verified by MLCommons."
    )


def _submissions(facts: Facts) -> list[str]:
    runs = facts["submissions"]
    above = [run for run in runs if run["load"] > 1]
    equal = sum(
        f"{run['scheduled_qps']['ours']:.2f}" == f"{run['scheduled_qps']['logged']:.2f}"
        for run in runs
        if run["scheduled_qps"]["logged"] is not None
    )
    return [
        "## MLPerf Inference, SDXL, server scenario",
        "From the logs in mlcommons/inference_results_v4.1 and v5.1 (Apache-2.0); conf/data/mlperf-sdxl-server.csv has "
        "commit and path of each.",
        "**Fitted** (role `fit`): the seconds per image at the server's batch size, one number for each system, so "
        "that the simulated mean is the measured one. A batch that is not full takes its share. **Predicted**: all "
        "else. The arrivals are made again from the logged seed; the scheduled rate is the logged one to two decimals "
        f"in {equal} of {len(runs)} runs.",
        table(
            ("", "median error", "90 % of the runs within", "median error, nothing fitted"),
            [
                (TOLD[name], *(_share(facts["errors"][name][key]) for key in ("median", "p90", "unfitted_median")))
                for name in TOLD
            ],
            right=True,
        ),
        "**What one number's error does.** Nobody knows a service time to a per cent, and near saturation that is all "
        "that counts: the band is what p99 becomes if every image takes 1, 2 or 3 % less or more, from reruns. It is "
        "the error bar of any simulator at that load. *Nothing fitted* takes the same system's offline seconds per "
        "image; its p99 stands with the same band.",
        table(
            (
                *("run", "GPUs", "load", "mean", "p50", "p90", "p99", "error", "p99.9", "max"),
                *("p99 at ±1 %", "±2 %", "±3 %", "nothing fitted: mean", "p99", "at ±3 %", "error"),
            ),
            [_run(run) for run in runs],
            right=True,
        ),
        "Seconds; p50, p90, p99, p99.9 and max are measured → predicted, and so is the mean where nothing is fitted.",
        f"**Above load 1.** {len(above)} of these {len(runs)} valid runs offer more work than the machine does, by the "
        f"fit (up to {max(run['load'] for run in runs):.3f}). They pass because a run lasts ten minutes: the queue "
        "grows from its first minute to its last, and the limit of 20 s is not reached in time. A published server "
        "rate is not a rate that can be sustained, and where a steady-state formula says infinity a run of finite "
        f"length says seconds. They are: {'; '.join(run['name'] for run in above) or 'none'}.",
    ]


def _run(run: Facts) -> tuple[str, ...]:
    measured, fitted, unfitted = run["measured_s"], run["fitted"], run["unfitted"]

    def pair(measure: str, said: Facts | None) -> str:
        known = measured.get(measure)
        told = "-" if said is None else f"{said['latency_s'][measure]:.2f}"
        return f"{'-' if known is None else f'{known:.2f}'} → {told}"

    return (
        f"{run['name']} ({run['accelerator']})",
        str(run["gpus"]),
        f"{run['load']:.3f}",
        f"{measured['mean']:.2f}",
        *(pair(name, fitted) for name in ("p50", "p90", "p99")),
        _signed(fitted["error"]["p99"]),
        *(pair(name, fitted) for name in ("p999", "max")),
        *(_band(fitted, share) for share in (1, 2, 3)),
        *(pair(name, unfitted) for name in ("mean", "p99")),
        _band(unfitted, 3),
        _signed(None if unfitted is None else unfitted["error"]["p99"]),
    )


def _band(said: Facts | None, percent: int) -> str:
    return "-" if said is None else spread(said["latency_s"]["p99"], said["p99_with_service_moved_s"], percent)


def spread(said_s: float, moved_s: Mapping[str, float], percent: int) -> str:
    """From the least to the most of a prediction and those with the service time moved by up to ``percent``."""
    within = [value for share, value in moved_s.items() if abs(float(share.removesuffix("%"))) <= percent]
    return f"{min([said_s, *within]):.2f} to {max([said_s, *within]):.2f}" if within else "-"


def _routed(runs: Sequence[Facts]) -> list[str]:
    return [
        "## Routing on three H100",
        "llm-d's benchmark of diffusion serving (zetxqx/llm-d, guides/diffusion-serving): Qwen-Image in vLLM-Omni, one "
        "image at a time, a queue for each GPU, 80 requests; mix, gaps and service times are theirs and nothing is "
        "fitted. llm-d breaks the ties of *least declared cost* at random, by its own configuration. Which GPU a tie "
        f"or a random choice took was not recorded, so the prediction is a band: nine in ten of {runs[0]['draws']} "
        "draws lie in it. A tie between two GPUs that are equally far from done in declared cost, and not in seconds, "
        "can move p99 by a tenth. *Outside* says how far the nearer end of the band is from the measured value. The "
        "band has no error of the service times in it: the last columns say what that does to the median draw.",
        "On a mix that was kept apart, ties to the first GPU gave a p99 that was 4.6 and 6.5 % too high, at the edge "
        "of the band of random draws. On the mix below they happened to be a good draw; no draw is a prediction.",
        table(
            (
                *("mix", "requests/s", "router", "mean", "band of draws", "outside", "p99", "band of draws", "outside"),
                *("median draw", "p99 at ±1 %", "±2 %", "±3 %"),
            ),
            [
                (
                    each["workload"],
                    f"{each['rate_per_s']:g}",
                    each["routing"],
                    *(cell for name in BANDED for cell in _cells(each, name)),
                    f"{each['predicted_s']['p99']:.2f}",
                    *(_moved(each, share) for share in (1, 2, 3)),
                )
                for each in runs
            ],
            right=True,
        ),
        f"Seconds; {_band_tally(runs)}.",
    ]


def _cells(each: Facts, name: str) -> tuple[str, str, str]:
    known, outside = each["measured_s"].get(name), each["outside"][name]
    low, high = each["nine_in_ten_draws_s"][name]
    said = "in the band" if outside == 0 else _signed(outside)
    return "-" if known is None else f"{known:g}", f"{low:.2f} to {high:.2f}", said


def _moved(each: Facts, percent: int) -> str:
    moved_s = {share: said["p99"] for share, said in each["with_service_moved_s"].items()}
    return spread(each["predicted_s"]["p99"], moved_s, percent)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}".replace("%", " %")


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}".replace("%", " %")
