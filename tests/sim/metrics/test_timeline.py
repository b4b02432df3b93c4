"""timeline.json.gz: a valid Chrome trace with the spans of the usage log."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.metrics.timeline import write_timeline
from mezzotint.sim.run.simulate import write
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import engine, simulated

SMALL = ("trace.requests=60", "arrivals.rate_rpm=9")
MODM = (
    "system=modm-fixed", "trace.requests=200", "arrivals.rate_rpm=8", "cluster.count=4", "controller=timetable",
    "controller.at={300: {large: 1, small: 3}, 900: {large: 3, small: 1}}", "sample_s=30",
)  # fmt: skip


def read(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def lawful(events: list[dict[str, Any]]) -> float:
    """Check what holds of every trace; return the seconds of all spans."""
    buckets: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        assert event["ph"] in ("M", "X", "C", "i")
        assert isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            buckets[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for bucket in buckets.values():
        times = np.array(sorted(bucket))
        assert (times[1:, 0] >= times[:-1, 1] * (1 - 1e-12) - 1e-6).all()
    return sum(event["dur"] for event in events if event["ph"] == "X") / 1e6


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    "executor", [("executor=sequential",), ("executor=continuous-batching", "executor.max_batch=1")]
)
def test_timeline_agrees_with_the_summary(tmp_path: Path, executor: tuple[str, ...]) -> None:
    outcome = simulated(*MODM, "timeline=true", *executor)
    write(outcome, tmp_path / "a")
    write(outcome, tmp_path / "b")
    events = read(tmp_path / "a" / "timeline.json.gz")
    gpu = outcome.summary["gpu"]
    assert gpu["switches"] > 0
    assert lawful(events) == pytest.approx(gpu["busy_fraction"] * gpu["seconds"])
    assert {"queued", "in_system", "busy", "arrived"} <= {e["name"] for e in events if e["ph"] == "C"}
    decisions = [event["name"] for event in events if event["ph"] == "i"]
    assert decisions.count("split") == 2
    assert decisions.count("order") >= 2
    served = {event["args"]["request"] for event in events if event.get("cat") == "serve"}
    if executor == ("executor=sequential",):
        assert len(served) == 200
    assert (tmp_path / "a" / "timeline.json.gz").read_bytes() == (tmp_path / "b" / "timeline.json.gz").read_bytes()


def test_group_is_drawn_on_each_of_its_gpus(tmp_path: Path) -> None:
    run = engine([0.0], [20.0], 3, executor=Stages(FixedDegree(2), speedup={2: 2.0}))
    run.run()
    path = tmp_path / "t.json.gz"
    write_timeline(run.record, path, ["GPU 0", "GPU 1", "GPU 2"], run.cluster.gpus_of, ["one"])
    events = read(path)
    assert lawful(events) == 20.0
    assert sorted(event["tid"] for event in events if event["ph"] == "X") == [0, 1]


def test_values_json_cannot_hold_do_not_lose_the_timeline(tmp_path: Path) -> None:
    """A decision has NumPy numbers, and a gauge is infinite."""

    def decide(run: Any, now_s: float) -> None:
        run.log_decision("plan", gpus=np.int64(3), rates=[np.float64(0.5), float("inf")], why={1: Path("x")}, none=None)

    run = engine([0.0, 100.0], [1.0] * 2, controllers=[Acts((1.0, decide))])
    run.gauge("ratio", lambda now_s: float("inf"))
    run.run()
    path = tmp_path / "t.json.gz"
    write_timeline(run.record, path, ["GPU 0"], run.cluster.gpus_of, ["one", "two"])
    (plan,) = [event for event in read(path) if event["ph"] == "i"]
    assert plan["args"] == {"gpus": 3, "rates": [0.5, "inf"], "why": {"1": "x"}, "none": None}


def test_timeline_is_written_only_if_asked_for(tmp_path: Path) -> None:
    """A run without one also removes that of an earlier run."""
    write(simulated("trace.requests=5", "timeline=true"), tmp_path)
    assert (tmp_path / "timeline.json.gz").exists()
    write(simulated("trace.requests=5"), tmp_path)
    assert not (tmp_path / "timeline.json.gz").exists()


def test_sweep_writes_a_timeline_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", *SMALL, "timeline=true", "seed=1,2", "hydra.launcher.n_jobs=1", "run.dir=sweep"]) == 0
    for number in "01":
        lawful(read(tmp_path / "sweep" / number / "timeline.json.gz"))


def test_gpu_with_unknown_power_has_no_joules_in_the_timeline(tmp_path: Path) -> None:
    """The spans of a run without a name have no name of a request."""
    run = engine([0.0], [20.0], gpu=Gpu("x", None, None, "not known"))
    run.run()
    write_timeline(run.record, tmp_path / "t.json.gz", ["GPU 0"], run.cluster.gpus_of, ["one"])
    (served,) = [event for event in read(tmp_path / "t.json.gz") if event["ph"] == "X"]
    assert served["args"] == {"kind": "serve", "model": "large", "batch": 1, "request": "one"}
