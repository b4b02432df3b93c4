"""A part made in Python refuses what its YAML may not set, and names the key and the value."""

from collections.abc import Callable
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.control.monitor import GlobalMonitor
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.workload import addon_bytes
from mezzotint.sim.execution.feature_cache.blocks import Overhead
from mezzotint.sim.frontend.delay import Constant, LogNormal, as_delay
from mezzotint.sim.metrics.design import check_design
from mezzotint.sim.metrics.request_columns import DeclaredColumn
from mezzotint.sim.run.config.build import build
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import ADDON_BYTES, make

EVICTION, MONITOR = "mezzotint.sim.cache.eviction", "mezzotint.sim.control.monitor.GlobalMonitor"
GPU = {"name": "x", "active_w": 100.0, "idle_w": 60.0, "source": "made up"}

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: LogNormal(median_s=0.0, p99_s=1.0), "0 < median_s <= p99_s"),
    (lambda: LogNormal(mean_s=0.0, cv=1.0), "mean_s > 0"),
    (lambda: Gpu("x", 100.0, None, "made up"), "active_w >= idle_w"),
    (lambda: Gpu("x", 50.0, 60.0, "made up"), "active_w >= idle_w"),
    (lambda: check_design({"router": ["least"]}, "quality.designs.x"), "quality.designs.x.router: expected one of"),
    (lambda: check_design({"selector": []}, "quality.designs.x"), "quality.designs.x.selector: found none"),
]


@pytest.mark.parametrize(("make_it", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_part_refuses_inconsistent_settings(make_it: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_it()
    assert message in str(refused.value)


CACHE = {
    "similarity": {"_target_": "mezzotint.traces.similarity.similarities.TextToText"},
    "eviction": {"_target_": f"{EVICTION}.Fifo"},
}

OUTSIDE: list[tuple[str, str, str, Any, dict[str, Any]]] = [
    ("executor", "mezzotint.sim.execution.continuous_batching.ContinuousBatching", "max_batch", 0, {}),
    *(
        ("executor", "mezzotint.sim.execution.stages.life.Stages", "speedup", each, {})
        for each in ({1: 2.0}, {2: 1.5, 4: -1.0})
    ),
    ("scheduler", "mezzotint.sim.scheduling.batching.mlperf.MlperfBatching", "batch_timeout_s", nan, {}),
    (
        "group_policy",
        "mezzotint.sim.scheduling.group_policies.fixed_degree.FixedDegree",
        "degree_by_controlnets",
        [1, 2, -1],
        {},
    ),
    ("allocation", "mezzotint.sim.cluster.allocation.FixedSplit", "hit_rate", 1.1, {}),
    *(
        ("cluster.gpu", "mezzotint.sim.core.gpu.Gpu", *each, GPU)
        for each in (("memory_bytes", 0), ("gpus_per_instance", 0))
    ),
    ("cluster.gpu", "mezzotint.sim.core.gpu.Gpu", "usd_per_gpu_h", -1.0, GPU),
    ("cache", "mezzotint.sim.cache.cache.ArtifactCache", "capacity", -5, CACHE),
    ("cache", "mezzotint.sim.cache.cache.ArtifactCache", "latents_at", [0, 5], CACHE | {"capacity": 5}),
    *(
        (
            "likeness",
            "mezzotint.sim.execution.feature_cache.blocks.AssumedFeatureSimilarity",
            "shares",
            {"sdxl": each},
            {},
        )
        for each in ({}, {0: 0.5})
    ),
    *(
        ("match_predictor", "mezzotint.sim.frontend.match_predictor.OneClassSvm", *each, {})
        for each in (("nu", 0.0), ("gamma", inf))
    ),
]


@pytest.mark.parametrize(("key", "target", "name", "value", "others"), OUTSIDE)
def test_setting_out_of_range_is_refused(key: str, target: str, name: str, value: Any, others: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        build({"_target_": target, name: value, **others}, key)
    assert str(refused.value).startswith(f"{key}.{name}: found {value!r}, expected")


def test_setting_at_the_edge_of_its_range_is_accepted() -> None:
    assert Gpu("x", None, None, "not known").energy_j(3.0) != 0.0
    assert GlobalMonitor(safety=1.0, margin=0.0, patience=1).safety == 1.0
    assert as_delay(Constant(2.0)) == Constant(2.0)
    assert check_design({"selector": ["nirvana"]}, "quality.designs.x") is None


def test_overhead_of_a_model_with_unknown_blocks_is_refused() -> None:
    """... one such part is made up: it is refused, with what to add."""
    cache = Overhead({"sdxl": 10}, block_s=0.001, patch_s=0.0)
    request: Any = SimpleNamespace(width=512, height=512, model="sdxl")
    assert cache.seconds([request]) == pytest.approx(0.01)
    request.model = "sd3"
    with pytest.raises(ConfigError, match=r"overhead.blocks: no number of blocks for sd3, only for sdxl"):
        cache.seconds([request])


def test_preloaded_rows_have_no_column_values() -> None:
    column = DeclaredColumn(np.zeros(3), first=2, public=True)
    column[1] = 7.0  # leaves no record
    column[2] = 5.0
    assert column.values.tolist() == [5.0, 0.0, 0.0]
    assert column[2] == 5.0
    with pytest.raises(SimulationError, match="trace row 1 only filled a cache"):
        column[1]


@pytest.mark.parametrize("sizes", [["a"], {"a": 0}, {"a": 1.5}, {"a": True}])
def test_addon_bytes_map_names_to_whole_numbers(sizes: Any) -> None:
    rows = {"request_id": ["r"], "arrival_s": [0.0], "prompt": ["a cat"]}
    trace = make(rows, name="mine", source="made up", notes={ADDON_BYTES: sizes})
    with pytest.raises(TraceError, match=r"trace mine: notes: .*expected a mapping of names to bytes"):
        addon_bytes(trace)
