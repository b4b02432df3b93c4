"""Measures of TetriServe: shares by mix and deadlines, and who is first."""

from pathlib import Path

import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs
from mezzotint.sim.papers.scorecard.measures.tetriserve import full_system_is_best
from mezzotint.sim.papers.scorecard.study import load_study

DEADLINES = [
    "{256x256:1.5s,512x512:2s,1024x1024:3s,2048x2048:5s}",
    "{256x256:1.65s,512x512:2.2s,1024x1024:3.3s,2048x2048:5.5s}",
    "{256x256:1.8s,512x512:2.4s,1024x1024:3.6s,2048x2048:6s}",
    "{256x256:2.25s,512x512:3s,1024x1024:4.5s,2048x2048:7.5s}",
]
ENTRIES = load_study("tetriserve", quick=False).entries


def run(experiment: str, late: float, **choices: str) -> tuple[Point, Finished]:
    point = Point(experiment, {"trace": "tetriserve-uniform", **choices}, ())
    return point, Finished(point, {}, Path(), {"system": "s", "slo": {"own": {"violation_rate": late}}})


def compared(tetriserve: float, xdit: float) -> Runs:
    """Return runs with these shares of late requests; xDiT's are of degree 2, and the other baselines' larger."""
    runs = []
    for deadlines in DEADLINES:
        runs.append(run("tetriserve-figure7", tetriserve, system="tetriserve", slo_by_size=deadlines))
        runs.append(run("tetriserve-figure7", 0.8, system="rssp", slo_by_size=deadlines))
        for degree in "1248":
            late = xdit if degree == "2" else 0.9
            choices = {"group_policy.degree": degree, "slo_by_size": deadlines}
            runs.append(run("tetriserve-figure7-xdit", late, **choices))
    return Runs(tuple(runs))


def test_first_is_ahead_of_every_fixed_degree_at_every_scale() -> None:
    assert ENTRIES["T7-uniform"].evaluate(compared(0.4, 0.5)) is True
    assert ENTRIES["T7-uniform"].evaluate(compared(0.6, 0.5)) is False
    assert ENTRIES["T7a"].evaluate(compared(0.4, 0.5)) == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("late", "best"), [((0.5, 0.4, 0.4), True), ((0.5, 0.3, 0.4), False), ((0.4, 0.5, 0.398), False)]
)
def test_full_system_is_to_lead_the_schedule_by_more_than_a_request(late: tuple[float, ...], best: bool) -> None:
    variants = (("False", "False"), ("True", "False"), ("True", "True"))
    runs = [
        run("tetriserve-table5", share, trace=trace, slo_by_size=DEADLINES[0], placement=placement, scale_up=scale_up)
        for trace in ("tetriserve-uniform", "tetriserve-skewed")
        for share, (placement, scale_up) in zip(late, variants, strict=True)
    ]
    assert full_system_is_best(Runs(tuple(runs))) is best
