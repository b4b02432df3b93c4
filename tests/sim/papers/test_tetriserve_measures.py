"""Measures of TetriServe: shares by mix and scale, and who is first."""

from pathlib import Path

import pytest

from sim.papers.scorecard.measures.tetriserve import MEASURES
from sim.papers.scorecard.runs.finished import Finished, Runs, Unmeasured
from sim.papers.scorecard.runs.points import Point


def run(
    experiment: str, late: float, mix: str = "uniform", scale: float = 1.0, **choices: str
) -> tuple[Point, Finished]:
    point = Point(experiment, {"trace": f"tetriserve-{mix}", **choices}, ())
    config = {"slo_by_size": {"2048x2048": f"{5 * scale:g}s"}}
    return point, Finished(point, config, Path(), {"system": "s", "slo": {"own": {"violation_rate": late}}})


def test_share_is_the_mean_over_the_seeds_of_one_mix_and_scale() -> None:
    runs = Runs(
        (
            run("tetriserve-table3", 0.5, system="rssp", seed="1"),
            run("tetriserve-table3", 0.7, system="rssp", seed="2"),
            run("tetriserve-table3", 0.9, "skewed", system="rssp"),
            run("tetriserve-table3", 0.1, system="tetriserve"),
        )
    )
    assert MEASURES["T3a"](runs) == pytest.approx(0.4)
    assert MEASURES["T3e"](runs) == pytest.approx(0.1)
    with pytest.raises(Unmeasured, match="no run of the skewed mix at 1 times the deadlines"):
        MEASURES["T3f"](runs)


def compared(tetriserve: float, xdit: float) -> Runs:
    scales = (1.0, 1.1, 1.2, 1.5)
    return Runs(
        tuple(
            run(f"tetriserve-figure7{other}", late, "uniform", scale, **choice)
            for scale in scales
            for other, late, choice in (
                ("", tetriserve, {"system": "tetriserve"}),
                ("", 0.8, {"system": "rssp"}),
                *(("-xdit", late, {"group_policy.degree": degree}) for degree, late in zip("1248", (0.9, xdit, 0.9, 0.9), strict=True)),
            )
        )
    )  # fmt: skip


def test_first_is_ahead_of_every_fixed_degree_at_every_scale() -> None:
    assert MEASURES["T7-uniform"](compared(0.4, 0.5)) is True
    assert MEASURES["T7-uniform"](compared(0.6, 0.5)) is False
    assert MEASURES["T7a"](compared(0.4, 0.5)) == pytest.approx(1.2)
