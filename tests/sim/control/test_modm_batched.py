"""MoDM with static batches: each batch has one model, and throughput rises where batching pays."""

from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.profile import shipped
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.scheduling.batching.hit_miss import HitMissBatching
from tests.sim.lab import FixedTimes, engine, simulated
from tests.sim.scheduling.test_queues import Marked

SATURATED = ("trace.requests=700", "preload=200", "arrivals=closed", "arrivals.outstanding=120", "cluster.count=8")


@pytest.fixture(scope="module")
def curve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MI210's profiles with a batch curve: n images take 0.5 + 0.5 n times the seconds of one."""
    folder = tmp_path_factory.mktemp("curve")
    for model in ("sd3.5-large", "sdxl"):
        profile = yaml.safe_load((shipped() / f"mi210_{model}.yaml").read_text(encoding="utf-8"))
        one = profile["step"][0]
        profile["step"] = [one | {"batch": n, "seconds": one["seconds"] * (0.5 + 0.5 * n)} for n in (1, 2, 4, 8)]
        (folder / f"{model}.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    return folder


def batches(rows: pd.DataFrame) -> pd.core.groupby.DataFrameGroupBy:
    return rows.groupby(["worker", "start_s"])


def test_modm_batches_hold_one_model_and_raise_throughput_where_batching_pays(curve: Path) -> None:
    words = (*SATURATED, f"backend.folder={curve}")
    alone = simulated("system=modm-throughput", *words)
    batched = simulated("system=modm-batched", *words)
    rows = batched.requests.to_pandas()
    assert len(rows) == batched.summary["requests"]["completed"] == 500
    formed = batches(rows)
    assert formed.model.nunique().max() == 1
    assert (formed.source_id.count().isin([0]) | (formed.source_id.count() == formed.size())).all()
    assert 1 < formed.size().max() <= 8
    hit = rows.source_id.notna()
    assert set(rows.model[hit]) == {"sdxl"}
    assert set(rows.model[~hit]) == {"sd3.5-large"}
    rate = [each.summary["throughput_until_last_arrival_rpm"] for each in (alone, batched)]
    assert rate[1] > 1.3 * rate[0]  # full batches of 8 would give 16/9
    assert batched.summary["gpu"]["batch_mean"] > 3
    assert "gpus_large" in batched.cluster.column_names  # its monitor is there


def test_modm_batched_needs_a_profile_with_batches() -> None:
    from mezzotint.backends.base import BackendError

    with pytest.raises(BackendError, match="batch"):
        simulated("system=modm-batched", *SATURATED)


def test_max_batch_above_the_executor_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scheduler\.max_batch: found 9; the executor takes 8"):
        simulated("system=modm-batched", "scheduler.max_batch=9", "extrapolate=warn", "trace.requests=20")


def test_large_workers_take_hits_only_if_large_takes_hits() -> None:
    """Two simultaneous hits, one worker of each role."""
    for scheduler, starts in (
        (HitMissBatching(max_batch=1), [0.0, 5.0]),
        (HitMissBatching(max_batch=1, large_takes_hits=True), [0.0, 0.0]),
    ):
        run = engine([0.0, 0.0], [5.0] * 2, roles=["large", "small"], frontend=Marked({0, 1}), scheduler=scheduler)
        run.run()
        assert list(run.record.request_columns["start_s"]) == starts


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 3.0, 30.0]), min_size=1, max_size=40),
    st.sets(st.integers(0, 39)),
    st.integers(1, 4),
    st.sampled_from([0.0, 4.0]),
    st.booleans(),
)
def test_batch_starts_when_full_timed_out_or_its_worker_is_free(
    gaps: list[float], hits: set[int], max_batch: int, wait_s: float, shared: bool
) -> None:
    """Every batch is full, or its first request timed out, or its first request waits for a worker. Hits and misses
    never mix."""
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    scheduler = HitMissBatching(max_batch, wait_s, shared)
    run = engine(
        times, [5.0] * len(times), roles=["large", "small"], frontend=Marked(hits),
        backend=FixedTimes([5.0] * len(times)), executor=StaticBatch(max_batch), scheduler=scheduler,
    )  # fmt: skip
    run.run()
    assert len(scheduler) == 0
    columns = run.record.request_columns
    formed: dict[tuple[float, int], list[int]] = {}
    for row in range(len(times)):
        formed.setdefault((columns["start_s"][row], columns["worker"][row]), []).append(row)
    for (start_s, worker), rows in formed.items():
        assert len(rows) <= max_batch
        assert len({row in hits for row in rows}) == 1
        if rows[0] not in hits:
            assert worker == 0
        elif not shared:
            assert worker == 1
        if len(rows) < max_batch:
            assert start_s >= times[rows[0]] + wait_s - 1e-9
    for kind in (hits, set(range(40)) - hits):  # in order
        starts = [columns["start_s"][row] for row in range(len(times)) if row in kind]
        assert starts == sorted(starts)
