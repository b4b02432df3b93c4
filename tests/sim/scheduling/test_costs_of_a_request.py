"""Estimates of requests with several images or other guidance: what they take alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.metrics.summary import cautions
from mezzotint.sim.run.simulate import Outcome
from tests.sim.lab import simulated
from tests.sim.run.test_sampling import DECODE_S, STEP_S, STEPS, TEXT_S, assumed, column, run, took_s

PER_WORKER = ["executor=continuous-batching", "batching=same-size", "scheduler=per-worker"]
SLACK = [*PER_WORKER, "router=least-requests", "discipline=slack"]
STAGES = ["executor=stages", "scheduler=stages", "group_policy=central-pull"]
ASKED = {"images": [1, 2, 3, 4] * 2 + [1], "guidance": [None] * 4 + [1.0] * 4 + [None], "slo_s": [None] * 8 + [1000.0]}
"""The last request has all the time in the world, since a run in which none is served is refused."""

GUIDED: dict[str, Any] = {"guidance": {"cfg": True, "factor": 2.0}}


def lost(outcome: Outcome) -> list[bool]:
    return [each != "completed" for each in column(outcome, "outcome").tolist()]


@pytest.mark.parametrize("slo", [0.99, 1.01])
def test_slack_knows_what_a_request_takes_alone(tmp_path: Path, slo: float) -> None:
    """It discards at once whoever cannot be in time, and nobody else."""
    outcome = run(tmp_path, ASKED, *SLACK, "latency_predictor=known", f"slo=[{slo}]", **GUIDED)
    assert lost(outcome) == [slo < 1] * 8 + [False]


@pytest.mark.parametrize("slo", [0.9, 1.1])
def test_slack_learns_what_a_request_takes_alone(tmp_path: Path, slo: float) -> None:
    outcome = run(tmp_path, ASKED, *SLACK, "latency_predictor=svr", "executor.max_batch=2", f"slo=[{slo}]", **GUIDED)
    assert lost(outcome) == [slo < 1] * 8 + [False]


@pytest.mark.parametrize("slo", [0.99, 1.01])
def test_slack_counts_images_in_patches_and_encoded_inputs(tmp_path: Path, slo: float) -> None:
    asked: dict[str, Any] = {"images": [1, 2, 3, 4], "strength": [None, 0.5, None, 0.25]}
    timing = {"side": 64, "base_s": 0.01, "patch_s": 0.1, "size_s": 0.0, "halo_s": 0.0, "source": "made up"}
    patched = ["executor=continuous-batching", "batching=patched", *SLACK[2:]]
    alone = run(tmp_path, asked, *patched, "discipline=fifo", patched=timing)
    assert column(alone, "denoise_s")[2] == pytest.approx(STEPS * (0.01 + 3 * 0.1))
    own: dict[str, Any] = {name: [*values, None] for name, values in asked.items()}
    own["slo_s"] = [*[slo * float(seconds) for seconds in took_s(alone)], 1000.0]
    outcome = run(tmp_path, own, *patched, "latency_predictor=known", patched=timing)
    assert lost(outcome) == [slo < 1] * 4 + [False]


def test_shortest_remaining_knows_the_images_of_a_request(tmp_path: Path) -> None:
    """Both wait for the first; the one with a single image goes before the one with four."""
    asked = {"images": [1, 4, 1], "arrival_s": [0.0, 0.1, 0.2]}
    words = [*PER_WORKER, "router=least-requests", "discipline=shortest-remaining", "latency_predictor=known"]
    outcome = run(tmp_path, asked, *words, "executor.max_batch=1")
    assert np.argsort(column(outcome, "start_s")).tolist() == [0, 2, 1]


def alone_s(images: int, factor: float) -> float:
    return TEXT_S + STEPS * STEP_S[images] * factor + images * DECODE_S


@pytest.mark.parametrize("estimates", ["perfect", "table", "wrong"])
def test_stage_scheduler_knows_what_a_request_takes_alone(tmp_path: Path, estimates: str) -> None:
    asked = {"images": [1, 2, 4] * 2, "guidance": [None] * 3 + [1.0] * 3}
    words: dict[str, list[Any]] = {
        "table": [f"estimates.seconds={{64x64: {alone_s(1, 1.0)}}}"],
        "wrong": ["estimates.factor=1"],
    }
    outcome = run(tmp_path, asked, *STAGES, f"estimates={estimates}", *words.get(estimates, []), **GUIDED)
    assert column(outcome, "estimate_s") == pytest.approx(took_s(outcome), rel=1e-9)
    assert took_s(outcome)[1] == pytest.approx(alone_s(2, 1.0))


def test_learnt_estimates_are_learnt_by_images_and_guidance(tmp_path: Path) -> None:
    """Of two like requests the second is known, whatever came between."""
    asked = {"images": [1, 4, 1, 1, 4, 1], "guidance": [None, None, 1.0] * 2}
    words = ["estimates=learnt", "estimates.prior_steps=0.000001"]
    outcome = run(tmp_path, asked, *STAGES, *words, **GUIDED)
    assert column(outcome, "estimate_s")[3:] == pytest.approx(took_s(outcome)[3:], rel=1e-6)


def test_what_is_counted_is_not_said_to_be_left_out(tmp_path: Path) -> None:
    outcome = run(tmp_path, ASKED, *SLACK, "latency_predictor=known", "slo=[5]", "unsupported=error", **GUIDED)
    assert assumed(outcome, "requests whose sampling parameters are counted") == {"several images": 6, "guidance": 4}


def test_monitor_that_counts_requests_says_so() -> None:
    words = ["system=modm-throughput", "trace=synthetic", "trace.requests=40", "arrivals.rate_rpm=10", "images=batch"]
    assert (
        cautions(simulated(*words).summary)["what the controller expects of a request"][0]
        == "one image with usual guidance"
    )
