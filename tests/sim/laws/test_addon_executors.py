"""SwiftDiffusion's executors: Gustafson's law, waits at shared servers, LoRA patches mid-run, groups, and memory."""

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.simulate import Outcome, simulate
from tests.sim.lab import configured

STEP_S, NET_S, ENCODER_S, NET_BESIDE_S, RECEIVE_S = 0.05423, {1: 0.02751, 3: 0.08392}, 0.02518, 0.0277, 0.00129
OTHER_S, N = 0.169, 50


@cache
def composed(*overrides: str) -> dict[str, Any]:
    return configured("cluster=h800", "trace=add-ons", "arrivals=trace", "extrapolate=warn", *overrides)


def served(
    system: str,
    nets: int,
    loras: int,
    *overrides: str,
    requests: int = 3,
    memory: int | None = None,
    net: int | None = None,
) -> Outcome:
    config = deepcopy(composed(f"system={system}", *overrides))
    config["trace"] |= {"requests": requests, "controlnets": nets, "loras": loras, "controlnet_bytes": net}
    if memory is not None:
        config["cluster"]["gpu"]["memory_bytes"] = memory
    return simulate(config)


def rows(outcome: Outcome) -> pd.DataFrame:
    found: pd.DataFrame = outcome.requests.to_pandas()
    return found


def stays(outcome: Outcome) -> list[float]:
    found = rows(outcome)
    return (found.finish_s - found.arrival_s).tolist()


def test_inline_addons_take_what_the_sequential_executor_takes() -> None:
    """With resident ControlNets and LoRAs merged in place, both executors do the same work."""
    choose = ("lora_loading.create=false", "lora_loading.keep_resident=true")
    ours = served("diffusers", 3, 2, *choose)
    theirs = served("vanilla", 3, 2, "addons=serve")
    assert stays(ours) == pytest.approx(stays(theirs))
    assert rows(ours).load_s.tolist() == pytest.approx(rows(theirs).load_s.tolist())


@pytest.mark.parametrize("nets", [0, 1, 2, 3])
def test_controlnet_service_speedup_follows_gustafsons_law(nets: int) -> None:
    """On n + 1 processors the serial part gains nothing and the parallel part all: S = s + p (n + 1).

    This holds if the encoder and each ControlNet take equally long and nothing is sent. The simulation is below it by
    exactly what differs.
    """
    serial = served("diffusers", nets, 0, "cluster.count=1", requests=2)
    beside = served("swiftdiffusion", nets, 0, "~kernels", requests=2)
    took_s = [rows(outcome).denoise_s.iloc[-1] / N for outcome in (serial, beside)]
    extra_s = max(NET_BESIDE_S - ENCODER_S, 0.0) + nets * RECEIVE_S if nets else 0.0
    assert took_s[1] == pytest.approx(STEP_S + extra_s)
    parallel_s, serial_s = ENCODER_S, STEP_S - ENCODER_S
    s, p = serial_s / STEP_S, parallel_s / STEP_S
    law = s + p * (nets + 1)
    assert took_s[0] / took_s[1] <= law * 1.06  # an inline ControlNet takes up to 1.11 encoders
    assert took_s[0] / took_s[1] == pytest.approx(law, rel=0.08)


@pytest.mark.parametrize(("nets", "loras"), [(2, 1), (5, 3), (0, 4), (1, 0)])
def test_swiftdiffusion_latency_is_steps_plus_patches_for_any_addons(nets: int, loras: int) -> None:
    """Latency is the steps, plus a patch for each LoRA, which is copied first. The first request also loads
    ControlNets."""
    outcome = served("swiftdiffusion", nets, loras, "cluster.count=6")
    found = rows(outcome)
    faster = 1.064 + 0.06 + 0.072
    step_s = STEP_S / faster + (0.0 if not nets else (NET_BESIDE_S - ENCODER_S) / faster + nets * RECEIVE_S)
    sizes = [340.5e6, *[456.1e6] * 9][:loras]
    patch_s = sum(0.09 + 0.042 * size / 340.5e6 for size in sizes)
    assert found.denoise_s.tolist() == pytest.approx([N * step_s] * 3)
    assert stays(outcome)[-1] == pytest.approx(OTHER_S + N * step_s + patch_s)
    if loras:
        came_s = 0.115 + max(sizes) / 2**30
        assert found.patch_step.tolist()[1:] == [int(np.ceil((came_s - 0.03) / step_s))] * 2
        assert outcome.summary["addons"]["loads_per_request"]["lora"] == pytest.approx(loras)
    # Weights are restored on the denoiser's GPU alone; the run ends with the last image.
    busy_s = (1 + nets) * sum(stays(outcome)) + (2 * 0.378 if loras else 0.0)
    gpu = outcome.summary["gpu"]
    assert gpu["busy_fraction"] * gpu["seconds"] == pytest.approx(busy_s)


def test_request_that_needs_more_gpus_than_exist_is_discarded_with_the_reason() -> None:
    reason = "none of the 3 .* completed: 3 x it takes 10 GPUs, 8 of them for ControlNets, and the cluster has 8"
    with pytest.raises(ConfigError, match=reason):
        served("katz", 4, 0)


@pytest.mark.parametrize(("came_s", "bound"), [(0.2, 20), (0.9, 20), (2.5, 20), (2.5, 50), (0.9, 1), (30.0, 20)])
def test_lora_is_merged_at_the_first_boundary_after_its_fetch_or_bound(came_s: float, bound: int) -> None:
    fetch = f"{{_target_: mezzotint.sim.addons.fetch.MeasuredFetch, quantiles: [{came_s}, {came_s}]}}"
    outcome = served(
        "swiftdiffusion", 0, 1, "~kernels", "~lora_fetch",
        f"+lora_fetch={fetch}", f"lora_loading.max_steps_without={bound}", requests=2,
    )  # fmt: skip
    found = rows(outcome)
    last = min(bound, N - 1)
    at = min(int(np.ceil((came_s - 0.03) / STEP_S)), last)
    stall_s = max(came_s - 0.03 - at * STEP_S, 0.0)
    assert found.patch_step.tolist() == [at] * 2
    assert found.stall_s.tolist() == pytest.approx([stall_s] * 2)
    assert stays(outcome) == pytest.approx([OTHER_S + N * STEP_S + stall_s + 0.132] * 2)
    assert outcome.summary["addons"]["stalled_share"] == float(stall_s > 0.1)


def test_unmerging_loras_holds_the_gpu_but_not_the_image() -> None:
    """Two simultaneous requests on one GPU: the second waits for the first image and for the weights to be restored."""
    outcome = served("swiftdiffusion", 0, 1, "cluster.count=1", "arrivals=closed", "arrivals.outstanding=2", requests=2)
    found = rows(outcome)
    assert found.start_s[1] == pytest.approx(found.finish_s[0] + 0.378)
    kept = rows(
        served(
            "swiftdiffusion", 0, 1, "cluster.count=1", "arrivals=closed", "arrivals.outstanding=2",
            "lora_loading.keep_resident=true", requests=2,
        )
    )  # fmt: skip
    assert kept.start_s[1] == pytest.approx(kept.finish_s[0])
    assert np.isnan(kept.patch_s[1])


def test_one_worker_never_waits_at_its_controlnet_servers() -> None:
    """On its own servers a request's step takes what it takes in a group."""
    shared = served("swiftdiffusion", 2, 0, "controlnet_placement=shared", "allocation=controlnet-servers")
    group = served("swiftdiffusion", 2, 0)
    assert rows(shared).denoise_s.tolist() == pytest.approx(rows(group).denoise_s.tolist())
    assert (rows(shared).server_wait_s < 1e-9).all()


@pytest.mark.parametrize("workers", [2, 4])
def test_shared_controlnet_server_waits_less_than_md1(workers: int) -> None:
    """A server of constant service time d, called by workers with pauses, waits less than M/D/1 at the same load: each
    worker has one outstanding call, so the queue is shorter than the number of other workers."""
    outcome = served(
        "swiftdiffusion", 1, 0, "controlnet_placement=shared", "allocation=controlnet-servers", "allocation.servers=1",
        f"cluster.count={workers + 1}", "controlnet_placement.placement=[[controlnet-1]]",
        "arrivals=closed", f"arrivals.outstanding={workers}", "arrivals.think_s=0.7", requests=40,
    )  # fmt: skip
    found = rows(outcome)
    span_s = outcome.summary["gpu"]["seconds"] / (workers + 1)
    service_s = NET_BESIDE_S / (1.064 + 0.06 + 0.072)
    load = len(found) * N * service_s / span_s
    wait_s = found.server_wait_s.sum() / (len(found) * N)
    assert 0.0 <= wait_s <= load * service_s / (2 * (1 - load)) or load >= 1
    assert wait_s <= (workers - 1) * service_s
    busy_s = outcome.summary["gpu"]["busy_fraction"] * outcome.summary["gpu"]["seconds"]
    assert busy_s <= outcome.summary["gpu"]["seconds"]


GB = 10**9


@pytest.mark.invariant(6)
@settings(max_examples=12, phases=[Phase.generate])
@given(
    system=st.sampled_from(["diffusers", "swiftdiffusion", "servers"]),
    memory=st.integers(12, 30),
    nets=st.integers(0, 4),
    net_gb=st.integers(1, 6),
    loras=st.integers(0, 2),
)
def test_memory_use_never_exceeds_the_device(system: str, memory: int, nets: int, net_gb: int, loras: int) -> None:
    """Weights, add-ons and the working memory of a step fit on every GPU at every instant; a request that cannot be
    served fails with a reason."""
    memory_bytes, seen = memory * GB, list[int]()
    kept = Cluster.record_busy

    def record_busy(self: Cluster, worker: Any, *args: Any, **named: Any) -> float:
        seen.append(sum(worker.resident.values()) + (4_500_000_000 if worker.model else 0))
        return kept(self, worker, *args, **named)

    words = []
    if system == "servers":
        system = "swiftdiffusion"
        words = ["controlnet_placement=shared", "allocation=controlnet-servers"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "record_busy", record_busy)
        try:
            found = rows(served(system, nets, loras, *words, requests=2, memory=memory_bytes, net=net_gb * GB))
            reasons = found.reason.dropna().tolist()
            assert set(found.outcome) <= {"completed", "failed"}
        except ConfigError as nothing_completed:
            reasons = [str(nothing_completed)]
    assert all(bytes <= memory_bytes for bytes in seen)
    assert all("fit" in why or "take" in why for why in reasons)


def test_feature_cache_with_shared_controlnet_servers_is_refused() -> None:
    """The saving at the servers is not modelled: they would be called for every kind of step at once."""
    words = ["controlnet_placement=shared", "allocation=controlnet-servers", "allocation.servers=1"]
    with pytest.raises(ConfigError, match=r"feature_cache: .* not modelled"):
        simulate(
            configured("system=swiftdiffusion", "cluster.count=3", "trace=add-ons", *words, "feature_cache=teacache")
        )


@cache
def spread(system: str) -> list[float]:
    """Return the spread of a LoRA's load time over its mean: the system's own, or else the profile's."""
    configured_spread = composed(f"system={system}")["lora_loading"]["spread"]
    found = configured_spread or Profiled("h800").lora_spread(Asset("lora", "x", "sdxl"))
    return list(found)


DRAWING = ("diffusers", "nirvana-10", "nirvana-20", "distrifusion-add-ons")


@pytest.mark.parametrize("system", DRAWING)
def test_lora_spread_has_mean_one(system: str) -> None:
    quantiles = spread(system)
    assert np.trapezoid(quantiles, np.linspace(0, 1, len(quantiles))) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("system", DRAWING)
def test_lora_load_times_have_the_mean_and_median_of_their_spread(system: str) -> None:
    """Mean and median over many requests lie within five standard errors."""
    times, count = composed(f"system={system}")["lora_loading"]["factor"], 600
    load_s = rows(served(system, 0, 1, requests=count)).load_s
    typical_s, quantiles = 3.351 * times, spread(system)
    grid = np.linspace(0, 1, len(quantiles))
    assert abs(load_s.mean() - typical_s) <= 5 * load_s.std() / count**0.5
    low, high = np.interp([0.5 - 2.5 / count**0.5, 0.5 + 2.5 / count**0.5], grid, quantiles)
    assert low * typical_s <= load_s.median() <= high * typical_s


def test_each_lora_of_a_request_draws_independently() -> None:
    """The standard deviation for two LoRAs is 2 ** 0.5 times that for one, not twice."""
    alike = "trace.lora_bytes=[340500000,340500000]"
    one, two = (rows(served("diffusers", 0, loras, alike, requests=600)).load_s for loras in (1, 2))
    assert two.std() / one.std() == pytest.approx(2**0.5, rel=0.1)


def test_lora_draws_move_no_other_draw_and_repeat_by_seed() -> None:
    words = ("arrivals=poisson", "arrivals.rate_rpm=20", "frontend.fetch_s=0")
    plain = rows(served("nirvana-10", 1, 1, *words, "lora_loading.spread=[1,1]", requests=50))
    drawn, again = (served("nirvana-10", 1, 1, *words, requests=50).requests for _ in range(2))
    assert drawn.equals(again)
    assert plain.arrival_s.tolist() == drawn["arrival_s"].to_pylist()
    assert plain.load_s.tolist() != drawn["load_s"].to_pylist()
    other = served("nirvana-10", 1, 1, *words, "seed=2", requests=50).requests
    assert other["load_s"].to_pylist() != drawn["load_s"].to_pylist()
