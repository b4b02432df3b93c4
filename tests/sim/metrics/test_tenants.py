"""Tenants in the summary: Jain's index and the numbers of each tenant."""

import numpy as np
import pytest

from mezzotint.sim.metrics.tenants import MAX_ROWS, jain, tenants
from tests.sim.lab import simulated


def test_jain_is_one_of_equal_values_and_one_over_n_of_one_that_has_all() -> None:
    for n in (1, 2, 7):
        assert jain(np.full(n, 3.0)) == pytest.approx(1.0)
        assert jain(np.array([5.0] + [0.0] * (n - 1))) == pytest.approx(1 / n)
    assert jain(np.zeros(3)) is None
    assert jain(np.array([])) is None


def test_rows_are_what_requests_parquet_says_of_each_tenant() -> None:
    outcome = simulated(
        "models=sdxl", "cluster=h100", "cluster.count=1", "trace.requests=150", "arrivals.rate_rpm=30", "warmup=20",
        "scheduler=central", "discipline=fair", "discipline.max_in_flight=1",
    )  # fmt: skip
    found, rows = outcome.summary["tenants"], outcome.requests.to_pandas().iloc[20:]
    rows["latency_s"] = rows.finish_s - rows.arrival_s
    assert found["discarded_by_limit"] == (rows.outcome == "discarded").sum() > 0
    assert found["count"] == rows.user_id.nunique() == len(found["rows"]) + found["rows_left_out"]
    assert len(found["rows"]) == MAX_ROWS
    counts = rows.user_id.value_counts()
    assert [row["requests"] for row in found["rows"][:10]] == counts.iloc[:10].tolist()
    for row in found["rows"]:
        own = rows[rows.user_id == row["user_id"]]
        done = own[own.outcome == "completed"]
        assert (row["requests"], row["completed"]) == (len(own), len(done))
        assert row["discarded_by_limit"] == len(own) - len(done)
        assert row["gpu_s"] == pytest.approx(done.denoise_s.sum())
        assert row["latency_s"]["p95"] == pytest.approx(done.latency_s.quantile(0.95))
        assert row["slowdown"] == pytest.approx((done.latency_s / (done.denoise_s + done.decode_s)).mean())


def test_tenants_of_many_are_the_largest_and_the_worst_off() -> None:
    """Of 30 tenants the first ten have two requests, and of the others the last ten the longest latencies."""
    codes = np.array([*range(10), *range(30)], np.int32)
    seconds = np.ones(40)
    found = tenants(
        codes, [str(code) for code in range(30)], latency_s=1.0 + codes, standalone_s=seconds, gpu_s=seconds,
        completed=seconds > 0, over_limit=seconds < 0,
    )  # fmt: skip
    assert [row["user_id"] for row in found["rows"]] == [str(code) for code in [*range(10), *range(20, 30)]]
    assert found["rows_left_out"] == 10
    assert found["jain"]["gpu_s"] == pytest.approx(40**2 / (30 * (10 * 4 + 20)))


def test_a_trace_without_users_has_no_tenants() -> None:
    outcome = simulated("models=sdxl", "cluster=h100", "trace=hybrid", "trace.requests=20")
    assert "tenants" not in outcome.summary
    assert "user_id" not in outcome.requests.column_names
