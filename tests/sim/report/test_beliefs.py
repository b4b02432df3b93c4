"""The report's estimates beside true seconds."""

from pathlib import Path

import pytest

from mezzotint.sim.report.beliefs import beliefs
from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.run.simulate import simulate_into as run_into
from tests.sim.lab import configured

RUN = (
    *("models=qwen-image", "cluster=h100", "cluster.count=2", "quality=alpha", "slo=[]"),
    *("trace.requests=40", "trace.history=0", "arrivals.rate_rpm=8"),
)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_wrong_belief_shows_as_its_factor(tmp_path: Path, factor: float) -> None:
    config = configured(*RUN, "system=super-p95", "estimates=wrong", f"estimates.factor={factor}")
    run_into(config, tmp_path / "run", progress=False)
    runs = load_runs([tmp_path])
    found = beliefs(runs).iloc[0]
    assert (found["size"], found["requests"]) == ("1024x1024", 40)
    assert found["ratio"] == pytest.approx(factor)
    assert len(charts.beliefs(runs)) == 1


def test_runs_without_estimates_have_no_beliefs(tmp_path: Path) -> None:
    run_into(configured(*RUN, "system=vanilla"), tmp_path / "run", progress=False)
    assert beliefs(load_runs([tmp_path])).empty
    assert charts.beliefs(load_runs([tmp_path])) == []
