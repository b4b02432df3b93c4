"""Policies from outside: one class and one YAML each, and their runs by hand calculation."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from mezzotint.sim.run.simulate import Outcome

SOURCE = Path(__file__).with_name("their_policies.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
Run = Callable[..., Outcome]
ACTIVE_W, IDLE_W = 300.0, 60.0
"""An MI210's draw and load time, as in conf/cluster/mi210.yaml."""


def conserved(outcome: Outcome) -> pd.DataFrame:
    """Check what holds of every run: no request is lost, no GPU works more than all the time, and energy adds up."""
    summary, rows = outcome.summary, outcome.requests.to_pandas()
    assert summary["requests"]["completed"] == len(rows) == summary["requests"]["arrived"]
    assert 0 < summary["gpu"]["busy_fraction"] <= 1
    busy_s = summary["gpu"]["busy_fraction"] * summary["gpu"]["seconds"]
    expected_j = ACTIVE_W * busy_s + IDLE_W * (summary["gpu"]["seconds"] - busy_s)
    assert summary["energy_j"]["total"] == pytest.approx(expected_j)
    assert (rows.finish_s >= rows.start_s).all()
    assert (rows.start_s >= rows.arrival_s).all()
    return rows


@pytest.mark.parametrize(
    "policy", [node for node in TREE.body if isinstance(node, ast.ClassDef)], ids=lambda it: it.name
)
def test_policy_takes_at_most_40_lines_and_no_private_names(policy: ast.ClassDef) -> None:
    source = ast.get_source_segment(SOURCE, policy) or ""
    assert 0 < len([line for line in source.splitlines() if line.strip()]) <= 40
    assert not re.search(r"(run|cluster|worker|clock|request)\._", source)


def test_step_batcher_of_four_matches_a_worked_example(run: Run) -> None:
    """By hand: n requests step in 1 + (n - 1) / 2 s, and all eight arrive at once. The first steps alone for 1 s, then
    with three others for 49 steps of 2.5 s. The fifth joins at 123.5 s, the last three join at 126 s and make their
    last step, of 2 s, without it."""
    common = ("trace.requests=8", "arrivals=closed", "arrivals.outstanding=8", "cluster.count=1")
    outcome = run("executor=step-batcher", *common)
    rows = conserved(outcome)
    assert rows.finish_s.tolist() == pytest.approx([123.5, 126.0, 126.0, 126.0, 248.5, 250.5, 250.5, 250.5])
    assert outcome.summary["gpu"]["batch_mean"] == pytest.approx((1 * 1.0 + 4 * 247.5 + 3 * 2.0) / 250.5)
    assert outcome.summary["gpu"]["busy_fraction"] == pytest.approx(1.0)
    shared_s = [1 + 49 * 2.5 / 4] + [50 * 2.5 / 4] * 4 + [49 * 2.5 / 4 + 2 / 3] * 3
    assert rows.energy_j.tolist() == pytest.approx([ACTIVE_W * s for s in shared_s])
    assert outcome.cluster["queued"].to_pylist()[0] == 0
    assert max(outcome.cluster["busy"].to_pylist()) == 1


@pytest.mark.invariant(6)
def test_step_batcher_never_exceeds_its_max_batch(run: Run) -> None:
    outcome = run("executor=step-batcher", "trace.requests=1000", "arrivals.rate_rpm=8", "cluster.count=4", "seed=3")
    rows = conserved(outcome)
    events = np.concatenate([np.ones(len(rows)), -np.ones(len(rows))])
    times = np.concatenate([rows.start_s, rows.finish_s])
    for worker in range(4):
        mine = np.tile(rows.worker == worker, 2)
        order = np.lexsort((events[mine], times[mine]))  # at one instant completions come before joins
        running = events[mine][order].cumsum()
        assert 1 <= running.max() <= 4
    assert 1 <= outcome.summary["gpu"]["batch_mean"] <= 4


def test_batching_server_matches_a_worked_example(run: Run) -> None:
    """20 requests at once, by hand: batches of 8 at once, and of 4 after 5 s, each of 10 s."""
    outcome = run(
        "executor=batching-server", "trace.requests=20", "arrivals=closed", "arrivals.outstanding=20", "cluster.count=1"
    )  # fmt: skip
    rows = conserved(outcome)
    assert rows.finish_s.tolist() == [10.0] * 8 + [20.0] * 8 + [35.0] * 4
    assert rows.batch_mean.tolist() == [8.0] * 16 + [4.0] * 4
    assert outcome.summary["gpu"]["busy_fraction"] == pytest.approx(30 / 35)
    assert outcome.summary["gpu"]["batch_mean"] == pytest.approx(20 / 3)
    assert rows.energy_j.tolist() == pytest.approx([3000 / 8] * 16 + [3000 / 4] * 4)


def test_role_flipper_conserves_requests_time_and_energy(run: Run) -> None:
    """Loads take time and energy of GPUs and of no request; no request is lost; the run ends with the last request."""
    outcome = run(
        "system=modm-fixed", "controller=role-flipper", "trace.requests=600", "arrivals.rate_rpm=8", "seed=2",
        "backend.unpublished_load_s=20",
    )  # fmt: skip
    rows = conserved(outcome)
    gpu = outcome.summary["gpu"]
    assert gpu["switches"] > 50
    assert gpu["switch_s"] == pytest.approx(20 * gpu["switches"], rel=0.02)  # the last loads may end after the run
    assert (rows.load_s == 0).all()
    served_s = (rows.fetch_s + rows.denoise_s + rows.decode_s)[rows.worker.notna()].sum()
    assert gpu["busy_fraction"] * gpu["seconds"] == pytest.approx(served_s + gpu["switch_s"])
    assert set(rows.model.dropna()) == {"sd3.5-large", "sdxl"}
    misses = rows[rows.source_id.isna()]
    assert (misses.model == "sd3.5-large").all()


def test_three_stages_of_a_front_end_run_on_three_pools(run: Run, tmp_path: Path) -> None:
    """Three requests at once, 1 + 50 x 0.2 + 4 s, the first two without the last stage: by hand, a tandem of queues."""
    at = {"width": 1024, "height": 1024}
    profile: dict[str, Any] = {
        "schema": 1, "model": "sd3.5-large", "gpu": "mi210", "source": "made up", "text_encode": [{"seconds": 1.0}],
        "step": [at | {"seconds": 0.2}], "component": [at | {"component": "upscaler", "seconds": 4.0}],
    }  # fmt: skip
    (tmp_path / "mi210_sd3.5-large.yaml").write_text(yaml.safe_dump(profile))
    outcome = run(
        "system=pools", "frontend=three-stages", f"backend.folder={tmp_path}", "trace.requests=3", "arrivals=closed",
        "arrivals.outstanding=3", "cluster.count=3", "++group_policy.pools={denoiser: 1, vae: upscaler, upscaler: 1}",
    )  # fmt: skip
    rows = conserved(outcome)
    assert rows.finish_s.tolist() == pytest.approx([11.0, 21.0, 35.0])
    assert outcome.attempts is not None
    ran = outcome.attempts.to_pandas().groupby("request_id", sort=False).component.agg(list).tolist()
    assert ran == [["text-encoder", "denoiser"]] * 2 + [["text-encoder", "denoiser", "upscaler"]]


def test_second_chance_beats_fifo_and_shortest_first_beats_fcfs(run: Run) -> None:
    second, fifo = (
        run("system=modm-throughput", f"eviction={name}", "cache.capacity=100", "trace.requests=1500")
        for name in ("second-chance", "fifo")
    )
    conserved(second)
    assert second.summary["cache"]["hit_rate"] > fifo.summary["cache"]["hit_rate"]
    common = ("system=nirvana", "trace.requests=800", "arrivals.rate_rpm=14")
    shortest, first = run("scheduler=shortest-first", *common), run(*common)
    conserved(shortest)
    assert shortest.summary["latency_s"]["p50"] < first.summary["latency_s"]["p50"]


def test_profiled_memory_bounds_the_batch(run: Run, tmp_path: Path) -> None:
    """40 GB of weights and 5 GB an image on a GPU of 64 GB: four fit, and a limit of eight is a clear error."""
    profile: dict[str, Any] = {
        "model": "sd3.5-large", "gpu": "mi210", "source": "made up", "weights_bytes": 40_000_000_000,
        "step": [{"width": 1024, "height": 1024, "batch": n, "seconds": 1.0 + n} for n in (1, 8)],
        "memory": [{"width": 1024, "height": 1024, "batch": n, "bytes": (40 + 5 * n) * 10**9} for n in (1, 8)],
        "schema": 1,
    }  # fmt: skip

    (tmp_path / "mi210_sd3.5-large.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
    common = (
        f"backend.folder={tmp_path}", "trace.requests=8", "arrivals=closed", "arrivals.outstanding=8",
        "cluster.count=1", "cluster.gpu.memory_bytes=64000000000", "executor=continuous-batching",
    )  # fmt: skip
    assert run(*common, "executor.max_batch=4").summary["requests"]["completed"] == 8
    with pytest.raises(Exception, match=r"executor .* takes 80.0 GB of the 64.0 GB .* lower the batch limit"):
        run(*common, "executor.max_batch=8")


def test_late_requests_take_wider_groups(run: Run) -> None:
    """The degree is 1 where the deadline is far, and grows as it comes near."""
    common = ("scheduler=stages", "executor=stages", "estimates=perfect", "group_policy=widen-late", "cluster=h100",
              "models=flux-dev-xdit", "cluster.count=4", "trace.requests=40", "arrivals.rate_rpm=30")  # fmt: skip
    degrees = {}
    for limit in ("100x", "0.6x"):
        outcome = run(*common, f"slo=[{limit}]")
        assert outcome.attempts is not None
        degrees[limit] = set(outcome.attempts["degree"].to_pylist())
    assert degrees["100x"] == {1}
    assert max(degrees["0.6x"]) > 1


def test_decisions_that_stand_give_the_run_of_a_decision_at_every_step(run: Run) -> None:
    """Estimates are wrong, so requests that were in time become late while they run."""
    common = ("scheduler=stages", "executor=stages", "estimates=wrong", "group_policy=widen-late", "cluster=h100",
              "models=flux-dev-elastic", "cluster.count=4", "trace.requests=40", "arrivals=poisson",
              "arrivals.rate_rpm=20", "slo=[1.2x]")  # fmt: skip
    anew = run(*common)
    ahead = run(*common, "group_policy._target_=their_policies.WidenLateAhead")
    assert anew.attempts is not None
    assert len(set(anew.attempts["degree"].to_pylist())) > 1
    assert ahead.attempts == anew.attempts
    assert ahead.requests == anew.requests


def test_every_third_image_is_made_again(run: Run) -> None:
    outcome = run("frontend=second-opinion", "trace.requests=30", "arrivals.rate_rpm=1", "allocation=fixed-split",
                  "allocation.large=2", "cluster.count=4", "scheduler=per-worker", "router=least-requests",
                  "discipline=fifo")  # fmt: skip
    assert outcome.attempts is not None
    assert outcome.attempts.to_pandas().groupby("request_id").size().value_counts().to_dict() == {1: 20, 2: 10}


def test_steps_take_time_by_the_pixels_of_their_batch_and_draw_the_stated_power(run: Run) -> None:
    """Four images of one megapixel join at once and end their steps together, and are decoded one after another at the
    power of the cluster's kind of GPU."""
    outcome = run("executor=continuous-batching", "batching=linear", "trace.requests=4", "arrivals=closed",
                  "arrivals.outstanding=4", "cluster.count=1")  # fmt: skip
    rows, steps_s = outcome.requests.to_pandas(), 50 * (0.1 + 4 * 0.5)
    assert rows.denoise_s.tolist() == pytest.approx([steps_s] * 4)
    assert rows.finish_s.tolist() == pytest.approx([steps_s + 2, steps_s + 4, steps_s + 6, steps_s + 8])
    assert rows.batch_mean.tolist() == [4.0] * 4
    assert rows.energy_j.sum() == pytest.approx(100 * steps_s + 8 * ACTIVE_W)
    assert "seconds of a step" in [row["what"] for row in outcome.summary["assumptions"]]
