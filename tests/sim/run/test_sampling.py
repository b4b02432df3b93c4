"""What a request costs by its sampling parameters: several images, guidance, input images and strength."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mezzotint.sim.run.simulate import Outcome
from mezzotint.traces.table.trace import make
from mezzotint.traces.table.trace import write as write_trace
from tests.sim.lab import simulated

STEP_S = {1: 0.1, 2: 0.18, 4: 0.3, 8: 0.5}
"""Seconds of a step by batch."""

STEPS, TEXT_S, ENCODE_S, DECODE_S = 20, 0.05, 0.2, 0.4

ROUNDING = 1e-12

EXECUTORS: Mapping[str, list[str]] = {
    "sequential": [],
    "static-batch": ["executor=static-batch", "scheduler=dynamic-batching"],
    "continuous-batching": ["executor=continuous-batching", "batching=same-size"],
    "stages": ["executor=stages", "scheduler=stages", "group_policy=central-pull", "estimates=perfect"],
}


def profile(folder: Path, *, batches: bool = True, **keys: Any) -> str:
    """Write a profile of round seconds into a new ``folder``; return the override that takes it."""
    size = {"width": 64, "height": 64}
    content = {
        "schema": 1, "model": "sdxl", "gpu": "h100", "source": "made up",
        "step": [{**size, "batch": n, "seconds": s} for n, s in STEP_S.items() if batches or n == 1],
        "text_encode": [{"batch": 1, "seconds": TEXT_S}],
        "vae_encode": [{**size, "batch": 1, "seconds": ENCODE_S}],
        "vae_decode": [{**size, "batch": 1, "seconds": DECODE_S}],
    } | keys  # fmt: skip
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump({key: value for key, value in content.items() if value is not None})
    (folder / "sdxl.yaml").write_text(text)
    return f"backend.folder={folder}"


def run(tmp_path: Path, columns: Mapping[str, Any], *overrides: str, guidance: str = "scale", **keys: Any) -> Outcome:
    """Run a trace of ``columns``, whose requests arrive 100 s apart unless it says when, on one GPU of ``profile``."""
    rows = len(next(iter(columns.values())))
    table = {"request_id": [f"r{row}" for row in range(rows)], "arrival_s": [100.0 * row for row in range(rows)]}
    trace = tmp_path / "t.parquet"
    write_trace(make(table | dict(columns), name="t", source="test", notes={}, where="test"), trace)
    return simulated(
        "trace=file", f"trace.path={trace}", "arrivals=trace", "cluster=h100", "cluster.count=1", "models=sdxl",
        f"models.large.steps={STEPS}", "models.large.width=64", "models.large.height=64",
        f"+models.large.guidance={guidance}", profile(tmp_path / "profiles", **keys), *overrides,
    )  # fmt: skip


def column(outcome: Outcome, name: str) -> Any:
    return np.array(outcome.requests.column(name).to_pylist())


def took_s(outcome: Outcome) -> Any:
    return column(outcome, "finish_s") - column(outcome, "start_s")


def assumed(outcome: Outcome, what: str) -> Any:
    (value,) = [row["value"] for row in outcome.summary["assumptions"] if row["what"] == what]
    return value


@pytest.mark.parametrize("executor", EXECUTORS)
def test_images_of_a_request_run_as_one_batch(tmp_path: Path, executor: str) -> None:
    outcome = run(tmp_path, {"images": [1, 4, None]}, *EXECUTORS[executor])
    one_s = TEXT_S + STEPS * STEP_S[1] + DECODE_S
    four_s = TEXT_S + STEPS * STEP_S[4] + 4 * DECODE_S
    assert took_s(outcome) == pytest.approx([one_s, four_s, one_s], abs=1e-9)
    assert column(outcome, "images").tolist() == [1, 4, 1]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_images_beyond_the_measured_batches_take_turns(tmp_path: Path, executor: str) -> None:
    outcome = run(tmp_path, {"images": [1, 4, 8]}, *EXECUTORS[executor], batches=False)
    alone_s = STEPS * STEP_S[1] + DECODE_S
    assert took_s(outcome) == pytest.approx([TEXT_S + n * alone_s for n in (1, 4, 8)], abs=1e-9)
    assert assumed(outcome, "seconds of step of sdxl on h100 in batches above 1, the largest measured")


def test_four_images_of_one_request_equal_four_requests_in_one_batch(tmp_path: Path) -> None:
    batch = EXECUTORS["static-batch"]
    free = {"text_encode": None}
    one = run(tmp_path, {"images": [4]}, *batch, **free)
    four = run(tmp_path, {"images": [1] * 4, "arrival_s": [0.0] * 4}, *batch, **free)
    assert set(column(four, "finish_s")) == set(column(one, "finish_s"))
    assert column(four, "energy_j").sum() == pytest.approx(column(one, "energy_j").sum(), rel=ROUNDING)


def test_one_image_is_as_before_to_the_bit(tmp_path: Path) -> None:
    none, one = run(tmp_path, {"seed": [1, 2]}), run(tmp_path, {"seed": [1, 2], "images": [1, 1]})
    assert one.requests.equals(none.requests)


def test_first_makes_one_image_of_a_request(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"images": [1, 4]}, "images=first")
    assert len(set(took_s(outcome).round(9))) == 1
    assert assumed(outcome, "images per request") == 1


def test_generated_traces_make_one_image_of_a_request_unless_asked() -> None:
    few = ("trace=synthetic", "trace.requests=50", "cluster.count=9")
    assert (
        simulated(*few, "images=batch").summary["latency_s"]["mean"] > 2 * simulated(*few).summary["latency_s"]["mean"]
    )
