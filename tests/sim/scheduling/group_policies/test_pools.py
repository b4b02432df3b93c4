"""Stages on pools of GPUs: a tandem of queues, replicas if colocated, and the costs of hand-overs and loads."""

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.metrics.time_series import series
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.pools import Pools
from tests.sim.lab import simulated
from tests.sim.scheduling.group_policies.stage_times import drawn, finish_s, served, served_in_sequence

ONE_EACH = {TEXT_ENCODER: 1, DENOISER: 1, VAE: 1}


@pytest.mark.parametrize("times", [(0.5, 8.0, 2.0), (4.0, 1.0, 0.25), (1.0, 1.0, 6.0)])
def test_deterministic_tandem_equals_its_closed_form(times: tuple[float, float, float]) -> None:
    """Of requests at once, the first leaves after all stages, and then one leaves in each time of the longest."""
    run = served([0.0] * 9, [times] * 9, Pools(ONE_EACH), 3)
    assert finish_s(run).tolist() == [sum(times) + each * max(times) for each in range(9)]


@pytest.mark.parametrize("seed", range(10))
def test_pools_of_one_gpu_without_handover_equal_a_tandem(seed: int) -> None:
    """By the recursion of queues in series: a stage starts when the one before ended and its GPU is free."""
    arrivals, times = drawn(seed, 60)
    free_s, expected = [0.0, 0.0, 0.0], []
    for at_s, stages in zip(arrivals, times, strict=True):
        now_s = at_s
        for place, took_s in enumerate(stages):
            now_s = free_s[place] = max(now_s, free_s[place]) + took_s
        expected.append(now_s)
    assert finish_s(served(arrivals, times, Pools(ONE_EACH), 3)).tolist() == expected


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_together_equals_sequential_execution_to_the_bit(seed: int, count: int) -> None:
    arrivals, times = drawn(seed, 60)
    colocated = served(arrivals, times, Pools(), count, migration_s=5.0)
    assert finish_s(colocated).tolist() == finish_s(served_in_sequence(arrivals, times, count)).tolist()


@pytest.mark.parametrize("handover", ["blocking", "background"])
@pytest.mark.parametrize("seed", range(10))
def test_handover_makes_no_request_faster(seed: int, handover: str) -> None:
    arrivals, times = drawn(seed, 60)
    without = before = finish_s(served(arrivals, times, Pools(ONE_EACH), 3))
    for migration_s in (0.25, 3.0):
        after = finish_s(served(arrivals, times, Pools(ONE_EACH), 3, migration_s=migration_s, handover=handover))
        assert (after >= before).all()
        assert after[0] == without[0] + 2 * migration_s
        before = after


def test_handover_in_the_background_leaves_the_throughput() -> None:
    """It delays the first request, and no GPU: then one leaves in each time of the longest stage. In the foreground it
    adds to that time."""
    at_once = [0.0] * 8
    background, blocking = (
        finish_s(served(at_once, [(1.0, 4.0, 1.0)] * 8, Pools(ONE_EACH), 3, migration_s=0.5, handover=each))
        for each in ("background", "blocking")
    )
    assert background[0] == blocking[0] == 7.0
    assert np.diff(background).tolist() == [4.0] * 7
    assert (np.diff(blocking) > 4.0).all()


def test_moved_bytes_are_text_embeddings_then_a_latent() -> None:
    """64 x 64 pixels are 2,048 bytes of latent."""
    run = served([0.0], [(1.0, 1.0, 1.0)], Pools(ONE_EACH), 3, link_bytes_s=1024.0, text_bytes=512)
    assert finish_s(run).tolist() == [3.0 + 0.5 + 2.0]


def test_shared_pool_serves_a_request_of_its_own_before_its_queue() -> None:
    """Text encoder and VAE on one GPU, first come first served; a request stays on a GPU that runs its next stage."""
    pools = {TEXT_ENCODER: 1, DENOISER: 1, VAE: TEXT_ENCODER}
    run = served([0.0] * 2, [(1.0, 4.0, 2.0)] * 2, Pools(pools), 2)
    assert finish_s(run).tolist() == [7.0, 11.0]
    disaggregated = served([0.0] * 2, [(1.0, 4.0, 2.0)] * 2, Pools({TEXT_ENCODER: 1, DENOISER: 1, VAE: DENOISER}), 2)
    assert finish_s(disaggregated).tolist() == [7.0, 13.0]


def test_denoiser_on_a_group_of_gpus_is_as_much_faster() -> None:
    pools = Pools({TEXT_ENCODER: 1, DENOISER: 4, VAE: 1}, {DENOISER: 4, TEXT_ENCODER: 1})
    assert finish_s(served([0.0, 0.0], [(1.0, 8.0, 1.0)] * 2, pools, 6, degrees=(2, 4))).tolist() == [4.0, 6.0]


def test_colocated_stages_load_what_does_not_fit_beside_the_others_and_pools_load_nothing() -> None:
    weights = {TEXT_ENCODER: (6, 3.0), DENOISER: (8, 5.0), VAE: (1, 0.5)}
    times = [(1.0, 4.0, 1.0)] * 4
    colocated = served([0.0] * 4, times, Pools(), 1, memory_bytes=10, weights=weights)
    # Text encoder and denoiser take turns in the memory; the VAE stays, until it is the one used least recently.
    loads = colocated.record.request_columns["component_loads"].sum()
    assert finish_s(colocated)[-1] == 24.0 + colocated.record.request_columns["load_s"].sum()
    assert loads >= 2 * 4
    fits = served([0.0] * 4, times, Pools(), 1, memory_bytes=15, weights=weights)
    assert finish_s(fits)[-1] == 24.0
    disaggregated = served([0.0] * 4, times, Pools(ONE_EACH), 3, memory_bytes=10, weights=weights)
    assert disaggregated.record.request_columns["component_loads"].sum() == 0


def test_component_larger_than_the_memory_is_loaded_at_every_step_and_drives_out_the_others() -> None:
    """Its own times have that in them; the others are loaded for every request."""
    weights = {TEXT_ENCODER: (6, 3.0), DENOISER: (20, 5.0), VAE: (1, 0.5)}
    run = served([0.0] * 3, [(1.0, 4.0, 1.0)] * 3, Pools(), 1, memory_bytes=10, weights=weights)
    assert finish_s(run).tolist() == [9.5, 19.0, 28.5]


class TakesTurns(GroupPolicy):
    """Launches half of the denoiser's steps, or another stage, of the request that waits longest."""

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        waiting = [] if self.view.claimed[0] else list(self.view.waiting)[:1]
        return [Launch(each, (0,), min(each.left, 32)) for each in waiting]


def test_component_is_loaded_after_the_stage_of_another_request() -> None:
    """Both texts are encoded by 5 s. The denoiser is loaded by 10 s, and the VAE from 18 s on."""
    weights = {TEXT_ENCODER: (6, 3.0), DENOISER: (8, 5.0), VAE: (1, 0.5)}
    run = served([0.0] * 2, [(1.0, 4.0, 1.0)] * 2, TakesTurns(), 1, memory_bytes=10, weights=weights)
    assert finish_s(run).tolist() == [19.5, 20.5]


def test_busy_fraction_of_a_pool_is_its_offered_load() -> None:
    """Below saturation, images a second times seconds of a stage over its GPUs; the summary names the bottleneck."""
    outcome = simulated(
        "system=pools", "cluster=h100", "models=qwen-image", "cluster.count=8", "trace.requests=500",
        "arrivals.rate_rpm=24",
    )  # fmt: skip
    images_s = outcome.summary["throughput_rpm"] / 60
    for name, stage_s, gpus in ((TEXT_ENCODER, 0.23203, 1), (DENOISER, 50 * 0.24901, 6), (VAE, 0.0177, 1)):
        part = outcome.summary["stages"]["components"][name]
        assert part["gpus"] == gpus
        assert part["busy_fraction"] == pytest.approx(images_s * stage_s / gpus)
        assert part["gpu_s"] == pytest.approx(500 * stage_s)
    waits = [part["wait_s"] for part in outcome.summary["stages"]["components"].values()]
    latency_s = outcome.summary["latency_s"]["mean"]
    assert sum(waits) + 0.23203 + 50 * 0.24901 + 0.0177 == pytest.approx(latency_s)
    assert any("not charged" in str(each["source"]) for each in outcome.summary["assumptions"])


def test_gauges_of_pools_add_up_to_those_of_the_cluster() -> None:
    _, times = drawn(1, 80)
    run = served([0.0] * 80, times, Pools({TEXT_ENCODER: 1, DENOISER: 2, VAE: TEXT_ENCODER}), 3)
    table = series(run.record).to_pandas()
    starting = table["queued"] - table["queued_text-encoder+vae"] - table["queued_denoiser"]  # at this very instant
    assert (table["busy"] + starting == table["busy_text-encoder+vae"] + table["busy_denoiser"]).all()
    assert table["queued_denoiser"].max() > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("group_policy.pools.denoiser=5",), r"group_policy\.pools: found 7 GPUs in pools of a cluster of 8"),
        (("group_policy.pools.vae=decoder",), r"group_policy\.pools\.vae: found decoder, expected a number of GPUs"),
        (("group_policy.degrees.denoiser=7",), r"group_policy\.degrees\.denoiser: found 7 in a pool of 6 GPUs"),
        (("executor.stages=whole",), r"group_policy\.pools: found none for whole, .*executor\.stages=disaggregated"),
    ],
)
def test_pools_that_are_not_the_cluster_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated(
            "system=pools", "cluster=h100", "models=qwen-image", "cluster.count=8", "trace.requests=5", *overrides
        )


def test_pool_whose_component_takes_no_time_is_idle() -> None:
    """The profile has no seconds for text encoding."""
    outcome = simulated(
        "system=pools", "models=flux-dev-xdit", "cluster=h100", "cluster.count=8", "shapes=model", "trace.requests=20"
    )
    components = outcome.summary["stages"]["components"]
    assert components["text-encoder"]["busy_fraction"] == 0.0
    assert components["denoiser"]["busy_fraction"] > 0.0
