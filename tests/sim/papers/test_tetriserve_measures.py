"""Measures of TetriServe: shares by mix and scale, and who is first."""

from pathlib import Path

import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.tetriserve import gain, is_first, share


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
    assert share(runs, "uniform", system="rssp") == pytest.approx(0.4)
    assert share(runs, "skewed", system="rssp") == pytest.approx(0.1)
    with pytest.raises(Unmeasured, match=r"no run of the uniform mix at 1\.5 times the deadlines"):
        share(runs, "uniform", 1.5)


def compared(tetriserve: float, xdit: float) -> Runs:
    """Return runs with these shares of late requests; xDiT's are of degree 2, and the other baselines' larger."""
    runs = []
    for scale in (1.0, 1.1, 1.2, 1.5):
        runs.append(run("tetriserve-figure7", tetriserve, scale=scale, system="tetriserve"))
        runs.append(run("tetriserve-figure7", 0.8, scale=scale, system="rssp"))
        for degree in "1248":
            late = xdit if degree == "2" else 0.9
            runs.append(run("tetriserve-figure7-xdit", late, scale=scale, **{"group_policy.degree": degree}))
    return Runs(tuple(runs))


def test_first_is_ahead_of_every_fixed_degree_at_every_scale() -> None:
    assert is_first(compared(0.4, 0.5), "uniform")
    assert not is_first(compared(0.6, 0.5), "uniform")
    assert gain(compared(0.4, 0.5), "uniform", 1.1) == pytest.approx(1.2)
