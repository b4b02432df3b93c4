"""A log's own arrivals: the default for a file, refused where there are none, scaled by a rate; sweeps of a key."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from mezzotint.sim.cli import main
from mezzotint.sim.run.config.choices import CONF, choices
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import make, write

TIMES = [0.0, 10.0, 15.0, 600.0, 605.0, 1200.0]
FILE = ("trace=file", "trace.path=log.parquet")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    columns = {"request_id": [f"r{n}" for n in range(len(TIMES))], "arrival_s": TIMES}
    write(make(columns, name="log", source="a test"), "log.parquet")
    write(make(columns, name="order", source="a test", notes={"arrival_s": ORDER_ONLY}), "order.parquet")


def arrivals(*words: str) -> list[float]:
    assert main(["run", *FILE, *words, "run.dir=out"]) == 0
    found: list[float] = pq.read_table("out/requests.parquet").column("arrival_s").to_pylist()
    return found


def test_timed_file_arrives_at_its_own_times_by_default() -> None:
    assert arrivals() == TIMES
    assert arrivals("arrivals=closed", "run.dir=closed") != TIMES


def test_rate_scales_the_times_of_a_file() -> None:
    """5 gaps in 1200 s are 0.25 a minute; at 0.5 every gap is half as long."""
    assert arrivals("arrivals.rate_rpm=0.5") == pytest.approx([time / 2 for time in TIMES])


@pytest.mark.parametrize("words", [(), ("arrivals=trace",)])
def test_untimed_file_needs_a_choice_of_arrivals(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "trace=file", "trace.path=order.parquet", *words, "run.dir=out"]) == 2
    error = capsys.readouterr().err
    assert "order.parquet has an order of requests and no times" in error
    assert "arrivals=poisson arrivals.rate_rpm=10" in error
    assert main(["run", "trace=file", "trace.path=order.parquet", "arrivals=poisson", "run.dir=out"]) == 0


def _chooses_arrivals(experiment: str) -> str | None:
    """Return the experiment whose file chooses the arrivals of ``experiment``: itself, or one that it builds on."""
    node = yaml.safe_load((CONF / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8"))
    if any(isinstance(entry, dict) and "override /arrivals" in entry for entry in node["defaults"]):
        return experiment
    parents = (entry for entry in node["defaults"] if isinstance(entry, str) and entry != "_self_")
    return next(filter(None, map(_chooses_arrivals, parents)), None)


CHOSEN_BY = {choice.name: _chooses_arrivals(choice.name) for choice in choices("experiment")}


def test_every_experiment_chooses_its_arrivals() -> None:
    assert None not in CHOSEN_BY.values()


@pytest.mark.parametrize("experiment", {chooser: name for name, chooser in CHOSEN_BY.items()}.values())
def test_experiment_keeps_its_arrivals_with_a_file(experiment: str) -> None:
    """One of the experiments whose arrivals one file chooses."""
    own = compose_config([f"experiment={experiment}"]).arrivals
    assert compose_config([f"experiment={experiment}", *FILE]).arrivals == own


def test_plan_capacity_scales_a_log_and_reports_rate_and_scale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "synth", "--requests", "200", "--rate-rpm", "3", "-o", "log.parquet"]) == 0
    words = ["plan", "capacity", *FILE, "cluster.count=4", "--tolerance", "0.5", "-o", "plan"]
    assert main([*words, "--from", "0.3", "--to", "9", "--replications", "3"]) == 2
    assert "the same for every seed" in capsys.readouterr().err
    assert main([*words, "--from", "0.3", "--to", "9"]) == 0
    results = json.loads(Path("plan/rate.json").read_text())
    own = pq.read_table("log.parquet").column("arrival_s").to_numpy()
    rate_rpm = 60 * (len(own) - 1) / np.ptp(own)
    assert results["own_clock"]["rate_rpm"] == pytest.approx(rate_rpm)
    assert results["own_clock"]["scale"] == pytest.approx(results["rate_rpm"]["mean"] / rate_rpm)
    assert len(results["replications"]) == 1
    folder = next(each["folder"] for each in results["runs"] if each["rate_rpm"] == results["rate_rpm"]["mean"])
    times = pq.read_table(f"plan/{folder}/requests.parquet").column("arrival_s").to_numpy()
    assert np.diff(times) == pytest.approx(np.diff(own) / results["own_clock"]["scale"])
    assert "as fast; its own mean rate is" in capsys.readouterr().out


def test_command_line_key_replaces_the_sweep_of_an_experiment() -> None:
    words = ["experiment=nirvana-table3", "eviction=lfu,fifo", "cache.capacity=5", *FILE, "hydra.launcher.n_jobs=1"]
    assert main(["run", "-m", *words, "run.dir=sweep"]) == 0
    runs = [yaml.safe_load(path.read_text()) for path in Path("sweep").glob("*/config.yaml")]
    assert sorted(run["eviction"]["_target_"].rpartition(".")[2] for run in runs) == ["Fifo", "Lfu"]
    assert [run["cache"]["capacity"] for run in runs] == [5, 5]
