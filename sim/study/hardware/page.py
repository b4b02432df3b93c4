"""The scorecard of real machines as Markdown."""

from collections.abc import Mapping, Sequence

import conf.page
from conf.page import DASH, percent
from sim.study.hardware.card import BANDED
from sim.study.verdicts import Facts

NAMES = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "maximum"}


def render(facts: Facts, image: str | None) -> str:
    """Fill the page with a card's JSON; ``image`` is the figure's file name, None where there is none."""
    runs = facts["submissions"]
    scheduled = [each["scheduled_qps"] for each in runs if each["scheduled_qps"]["logged"] is not None]
    keys = ("median", "p90", "unfitted_median")
    return conf.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        image=image,
        equal=sum(f"{rate['ours']:.2f}" == f"{rate['logged']:.2f}" for rate in scheduled),
        errors=[(name, *(percent(facts["errors"][of][key], 2) for key in keys)) for of, name in NAMES.items()],
        above=[run for run in runs if run["load"] > 1],
        runs=[_submission(run) for run in runs],
        routed=[_routed(run) for run in facts["routed"]],
        in_bands=_in_bands(facts["routed"]),
    )


def tally(facts: Facts) -> str:
    """Return the errors in a line."""
    said = [f"{NAMES[name]} {percent(facts['errors'][name]['median'], 2)}" for name in ("p50", "p90", "p99", "max")]
    runs = len(facts["submissions"])
    line = f"{runs} submissions ({facts['form']}), median error: {', '.join(said)}" if runs else "no submissions"
    return line + (f"; {_in_bands(facts['routed'])}" if facts["routed"] else "")


def _in_bands(runs: Sequence[Facts]) -> str:
    """Count the measured values in the band of their draws, and say how far outside the others are."""
    every, planned = _outside(runs), _outside([each for each in runs if each["routing"] != "random"])
    line = f"routed, nothing fitted: {every.count(0)} of {len(every)} measured means and p99 in the band of the draws"
    return line + (f", of planned routers at most {percent(max(planned), 2)} outside" if planned else "")


def _outside(runs: Sequence[Facts]) -> list[float]:
    found = (each["outside"][name] for each in runs for name in BANDED)
    return [abs(value) for value in found if value is not None]


def _submission(run: Facts) -> list[str]:
    fitted, unfitted = run["fitted"], run["unfitted"]

    def pairs(said: Facts | None, *measures: str) -> list[str]:
        ours = said["latency_s"] if said is not None else {}
        return [f"{_seconds(run['measured_s'].get(name))} → {_seconds(ours.get(name))}" for name in measures]

    def band(said: Facts | None, share: int) -> str:
        return DASH if said is None else spread(said["latency_s"]["p99"], said["p99_with_service_moved_s"], share)

    return [
        f"{run['name']} ({run['accelerator']})",
        *(str(run["gpus"]), f"{run['load']:.3f}", _seconds(run["measured_s"]["mean"])),
        *pairs(fitted, "p50", "p90", "p99"),
        percent(fitted["error"]["p99"], sign=True),
        *pairs(fitted, "p999", "max"),
        *(band(fitted, share) for share in (1, 2, 3)),
        *pairs(unfitted, "mean", "p99"),
        band(unfitted, 3),
        percent(unfitted and unfitted["error"]["p99"], sign=True),
    ]


def _routed(each: Facts) -> list[str]:
    cells = [each["workload"], f"{each['rate_per_s']:g}", each["routing"]]
    for name in BANDED:
        known, outside, (low, high) = (
            each["measured_s"].get(name), each["outside"][name], each["nine_in_ten_draws_s"][name],
        )  # fmt: skip
        cells += [DASH if known is None else f"{known:g}", f"{low:.2f} to {high:.2f}"]
        cells += ["in the band" if outside == 0 else percent(outside, sign=True)]
    median_s, moved_s = each["predicted_s"]["p99"], each["with_service_moved_s"]
    moved_p99_s = {share: said["p99"] for share, said in moved_s.items()}
    return [*cells, _seconds(median_s), *(spread(median_s, moved_p99_s, share) for share in (1, 2, 3))]


def spread(said_s: float, moved_s: Mapping[str, float], share: int) -> str:
    """From the least to the most of a prediction and those with the service time moved by up to ``share`` per cent."""
    within = [value for moved, value in moved_s.items() if abs(float(moved.removesuffix("%"))) <= share]
    return f"{min([said_s, *within]):.2f} to {max([said_s, *within]):.2f}" if within else DASH


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"
