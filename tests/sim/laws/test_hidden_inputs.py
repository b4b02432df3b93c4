"""What no run may depend on: the wall clock, how ids look, later requests, and costs that were only estimated."""

import json
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cli import main
from mezzotint.sim.core.model import Model
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.run.simulate import Outcome
from mezzotint.sim.scheduling.latency_predictor import Known, RequestKind, Svr
from mezzotint.traces.table.trace import make, read
from mezzotint.traces.table.trace import write as write_trace
from tests.sim.lab import engine, simulated

ROWS = 240
CHANGED = 160
"""Row from which on the trace with another future differs."""

SIZES = ((512, 512), (768, 768), (1024, 1024))
STEPS = ("shapes=trace", "models=sdxl", "cluster=h100", "cluster.count=2", "extrapolate=warn")
ADDONS = ("cluster=h800", "cluster.count=8", "models=sdxl")
SCALED = ("cluster=h100", "models=sdxl", "cluster.count=16", "controller.startup_s=30")
POLICIES: Mapping[str, Sequence[str]] = {
    "one queue": ("system=vanilla",),
    "cache, match predictor and LCBFU": ("system=nirvana", "cache.capacity=60"),
    "two models and a monitor": ("system=modm-quality", "controller.period_s=60"),
    "patches, slack and reuse": ("system=patchedserve", *STEPS),
    "shortest remaining first": (
        *("scheduler=per-worker", "router=least-work-left", "discipline=shortest-remaining", "latency_predictor=known"),
        *("executor=continuous-batching", "batching=patched", *STEPS),
    ),
    "batches with a timeout": ("system=batch-server", "cluster=h100", "models=sdxl", "extrapolate=warn"),
    "ControlNets apart, LoRAs while stepping": ("system=swiftdiffusion", "lora_fetch=node-disk", *ADDONS),
    "a router by add-ons": ("system=diffusers", "scheduler=per-worker", "router=by-addons", *ADDONS),
    "autoscaling by utilisation": ("controller=autoscale-utilisation", *SCALED),
    "autoscaling by pending requests": ("controller=autoscale-pending", *SCALED),
    "autoscaling by a queueing model": ("controller=autoscale-queueing-model", *SCALED),
}
YARDSTICKS: Mapping[str, Sequence[str]] = {
    "autoscaling by foresight": ("controller=autoscale-foresight", *SCALED),
    "the optimal eviction": ("system=modm-fixed", "cache.capacity=20", "eviction=optimum"),
}
"""Policies that know the future and say so: bounds for the others."""


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The columns of two traces with the same requests before row CHANGED, and others from then on."""
    folder, made = tmp_path_factory.mktemp("traces"), []
    for seed in (1, 2):
        synth = ["trace", "synth", "-o", str(folder / f"{seed}.parquet"), "--requests", str(ROWS), "--seed", str(seed)]
        assert main(synth) == 0
        table = read(folder / f"{seed}.parquet").table.to_pydict()
        rng = np.random.default_rng(seed)
        size = rng.integers(len(SIZES), size=ROWS)
        made.append(
            {
                "request_id": [f"{row}" for row in range(ROWS)],
                "arrival_s": rng.exponential(2.0 * seed, ROWS),
                "prompt": table["prompt"],
                "width": [SIZES[each][0] for each in size],
                "height": [SIZES[each][1] for each in size],
                "steps": rng.choice([30, 50], ROWS).tolist(),
                "controlnets": [[f"controlnet-{n % 3}"] for n in rng.integers(9, size=ROWS)],
                "loras": [[f"lora-{n % 4}"] if n < 6 else [] for n in rng.integers(9, size=ROWS)],
            }
        )
    first, other = made
    changed = {name: [*first[name][:CHANGED], *other[name][CHANGED:]] for name in first}
    return [each | {"arrival_s": np.cumsum(each["arrival_s"])} for each in (first, changed)]


def _run(columns: Mapping[str, Any], path: Path, *overrides: str) -> Outcome:
    write_trace(make(columns, name="t", source="test"), path)
    addons = ["addons=serve"] if any("h800" in each for each in overrides) else []
    return simulated("trace=file", f"trace.path={path}", "slo=[5x]", *addons, *overrides)


def _until(outcome: Outcome, time_s: float) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the rows of requests that ended before ``time_s``, the starts of all until then, and the samples."""
    rows, samples = outcome.requests.to_pandas(), outcome.cluster.to_pandas()
    starts = rows[rows.start_s < time_s][["request_id", "start_s", "worker", "model", "skipped"]]
    return rows[rows.finish_s < time_s], starts, samples[samples.time_s < time_s]


def _equal_until_changed(columns: Sequence[Mapping[str, Any]], folder: Path, *overrides: str) -> bool:
    time_s = min(each["arrival_s"][CHANGED] for each in columns)
    one, other = (
        _until(_run(each, folder / f"{name}.parquet", *overrides), time_s)
        for each, name in zip(columns, "ab", strict=True)
    )
    assert len(one[0]) > CHANGED / 4
    return all(a.equals(b) for a, b in zip(one, other, strict=True))


@pytest.mark.invariant(13)
@pytest.mark.parametrize("policy", POLICIES)
def test_results_until_an_instant_do_not_depend_on_later_requests(
    policy: str, columns: Sequence[Mapping[str, Any]], tmp_path: Path
) -> None:
    assert _equal_until_changed(columns, tmp_path, *POLICIES[policy])


@pytest.mark.parametrize("policy", YARDSTICKS)
def test_yardstick_that_knows_the_future_depends_on_it(
    policy: str, columns: Sequence[Mapping[str, Any]], tmp_path: Path
) -> None:
    """So the comparison above can fail."""
    assert not _equal_until_changed(columns, tmp_path, *YARDSTICKS[policy])


@pytest.mark.invariant(13)
@pytest.mark.parametrize(
    "discipline", [("discipline=fifo",), ("discipline=shortest-remaining", "latency_predictor=known")], ids=" ".join
)
def test_choices_made_before_any_work_do_not_depend_on_its_true_cost(discipline: Sequence[str], tmp_path: Path) -> None:
    """All requests arrive at once, and each takes the profile's seconds times a factor drawn for it, by the seed."""
    rows = 60
    trace = {
        "request_id": [f"{row}" for row in range(rows)],
        "arrival_s": [0.0] * rows,
        "steps": [20 + 10 * (7 * row % 5) for row in range(rows)],
    }
    words = (
        *("cluster=sd-beta", "cluster.count=3", "models=sd-v1", "shapes=trace", "extrapolate=warn"),
        *("scheduler=per-worker", "router=least-work-left", *discipline),
        *("executor=continuous-batching", "executor.max_batch=1"),
    )
    first, second = (
        _run(trace, tmp_path / f"{seed}.parquet", f"backend.seed={seed}", *words).requests.to_pandas()
        for seed in (1, 2)
    )
    assert (first.denoise_s != second.denoise_s).all()
    assert first.worker.equals(second.worker)
    orders = [each.sort_values("start_s").groupby("worker").request_id.agg(list) for each in (first, second)]
    assert orders[0].equals(orders[1])


@pytest.mark.invariant(13)
@pytest.mark.parametrize("predictor", [Known, Svr])
def test_predicted_step_does_not_depend_on_what_rows_draw(predictor: type[Known | Svr]) -> None:
    """A predictor is trained on the profile's typical seconds, not on the factor drawn for a request."""
    model, found = Model("sd-v1", 50, 512, 512), []
    for seed in (1, 2):
        executor, expected = ContinuousBatching(max_batch=1), predictor()
        backend = Profiled("sd-beta", extrapolate="warn", seed=seed)
        run = engine([0.0], [1.0], models={"large": model}, backend=backend, executor=executor)
        run.open()
        expected.bind(run, executor, [RequestKind(512, 512, 1)])
        found.append(expected.step_s(model.name, (1,)))
    assert found[0] == found[1]


@pytest.mark.invariant(11)
@pytest.mark.parametrize("policy", ["two models and a monitor", "patches, slack and reuse", *list(POLICIES)[6:9]])
def test_wall_clock_that_jumps_changes_no_byte(
    policy: str, columns: Sequence[Mapping[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except in ``wall`` of summary.json, which tells how long simulating took."""
    write_trace(make(columns[0], name="t", source="test"), tmp_path / "t.parquet")
    addons = ["addons=serve"] if "cluster=h800" in POLICIES[policy] else []
    words = ["trace=file", f"trace.path={tmp_path / 't.parquet'}", "timeline=true", *addons, *POLICIES[policy]]
    folder = tmp_path / "out"
    found = []
    for _ in range(2):
        assert main(["run", *words, f"run.dir={folder}"]) == 0
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        summary = json.loads(files.pop("summary.json"))
        found.append((files, summary.pop("wall"), summary))
        shutil.rmtree(folder)
        _make_clocks_jump(monkeypatch)
    (files, wall, summary), (other_files, other_wall, other_summary) = found
    assert files.keys() - {"attempts.parquet"} == {
        "cluster.parquet",
        "config.yaml",
        "requests.parquet",
        "timeline.json.gz",
    }
    assert files == other_files
    assert summary == other_summary
    assert abs(other_wall["simulate_s"]) > 1e3 > wall["simulate_s"]


def _make_clocks_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call of a clock tell a time that is up to a century off."""
    rng = random.Random(1)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + rng.uniform(1e6, 3e9))


@pytest.mark.invariant(2)
@pytest.mark.parametrize("policy", [name for name in list(POLICIES)[:8] if "monitor" not in name])
def test_ties_do_not_depend_on_how_ids_look(policy: str, columns: Sequence[Mapping[str, Any]], tmp_path: Path) -> None:
    """Requests arrive in groups of eight at one instant, and their names are sorted in two ways.

    MoDM's modelled images are drawn anew for each trace, whose digest covers the ids.
    """
    times = np.repeat(columns[0]["arrival_s"][::8], 8)
    names = [f"{row:05}" for row in range(ROWS)]
    found = []
    for ids in (names, names[::-1]):
        trace = {**columns[0], "arrival_s": times, "request_id": ids}
        rows = _run(trace, tmp_path / f"{ids[0]}.parquet", *POLICIES[policy]).requests.to_pandas()
        numbers = dict(zip(ids, range(ROWS), strict=True))
        found.append(rows.assign(request_id=rows.request_id.map(numbers), source_id=rows.source_id.map(numbers)))
    pd.testing.assert_frame_equal(*found)
