"""What a request costs by its sampling parameters: several images, guidance, input images and strength."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.summary import cautions
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


def run(tmp_path: Path, columns: Mapping[str, Any], *overrides: str, rule: str = "scale", **keys: Any) -> Outcome:
    """Run a trace of ``columns``, whose requests arrive 100 s apart unless it says when, on one GPU of ``profile``."""
    rows = len(next(iter(columns.values())))
    table = {"request_id": [f"r{row}" for row in range(rows)], "arrival_s": [100.0 * row for row in range(rows)]}
    trace = tmp_path / "t.parquet"
    write_trace(make(table | dict(columns), name="t", source="test", notes={}, where="test"), trace)
    return simulated(
        "trace=file", f"trace.path={trace}", "arrivals=trace", "cluster=h100", "cluster.count=1", "models=sdxl",
        f"models.large.steps={STEPS}", "models.large.width=64", "models.large.height=64",
        f"+models.large.guidance={rule}", profile(tmp_path / "profiles", **keys), *overrides,
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


@pytest.mark.parametrize("executor", EXECUTORS)
def test_guidance_takes_its_factor_of_the_steps(tmp_path: Path, executor: str) -> None:
    scales = {"guidance": [None, 0.0, 1.0, 7.5]}
    measured = {"guidance": {"cfg": True, "factor": 1.5, "source": "made up"}}
    outcome = run(tmp_path, scales, *EXECUTORS[executor], **measured)
    with_s, without_s = STEPS * STEP_S[1], STEPS * STEP_S[1] / 1.5
    assert column(outcome, "denoise_s") == pytest.approx([with_s, without_s, without_s, with_s], rel=ROUNDING)
    assert took_s(outcome) - column(outcome, "denoise_s") == pytest.approx(TEXT_S + DECODE_S, abs=1e-9)


def test_seconds_without_guidance_are_multiplied(tmp_path: Path) -> None:
    scales = {"guidance": [None, 1.0, 7.5]}
    outcome = run(tmp_path, scales, guidance={"cfg": False, "factor": 1.5})
    assert column(outcome, "denoise_s") == pytest.approx(STEPS * STEP_S[1] * np.array([1, 1, 1.5]), rel=ROUNDING)


def test_factor_of_one_is_as_before_to_the_bit(tmp_path: Path) -> None:
    usual = run(tmp_path, {"seed": [1, 2]})
    equal = run(tmp_path, {"seed": [1, 2], "guidance": [1.0, 7.0]}, guidance={"cfg": True, "factor": 1.0})
    assert equal.requests.equals(usual.requests)


def test_factor_without_a_measurement_is_two_and_stated(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"guidance": [7.0, 1.0]})
    assert column(outcome, "denoise_s") == pytest.approx(STEPS * STEP_S[1] * np.array([1, 0.5]), rel=ROUNDING)
    cautioned = cautions(outcome.summary)
    what = "seconds of a step of sdxl on h100 with classifier-free guidance over those without"
    assert cautioned[what][0] == 2
    assert cautioned["what the seconds of sdxl on h100 are for"][0] == "with classifier-free guidance"


@pytest.mark.parametrize(
    ("rule", "scale", "negative", "factors"),
    [
        ("scale", [None, None, 1.0, 7.0], ["", "blurry", "blurry", None], [2, 2, 1, 2]),
        ("negative-prompt", [None, None, 1.0, 7.0, 7.0], [None, "blurry", "blurry", "blurry", None], [1, 2, 1, 2, 1]),
        ("distilled", [None, None, 1.0, 7.0], [None, "blurry", "blurry", None], [1, 1, 1, 1]),
    ],
)
def test_models_rule_tells_which_requests_are_guided(
    tmp_path: Path, rule: str, scale: list[float | None], negative: list[str | None], factors: list[int]
) -> None:
    asked = {"guidance": scale, "negative_prompt": negative}
    cfg = {"cfg": rule == "scale", "factor": 2.0}
    outcome = run(tmp_path, asked, rule=rule, guidance=None if rule == "distilled" else cfg)
    steps_s = STEPS * STEP_S[1] / (2 if rule == "scale" else 1)
    assert column(outcome, "denoise_s") == pytest.approx(steps_s * np.array(factors), rel=ROUNDING)


def test_unlike_guidance_shares_no_batch(tmp_path: Path) -> None:
    both = {"guidance": [7.0, 1.0], "arrival_s": [0.0, 0.0]}
    outcome = run(tmp_path, both, *EXECUTORS["static-batch"], guidance={"cfg": True, "factor": 2.0})
    assert column(outcome, "denoise_s") == pytest.approx(STEPS * STEP_S[1] * 1.5, rel=ROUNDING)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_strength_runs_the_last_steps_and_encodes_the_input_image(tmp_path: Path, executor: str) -> None:
    strengths = {"strength": [None, 0.33, 0.01, 1.0], "input_images": [None, None, 1, 2]}
    outcome = run(tmp_path, strengths, *EXECUTORS[executor])
    steps = [STEPS, int(STEPS * 0.33), 1, STEPS]
    assert (column(outcome, "steps") - column(outcome, "skipped")).tolist() == steps
    assert column(outcome, "denoise_s") == pytest.approx(STEP_S[1] * np.array(steps), rel=ROUNDING)
    encoded_s = ENCODE_S * np.array([0, 1, 1, 2])
    assert took_s(outcome) == pytest.approx(STEP_S[1] * np.array(steps) + TEXT_S + DECODE_S + encoded_s, abs=1e-9)


def test_strength_leaves_at_most_the_steps_that_a_hit_leaves(tmp_path: Path) -> None:
    strengths = {"strength": [None, 0.9, 0.1]}
    outcome = run(tmp_path, strengths, "+frontend.skip_fraction=0.5")
    assert column(outcome, "skipped").tolist() == [10, 10, 18]


def test_input_image_without_seconds_to_encode_is_stated(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"strength": [0.5]}, vae_encode=None)
    assert cautions(outcome.summary)["seconds to encode an input image of sdxl on h100"][0] == 0


def test_edits_are_served_as_text_to_image_and_stated(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"input_images": [2, None, 0]})
    assert len(set(took_s(outcome).round(9))) == 1
    ((value, source),) = cautions(outcome.summary).values()
    assert value == 1
    assert "the profile of sdxl has no seconds of them" in source


def test_edits_are_refused_on_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unsupported=error: 2 requests ask for input images to edit.*input_images"):
        run(tmp_path, {"input_images": [2, None, 1]}, "unsupported=error")


def test_profile_of_an_edit_model_counts_its_input_images(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"input_images": [2, None]}, "unsupported=error", input_images=2)
    assert took_s(outcome) == pytest.approx(STEPS * STEP_S[1] + TEXT_S + DECODE_S + np.array([2 * ENCODE_S, 0]))
    with pytest.raises(ConfigError, match="input images to edit"):
        run(tmp_path, {"input_images": [1]}, "unsupported=error", input_images=2)


def test_standalone_latency_is_that_of_the_request_as_asked(tmp_path: Path) -> None:
    asked = {"images": [1, 4, 1, 1], "guidance": [None, None, 1.0, None], "strength": [None, None, None, 0.5]}
    outcome = run(tmp_path, asked, "slo=[1.001]", guidance={"cfg": True, "factor": 2.0})
    assert outcome.summary["slo"]["1.001x"]["violation_rate"] == 0
    outcome = run(tmp_path, asked, "slo=[0.999]", guidance={"cfg": True, "factor": 2.0})
    assert outcome.summary["slo"]["0.999x"]["violation_rate"] == 1


def test_mean_wait_with_doubled_service_is_that_of_a_slower_queue(tmp_path: Path) -> None:
    """Twice the seconds at half the rate are the same queue on a slower clock (M/D/1)."""
    rows = 2000
    free = {"text_encode": None, "vae_decode": None, "guidance": {"cfg": False, "factor": 2.0}}
    poisson = ["arrivals=poisson", "arrivals.rate_rpm=15"]
    one = run(tmp_path, {"guidance": [1.0] * rows}, *poisson, "arrivals.rate_rpm=18", **free)
    two = run(tmp_path, {"guidance": [7.0] * rows}, *poisson, "arrivals.rate_rpm=9", **free)
    assert two.summary["queue_s"]["mean"] == pytest.approx(2 * one.summary["queue_s"]["mean"], rel=1e-9)
    service_s, load = STEPS * STEP_S[1], 18 / 60 * STEPS * STEP_S[1]
    assert one.summary["queue_s"]["mean"] == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.15)


def test_patches_of_unlike_guidance_are_left_out_or_refused(tmp_path: Path) -> None:
    patched = ["models=sdxl", "system=patchedserve", "cluster=h100"]
    with pytest.raises(ConfigError, match="patches of unlike guidance were not measured; choose batching=same-size"):
        run(tmp_path, {"guidance": [1.0]}, *patched, "unsupported=error")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_images_as_requests_equal_requests_that_arrive_together(tmp_path: Path, executor: str) -> None:
    one = run(tmp_path, {"images": [1, 4]}, "images=requests", *EXECUTORS[executor])
    arrivals = {"arrival_s": [0.0] + [100.0] * 4, "request_id": ["r0", "r1", "r1#2", "r1#3", "r1#4"]}
    four = run(tmp_path, arrivals, *EXECUTORS[executor])
    assert column(one, "image").tolist() == [1, 1, 2, 3, 4]
    assert one.requests.drop_columns("image").equals(four.requests)


def test_latency_of_a_split_request_is_that_of_its_last_image(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"images": [2, 1, 4]}, "images=requests", "warmup=1")
    one_s = TEXT_S + STEPS * STEP_S[1] + DECODE_S
    assert outcome.summary["requests"]["arrived"] == 5
    assert outcome.summary["split"]["completed"] == 2
    assert outcome.summary["split"]["latency_s"]["mean"] == pytest.approx((one_s + 4 * one_s) / 2)


def test_split_requests_need_an_open_loop(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"images=requests: .* closed loop"):
        run(tmp_path, {"images": [1, 4]}, "images=requests", "arrivals=closed", "arrivals.outstanding=1")


def test_cost_of_an_image_counts_all_images_of_a_request(tmp_path: Path) -> None:
    costs = run(tmp_path, {"images": [1, 3]}).summary["cost_usd"]
    assert costs["per_image"] == pytest.approx(costs["total"] / 4)


def test_unlike_guidance_of_a_patched_batch_is_left_out(tmp_path: Path) -> None:
    asked = {"guidance": [None, 7.5, 1.0]}
    patched = ["system=patchedserve", "backend.folder=null", "models.large.width=512", "models.large.height=512"]
    outcome = run(tmp_path, asked, *patched)
    assert len(set(column(outcome, "denoise_s").round(9))) == 1
    (left_out,) = [what for what in cautions(outcome.summary) if "not counted" in what]
    assert cautions(outcome.summary)[left_out][0] == 1


def test_distilled_guidance_is_stated_and_costs_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, {"guidance": [None, 7.5]}, rule="distilled")
    assert assumed(outcome, "requests whose guidance costs nothing on sdxl") == 1
    assert not cautions(outcome.summary)


@pytest.mark.parametrize("router", ["least-work-left", "least-declared-cost", "least-pixels"])
def test_router_sends_one_image_elsewhere_than_to_many(tmp_path: Path, router: str) -> None:
    """The third request joins the one image, and not the eight."""
    asked = {"images": [8, 1, 1], "arrival_s": [0.0, 0.1, 0.2]}
    spread = ["scheduler=per-worker", f"router={router}", "discipline=fifo", "cluster.count=2"]
    assert column(run(tmp_path, asked, *spread), "worker").tolist() == [0, 1, 1]
