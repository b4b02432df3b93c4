"""Deadlines and priorities of single requests, from the trace or by size, in place of the run's first limit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.slo import parse_by_size
from mezzotint.sim.core.workload import StandaloneLatency, Workload
from mezzotint.sim.report import tables
from mezzotint.sim.report.answer import answer
from mezzotint.sim.report.compare import slo_multiples
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.vllm_omni import vllm_omni
from mezzotint.sim.run.simulate import write as write_run
from mezzotint.sim.scheduling.disciplines.edf import Edf
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import RoundRobin
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.table.trace import make
from mezzotint.traces.table.trace import write as write_trace
from tests.sim.lab import engine, simulated

SDXL = ("models=sdxl-mlperf", "cluster=l40s", "cluster.count=1")
EDF = ("scheduler=per-worker", "router=round-robin", "discipline=edf")


def of_trace(folder: Path, slo_s: list[float | None], **columns: Any) -> tuple[str, ...]:
    """Return the words of a run of requests a second apart with these deadlines."""
    count = len(slo_s)
    rows = {"request_id": [f"r{row}" for row in range(count)], "arrival_s": np.arange(count) * 1.0, "slo_s": slo_s}
    path = write_trace(make({**rows, **columns}, name="t", source="s"), folder / "t.parquet").path
    return "trace=file", f"trace.path={path}"


@given(
    own_s=st.lists(st.none() | st.integers(1, 9), min_size=2, max_size=12),
    priority=st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_edf_serves_by_own_deadline_then_priority_then_arrival(own_s: list[int | None], priority: list[int]) -> None:
    """All arrive at once before a busy GPU; a request without a deadline of its own has the run's, 5 s."""
    count = len(own_s)
    own = np.array([np.nan if each is None else each for each in own_s])
    run = engine(
        np.zeros(count), np.ones(count), scheduler=PerWorkerQueues(RoundRobin(), Edf()), deadline=5.0,
        own_deadline_s=own, priority=priority[:count],
    )  # fmt: skip
    run.run()
    finish_s = run.record.request_columns["finish_s"]
    limit_s = np.where(np.isnan(own), 5.0, own)
    waiting = sorted(range(1, count), key=lambda row: (limit_s[row], -priority[row], row))
    assert np.argsort(finish_s).tolist() == [0, *waiting]


def test_own_deadline_replaces_the_first_limit() -> None:
    shapes = tuple(np.full(3, value, np.int32) for value in (64, 64, 4))
    full = StandaloneLatency(np.full(3, 2.0), np.full(3, 2.0))
    own_s = np.array([7.0, np.nan, 1.0])
    work = Workload(Schedule(np.zeros(3)), shapes, full, deadline=3.0, own_deadline_s=own_s)
    assert list(work.limit_s) == [7.0, 6.0, 1.0]
    assert list(work.priority) == [0, 0, 0]


def test_summary_says_what_share_missed_their_own_deadline(tmp_path: Path) -> None:
    """Over the measured requests that have one; the run's limits are counted as without any."""
    rng = np.random.default_rng(3)
    slo_s = [None if row % 3 == 0 else float(rng.uniform(1, 30)) for row in range(60)]
    words = (*SDXL, "arrivals=trace", "slo=[4x]", "warmup=5")
    outcome = simulated(*words, *of_trace(tmp_path, slo_s))
    rows = outcome.requests.to_pandas()[5:]
    own_s = np.array(slo_s, float)[5:]
    late = (rows.finish_s - rows.arrival_s > own_s)[~np.isnan(own_s)]
    found = outcome.summary["slo"]
    assert found["own"] == {
        "limit_s": pytest.approx(np.nanmean(own_s)), "violation_rate": late.mean(), "requests": len(late),
        "goodput_rpm": found["own"]["goodput_rpm"],
    }  # fmt: skip
    assert 0 < late.mean() < 1
    without = simulated(*words, *of_trace(tmp_path, [None] * 60)).summary["slo"]
    assert without == {"4x": found["4x"]}


def test_deadlines_by_size_fill_in_what_the_trace_lacks(tmp_path: Path) -> None:
    """A multiple by size is the run's limit of that multiple; seconds are seconds; the trace's own are kept."""
    by_size = "slo_by_size={1024x1024: 3x}"
    outcome = simulated(*SDXL, *EDF, "trace.requests=40", "arrivals.rate_rpm=60", "slo=[3x]", by_size)
    assert {**outcome.summary["slo"]["3x"], "requests": 40} == outcome.summary["slo"]["own"]
    seconds = "slo_by_size={1024x1024: 2.5s}"
    filled = simulated(*SDXL, *of_trace(tmp_path, [1.5, None, None, 0.5]), seconds).summary["slo"]["own"]
    assert (filled["limit_s"], filled["requests"]) == (pytest.approx((1.5 + 2.5 + 2.5 + 0.5) / 4), 4)


def test_deadline_by_size_is_that_of_the_frames_too(tmp_path: Path) -> None:
    """854x480 alone is an image; of videos each number of frames has its own."""
    sizes = {"width": [854] * 3, "height": [480] * 3, "steps": [3] * 3, "frames": [80, 120, 100]}
    words = ("models=wan2.2", "cluster=ascend-910b2", "shapes=trace", *of_trace(tmp_path, [None] * 3, **sizes))
    by_size = "slo_by_size={854x480x80: 10s, 854x480x120: 2x, 854x480: 1s}"
    found = simulated(*words, by_size).summary["slo"]["own"]
    assert found["requests"] == 2
    assert found["limit_s"] == pytest.approx((10 + 2 * (0.12 + 19.2 + 3 * 50.595)) / 2)


def test_slack_needs_a_deadline_for_every_request(tmp_path: Path) -> None:
    words = ("system=patchedserve", "cluster=h100", "slo=[]", "arrivals.rate_rpm=60")
    outcome = simulated(*words, *of_trace(tmp_path, [30.0] * 10), "arrivals=poisson")
    assert outcome.summary["slo"]["own"]["requests"] == 10
    with pytest.raises(ConfigError, match=r"slo is empty and not every request has one of its own; add slo=\[5\]"):
        simulated(*words, *of_trace(tmp_path, [30.0] * 9 + [None]), "arrivals=poisson")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{512: 2x}", "expected sizes as WIDTHxHEIGHT or, of videos, WIDTHxHEIGHTxFRAMES"),
        ("{512x512: fast}", r"expected a multiple of the standalone latency \(2 or 2x\) or seconds \(10s\)"),
        ("{512x512: 2x, 512x512x1: 3x}", "expected each size once; an image has 1 frame"),
        ("3x", r"slo_by_size: expected sizes and their limits, such as \{512x512: 1\.5s\}, found '3x'"),
        ("{512x512: 2x}", "no request has the size 512x512; name some of 1024x1024, or add shapes=trace"),
    ],
)
def test_malformed_limit_by_size_is_refused_in_one_line(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated(*SDXL, f"slo_by_size={value}")


@given(found=st.dictionaries(st.text(max_size=12), st.none() | st.text(max_size=6) | st.floats(), max_size=3))
def test_any_mapping_is_read_or_refused_as_limits_by_size(found: dict[object, object]) -> None:
    limits, refusal = [], "expected"
    try:
        limits = list(parse_by_size(found).values())
    except ValueError as error:
        refusal = str(error)
    assert all(limit.value > 0 for limit in limits)
    assert refusal.startswith("expected")


def test_reports_show_own_deadlines_beside_the_limits(tmp_path: Path) -> None:
    """They come first, since they are what the requests asked for, and vLLM-Omni's attainment is theirs."""
    outcome = simulated(*SDXL, *of_trace(tmp_path, [1.0, 20.0, 20.0, None]), "slo=[2x,10s]")
    write_run(outcome, tmp_path / "run")
    runs = load_runs([tmp_path / "run"])
    assert slo_multiples(runs) == ["own", "2x", "10s"]
    assert [column.title for column in tables.columns(runs)][:3] == [
        "Over own deadline", "Over 2x limit", "Over 10s limit"
    ]  # fmt: skip
    assert "own deadline" in answer(runs)
    late = outcome.summary["slo"]["own"]["violation_rate"]
    served = vllm_omni([tmp_path / "run"])
    assert served["slo_attainment_rate"] == 1 - late
    assert served["slo_met_success"] == round(3 * (1 - late))
    assert served["slo_scale"] is None
