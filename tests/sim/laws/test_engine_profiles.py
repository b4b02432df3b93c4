"""What the profiles of engines promise: the seconds of a request alone, and an engine's own gain from batches."""

import pytest

import mezzotint
from mezzotint.backends.base import Work, standalone_cost
from mezzotint.backends.profiled import Profiled

LOOP = ("arrivals=closed", "models.large.width=512", "models.large.height=512", "trace.requests=64")
BATCHES = ("system=batch-server", "scheduler=dynamic-batching", "scheduler.max_batch=4")


def loop_of_four(*words: str) -> tuple[float, float]:
    """Return the throughput of a closed loop of four clients, requests per second, and the mean latency."""
    requests = mezzotint.run("arrivals.outstanding=4", *LOOP, *words).requests
    return len(requests) / requests["finish_s"].max(), (requests["finish_s"] - requests["arrival_s"]).mean()


def latencies(*words: str) -> list[float]:
    """Return the latencies of a closed loop of one client."""
    requests = mezzotint.run("arrivals=closed", *words).requests
    latency_s: list[float] = (requests["finish_s"] - requests["arrival_s"]).tolist()
    return latency_s


@pytest.mark.parametrize(
    ("model", "plain_rps", "batched_rps", "mean_s"),
    [
        ("flux-dev", 0.496, 0.538, 7.437),
        ("qwen-image-2512", 0.488, 0.633, 6.212),
        ("z-image-turbo", 0.377, 0.395, 9.96),
    ],
)
def test_engine_gains_from_batches_what_it_measured(
    model: str, plain_rps: float, batched_rps: float, mean_s: float
) -> None:
    """SGLang's dynamic batching on an H100, a closed loop of four clients (pull request 18764)."""
    engine = ("cluster=h100", f"models={model}-sglang")
    assert loop_of_four(*engine)[0] == pytest.approx(plain_rps, rel=0.01)
    rate_rps, latency_s = loop_of_four(*engine, *BATCHES)
    assert rate_rps == pytest.approx(batched_rps, rel=0.01)
    assert latency_s == pytest.approx(mean_s, rel=0.03)


def test_curve_of_the_steps_alone_promises_more_than_the_engine_gained() -> None:
    steps = ("cluster=h200-sxm", "cluster.count=1", "models=qwen-image-2512")
    assert loop_of_four(*steps, *BATCHES)[0] / loop_of_four(*steps)[0] == pytest.approx(2.78, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "model", "alone_s"),
    [
        ("h100-x2", "qwen-image-2512-sglang", 4.564),
        ("b200-x2", "flux2-dev-tensorrt-llm", 13.918),
        ("h100-x4", "wan2.1-i2v-14b-lightx2v", 223.996),
        ("h200-x8", "cosmos3-super-vllm-omni", 120.57),
    ],
)
def test_request_alone_takes_the_seconds_of_its_benchmark(kind: str, model: str, alone_s: float) -> None:
    assert latencies(f"cluster={kind}", f"models={model}", "trace.requests=2") == pytest.approx([alone_s] * 2, rel=1e-4)


@pytest.mark.parametrize(("engine", "with_cfg_s"), [("sglang", 6.568), ("vllm-omni", 8.799)])
def test_true_guidance_takes_the_seconds_of_its_benchmark(engine: str, with_cfg_s: float) -> None:
    work = Work(f"qwen-image-2512-{engine}", 1024, 1024, 50, cfg=True)
    assert standalone_cost(Profiled("h100-x2"), work).denoise_s == pytest.approx(with_cfg_s, rel=1e-3)


def test_two_counts_of_steps_are_both_met() -> None:
    """Cosmos3-Super on 8 x H200: 120.57 s at 35 steps and 166.26 s at 50."""
    assert latencies("cluster=h200-x8", "models.large.steps=50", "trace.requests=1") == pytest.approx(
        [166.26], rel=1e-3
    )
