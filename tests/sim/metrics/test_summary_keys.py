"""An edited summary is refused by its file and key: by the bounds of its numbers, their laws, and the requests."""

import json
import shutil
from collections.abc import Callable
from functools import reduce
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import mezzotint
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.run_files import read_summary
from mezzotint.sim.metrics.summary_keys import KEYS, kind_of

Edit = Callable[[str, object], Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sizes of limit, with hits, a warm-up and a price."""
    words = (
        "system=nirvana",
        "cluster=h100",
        "trace.requests=300",
        "warmup=50",
        "arrivals.rate_rpm=30",
        "slo=[2x,400s]",
    )
    return mezzotint.run(*words, folder=tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def edited(finished: Path, tmp_path: Path) -> Edit:
    """Return a function that sets a key of the finished run, and returns its folder."""

    def edit(key: str, value: object) -> Path:
        folder = shutil.copytree(finished, tmp_path / "run")
        summary = json.loads((folder / "summary.json").read_text())
        *groups, name = key.split(".")
        at: dict[str, Any] = reduce(lambda group, each: group[each], groups, summary)
        assert name in at
        at[name] = value(at[name]) if callable(value) else value
        (folder / "summary.json").write_text(json.dumps(summary))
        return folder

    return edit


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        read_summary(folder)
    message = str(refused.value)
    assert message.startswith(f"{folder / 'summary.json'}: key '")
    assert message.endswith(f"; run it again, or remove {folder}")
    return message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("requests.completed", -7, "expected greater than or equal to 0"),
        ("requests.completed", 200.5, "expected a valid integer"),
        ("requests.failed", 3, "'requests.arrived' is 250, expected 253, the sum of completed, discarded and failed"),
        ("latency_s.p50", -5, "expected greater than or equal to"),
        ("latency_s.p50", inf, "expected a finite number"),
        ("latency_s.p95", nan, "expected a finite number"),
        ("latency_s.p50", 1e6, "'latency_s.p50' is 1000000, expected at most "),
        ("latency_s.mean", 1e6, "'latency_s.mean' is 1000000, expected at most .*, the max"),
        ("queue_s.p99", -0.5, "queue_s.p99"),
        ("queue_s.p90", 1e6, "'queue_s.p90' is 1000000, expected at most .*, the p95"),
        ("cache.hit_rate", 1.2, "expected less than or equal to 1"),
        ("cache.hit_rate", 0.999, "'cache.hit_rate' is 0.999, expected .*, hits over lookups"),
        ("cache.hits", 1, "'cache.hit_rate' is .*, expected 0.004, hits over lookups"),
        ("cache.hit_share_by_k", {"5": 0.7, "10": 0.7}, "is 1.4, expected shares that sum to 1"),
        ("gpu.busy_fraction", -0.1, "gpu.busy_fraction"),
        ("gpu.count", -1, "gpu.count"),
        ("throughput_rpm", -1.0, "throughput_rpm"),
        ("load.growth_per_hour", inf, "load.growth_per_hour"),
        ("load.verdict", "stable", "load.verdict"),
        ("cost_usd.total", 0.01, "'cost_usd.total' is 0.01, expected .*, the sum of cost_usd.by"),
        ("energy_j.total", inf, "energy_j.total"),
    ],
)
def test_number_that_cannot_be_is_refused_by_its_key(key: str, value: object, expected: str, edited: Edit) -> None:
    folder = edited(key, value)
    (folder / "requests.parquet").unlink()
    with pytest.raises(ConfigError, match=expected):
        read_summary(folder)
    refusal(folder)


@pytest.mark.parametrize(
    ("key", "by"),
    [
        *(("latency_s." + name, 0.999) for name in ("mean", "p50", "p90", "p95", "p99")),
        ("latency_s.max", 1.001),
        ("throughput_rpm", 1.001),
        ("cost_usd.per_image", 0.99),
        ("energy_j.per_image", 0.99),
        ("load.offered_rpm", 1.01),
        ("slo.400s.goodput_rpm", 1.01),
        ("slo.2x.violation_rate", 0.9),
        ("slo.400s.violation_rate", 0.9),
    ],
)
def test_number_that_the_requests_do_not_give_is_refused(key: str, by: float, edited: Edit) -> None:
    """Each edit is plausible beside the other numbers."""
    folder = edited(key, lambda value: value * by)
    assert f"'{key}' is " in refusal(folder)
    assert ", as requests.parquet has it; run it again" in refusal(folder)
    (folder / "requests.parquet").unlink()
    assert read_summary(folder)


def test_counts_are_those_of_the_requests(edited: Edit) -> None:
    folder = edited("requests", {"arrived": 250, "completed": 240, "discarded": 10, "failed": 0})
    assert "'requests.completed' is 240, expected 250, as requests.parquet has it" in refusal(folder)


def test_no_more_requests_arrived_than_there_are(edited: Edit) -> None:
    folder = edited("requests", {"arrived": 999, "completed": 999, "discarded": 0, "failed": 0})
    assert "'requests.arrived' is 999, expected at most 300, as requests.parquet has it" in refusal(folder)


def test_keys_with_a_name_of_the_users_have_a_kind() -> None:
    assert kind_of("slo.2.5x.violation_rate") is KEYS["slo.*.violation_rate"]
    assert kind_of("cost_usd.by.vector_database") is KEYS["cost_usd.by.*"]
    assert kind_of("slo.2x.violations") is None
    assert kind_of("latency_s.p42") is None
