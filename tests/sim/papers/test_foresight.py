"""Perfect knowledge: its GPUs serve every request in time, for less than a fixed cluster."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.autoscaling.foresight import plan_rentals
from mezzotint.sim.run.simulate import write
from tests.sim.lab import simulated

FORESIGHT = "controller=autoscale-foresight"
WAVES = (
    "cluster=h100", "cluster.count=8", "trace.requests=900", "arrivals=fluctuating", "arrivals.rate_rpm=40",
    "arrivals.levels=[1,5]", "arrivals.every_s=600",
)  # fmt: skip


def test_perfect_knowledge_is_no_dearer_than_the_cheapest_fixed_cluster() -> None:
    def outcome(*words: str) -> tuple[float, float]:
        summary = simulated(*WAVES, *words).summary
        return summary["slo"]["2x"]["violation_rate"], summary["cost_usd"]["total"]

    late, usd = outcome(FORESIGHT)
    fixed = [outcome(f"cluster.count={count}") for count in (3, 4, 5, 6, 8)]
    assert late == 0.0
    assert usd < 0.8 * min(price for violations, price in fixed if violations <= late)
    some_late, cheaper = outcome(FORESIGHT, "controller.late_share=0.05")
    assert 0.0 < some_late <= 0.05
    assert cheaper < usd


def test_perfect_knowledge_of_a_finished_run_rents_for_its_hits(tmp_path: Path) -> None:
    hits = ("system=nirvana", "hits=declared", "hits.hit_rate=1", "hits.mean_k=25")
    write(simulated(*WAVES, *hits), tmp_path / "before")
    words = (*WAVES, *hits, FORESIGHT)
    full, known = (simulated(*words, f"controller.folder={at}").summary for at in ("null", tmp_path / "before"))
    assert known["slo"]["2x"]["violation_rate"] < 0.01
    assert known["gpu"]["seconds"] < 0.8 * full["gpu"]["seconds"]
    with pytest.raises(ConfigError, match="has 900 requests and this run 800"):
        simulated(*words, f"controller.folder={tmp_path / 'before'}", "trace.requests=800")


@given(
    gaps=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=60),
    service_s=st.floats(1.0, 30.0),
    patience=st.floats(1.0, 4.0),
    lead_s=st.floats(0.0, 100.0),
)
@settings(deadline=None)
def test_planned_gpus_serve_every_request_in_time(
    gaps: list[float], service_s: float, patience: float, lead_s: float
) -> None:
    """First come, first served on the planned GPUs: each takes the request that waits longest."""
    arrival_s = np.cumsum(gaps)
    same = np.ones(len(gaps))
    rentals = plan_rentals(arrival_s, service_s * same, patience * service_s * same, lead_s, 10**6)
    free_s = sorted(rentals)
    starts = []
    for at_s in arrival_s.tolist():
        start_s, until_s = min(
            (max(at_s, from_s), until_s) for from_s, until_s in free_s if until_s > max(at_s, from_s)
        )
        free_s.remove(next(each for each in free_s if each[1] == until_s and max(at_s, each[0]) == start_s))
        free_s.append((start_s + service_s, until_s))
        starts.append(start_s)
    assert (np.array(starts) + service_s <= arrival_s + patience * service_s * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("slo=[]", "perfect knowledge plans for the first latency limit"),
        ("arrivals=closed", "perfect knowledge needs arrival times"),
        ("executor=continuous-batching", "plans one request at a time, and the executor runs 16"),
        ("controller.folder=nowhere", "controller.folder: nowhere holds no run of the same trace"),
    ],
)
def test_what_perfect_knowledge_cannot_plan_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        simulated("cluster=h100", "cluster.count=8", "trace.requests=100", FORESIGHT, word)
    assert message in str(refused.value)
