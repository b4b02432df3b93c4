"""Feature caches: steps of unequal cost are jumped over exactly, and reuse follows its rule."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.feature_cache.blocks import (
    AssumedFeatureSimilarity,
    Overhead,
    PatchLevel,
    WholeImage,
    reused_shares,
)
from mezzotint.sim.execution.feature_cache.steps import StepCaching
from mezzotint.sim.protocols import FeatureCache
from tests.sim.execution.test_continuous_batching import Stepped
from tests.sim.lab import engine, simulated

STEPS = 12
SIDES = (64, 96, 128)


class BySize(Stepped):
    """One step takes a fixed part and a part per pixel; its energy is proportional to its time."""

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        pixels = sum(work.width * work.height for work in works) / 64**2
        for work in works:
            work.done += count
        seconds = (self.one_s + self.more_s * pixels) * count
        return Cost(seconds, 100.0 * seconds)


def likeness(share: float = 0.6) -> AssumedFeatureSimilarity:
    return AssumedFeatureSimilarity({"large": {64: share, 128: share / 2}}, patch_px=32)


def overhead() -> Overhead:
    return Overhead({"large": 7}, 0.001, 0.0005, 32)


def patch_level(max_reused: int = 2) -> PatchLevel:
    return PatchLevel(likeness(), overhead(), max_reused)


def whole_image(max_reused: int = 2) -> WholeImage:
    return WholeImage(likeness(), overhead(), max_reused)


def skips(decides: Any = "request") -> StepCaching:
    return StepCaching([0, 1, 2, 5, 8, 11], STEPS, 0.1, decides)


FEATURE_CACHES: dict[str, Callable[[], FeatureCache]] = {
    "patch-level": patch_level,
    "whole-image": whole_image,
    "teacache": skips,
    "teacache, one decision": lambda: skips("batch"),
}


def stepped(times: Sequence[float], sides: Sequence[int], cache: FeatureCache | None, max_batch: int) -> Engine:
    shapes = (np.array(sides, np.int32), np.array(sides, np.int32), np.full(len(sides), STEPS, np.int32))
    backend = BySize(0.5, 0.3)
    run = engine(
        times,
        np.ones(len(times)),
        1,
        backend=backend,
        executor=ContinuousBatching(max_batch, feature_cache=cache),
        shapes=shapes,
        use_model_shape=False,
    )
    run.run()
    return run


def requests(sides: Sequence[int], lefts: Sequence[int]) -> list[Request]:
    made = []
    for row, (side, left) in enumerate(zip(sides, lefts, strict=True)):
        request = Request(row, 0.0, side, side, STEPS)
        request.model, request.steps_left = "large", left
        made.append(request)
    return made


def by_hand(active: Sequence[Request]) -> Cost:
    """Reuse depends on the size alone."""
    seconds = 0.5 + 0.3 * sum(r.width * r.height for r in active) / 64**2
    return Cost(seconds, 100.0 * seconds)


def brute(times: Sequence[float], sides: Sequence[int], cache: FeatureCache, max_batch: int) -> list[float]:
    """Return the finish of every request on one worker by asking for each step on its own."""
    finish, active, now, waiting = [0.0] * len(times), [], 0.0, list(range(len(times)))
    all_requests = requests(sides, [STEPS] * len(sides))
    while waiting or active:
        while waiting and times[waiting[0]] <= now and len(active) < max_batch:
            active.append(all_requests[waiting.pop(0)])
        if not active:
            now = times[waiting[0]]
            continue
        now += cache.step_costs(active, 1, by_hand).seconds(1)
        for request in list(active):
            request.steps_left -= 1
            if not request.steps_left:
                active.remove(request)
                finish[request.row] = now
    return finish


arrivals = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(SIDES)), min_size=1, max_size=16)


@pytest.mark.parametrize("name", [name for name in FEATURE_CACHES if name != "whole-image"])
@settings(max_examples=30)
@given(given_=arrivals, max_batch=st.integers(1, 4))
def test_jumping_over_unequal_steps_ends_where_single_steps_do(
    name: str, given_: list[tuple[int, int]], max_batch: int
) -> None:
    times = [float(t) + 0.0137 * i for i, t in enumerate(np.cumsum([gap for gap, _ in given_]))]
    sides = [side for _, side in given_]
    run = stepped(times, sides, FEATURE_CACHES[name](), max_batch)
    np.testing.assert_allclose(
        run.record.request_columns["finish_s"], brute(times, sides, FEATURE_CACHES[name](), max_batch), rtol=1e-9
    )
    spans = run.record.usage_log.spans()
    assert (spans["from_s"][1:] >= spans["until_s"][:-1] - 1e-9).all()
    np.testing.assert_allclose(
        run.record.request_columns["step_share_s"].sum(), (spans["until_s"] - spans["from_s"]).sum()
    )
    np.testing.assert_allclose(run.record.request_columns["energy_j"].sum(), spans["joules"].sum())


@pytest.mark.parametrize("name", FEATURE_CACHES)
@settings(max_examples=40)
@given(
    lefts=st.lists(st.integers(1, STEPS), min_size=1, max_size=4),
    sides=st.lists(st.sampled_from(SIDES), min_size=4, max_size=4),
    share=st.floats(0.0, 1.0),
)
def test_step_costs_are_nondecreasing_and_cut_at_the_next_boundary(
    name: str, lefts: list[int], sides: list[int], share: float
) -> None:
    active, count = requests(sides[: len(lefts)], lefts), min(lefts)
    costs = FEATURE_CACHES[name]().step_costs(active, count, by_hand)
    ends = [costs.seconds(n) for n in range(count + 1)]
    assert ends[0] == 0.0
    assert all(later >= earlier for earlier, later in itertools.pairwise(ends))
    assert max(later - earlier for earlier, later in itertools.pairwise(ends)) <= costs.longest_s + 1e-9
    sought_s = share * ends[-1]
    n = costs.steps_by(sought_s)
    assert ends[n] >= sought_s - 1e-8, "what lies no further past a boundary is at it"
    assert n == 0 or ends[n - 1] < sought_s
    for at, end in enumerate(ends):
        assert costs.steps_by(end) <= at
    np.testing.assert_allclose([costs.joules(n) for n in range(count + 1)], 100.0 * np.array(ends), atol=1e-9)
    assert all(0.0 <= reused <= count for reused in costs.reused(count))


@given(share=st.floats(0, 1), max_reused=st.integers(1, 5))
def test_reuse_never_exceeds_max_consecutive_steps_and_matches_a_renewal_process(share: float, max_reused: int) -> None:
    """In the long run reuse is a renewal process: one computed step, then reused shares of s, s^2, ...."""
    found = reused_shares([0.0] + [share] * 4000, max_reused)
    expected = sum(share**n for n in range(1, max_reused + 1))
    # with equal shares the pattern repeats within max_reused + 1 steps: compare a mean over whole periods
    np.testing.assert_allclose(np.mean(found[-3600:]), expected / (1 + expected), atol=2e-3)
    assert found[0] == 0.0
    rng = np.random.default_rng(3)
    alike = rng.random(12) * share
    row, total, trials = np.zeros(4000, int), np.zeros(12), 4000
    for at, chance in enumerate(alike):
        again = (rng.random(trials) < chance) & (row < max_reused) & (at > 0)
        row = np.where(again, row + 1, 0)
        total[at] = again.mean()
    np.testing.assert_allclose(reused_shares([0.0, *alike[1:]], max_reused), total, atol=0.045)


def test_feature_cache_without_reuse_costs_only_its_overhead() -> None:
    times, sides = [0.0, 1.0, 2.5, 30.0], [64, 128, 96, 64]
    free = Overhead({"large": 7}, 0.0, 0.0, 32)
    plain = stepped(times, sides, None, 3)
    for cache in (
        PatchLevel(likeness(0.0), free),
        WholeImage(likeness(0.0), free),
        StepCaching(list(range(9)), 9, 0.5),
    ):
        run = stepped(times, sides, cache, 3)
        for name in ("start_s", "finish_s", "denoise_s", "energy_j", "step_share_s"):
            np.testing.assert_allclose(run.record.request_columns[name], plain.record.request_columns[name], rtol=1e-12)
        np.testing.assert_allclose(run.record.request_columns["reused_share"], 0.0)


def test_patch_level_reuse_exceeds_whole_image_reuse_and_falls_with_size() -> None:
    """PatchedServe's Figure 15: a batch reuses less than an image alone."""
    alone = {side: requests([side], [STEPS]) for side in SIDES}
    by_patch = {
        side: patch_level().step_costs(active, STEPS, by_hand).reused(STEPS)[0] for side, active in alone.items()
    }
    by_image = {
        side: whole_image().step_costs(active, STEPS, by_hand).reused(STEPS)[0] for side, active in alone.items()
    }
    assert by_patch[64] > by_patch[96] > by_patch[128]
    assert all(by_patch[side] > by_image[side] for side in SIDES)
    together = requests([64, 64], [STEPS, STEPS])
    assert whole_image().step_costs(together, STEPS, by_hand).reused(STEPS)[0] < by_image[64]
    np.testing.assert_allclose(patch_level().step_costs(together, STEPS, by_hand).reused(STEPS), by_patch[64])


def test_feature_cache_overhead_counts_every_block_and_patch() -> None:
    full, active = by_hand(requests([64, 128], [3, 3])), requests([64, 128], [3, 3])
    cache = PatchLevel(likeness(0.0), overhead())
    assert cache.step_costs(active, 1, by_hand).seconds(1) == pytest.approx(
        full.seconds + 7 * (0.001 + 0.0005 * (4 + 16))
    )


def test_teacache_step_list_is_followed_and_stretched_to_other_step_counts() -> None:
    cache = skips()
    assert [i for i, on in enumerate(cache.plan(STEPS)) if on] == [0, 1, 2, 5, 8, 11]
    assert sum(cache.plan(STEPS // 2)) / (STEPS // 2) > 6 / STEPS, "steps that lie further apart change more"
    assert cache.plan(STEPS, 3) == [True, False, True, False, False, True, False, False, True]
    one, other = requests([64], [STEPS - 3])[0], requests([64, 64], [1, STEPS - 2])[1]
    took = cache.step_costs([one, other], 1, by_hand).seconds(1)  # step 3 is reused, step 2 is not
    assert took == pytest.approx(by_hand([other]).seconds + 0.1 * by_hand([one]).seconds)
    assert skips("batch").step_costs([one, other], 1, by_hand).seconds(1) == by_hand([one, other]).seconds


def test_feature_caches_state_their_assumptions_and_refuse_unknown_models() -> None:
    asked = ("models=sdxl", "cluster=h800", "trace=mix", "trace.requests=60", "arrivals.rate_rpm=20")
    ran = ("executor=continuous-batching", "executor.max_batch=4", "extrapolate=warn")
    plain = simulated(*asked, *ran)
    for cache in ("patch-level", "whole-image", "teacache", "dbcache"):
        outcome = simulated(*asked, *ran, f"feature_cache={cache}")
        shares = outcome.requests.column("reused_share").to_numpy()
        assert ((shares > 0) & (shares < 1)).all()
        stated = [each["value"] for each in outcome.summary["assumptions"]]
        assert len(stated) > len(plain.summary["assumptions"])
        assert cache != "dbcache" or "15 of 50" in stated
        assert outcome.summary["quality"]["factor_mean"] is None
        assert "feature_cache" in outcome.summary["quality"]["reason"]
    with pytest.raises(ConfigError, match="feature_cache=teacache: applies only with executor=continuous-batching"):
        simulated(*asked, "feature_cache=teacache")
    with pytest.raises(ConfigError, match=r"likeness.shares: none for sd3\.5-large"):
        simulated("cluster=mi210", *asked[2:], *ran, "feature_cache=patch-level")
    with pytest.raises(ConfigError, match=r"computed: found 50, expected steps from 0 to 49"):
        simulated(*asked, *ran, "feature_cache=teacache", "feature_cache.computed=[0,50]")


def test_reuse_of_whole_images_depends_on_size_whatever_came_before() -> None:
    cache = whole_image()
    for side in (*SIDES, *SIDES):
        alone = requests([side], [STEPS])
        reused = whole_image().step_costs(alone, STEPS, by_hand).reused(STEPS)
        assert cache.step_costs(alone, STEPS, by_hand).reused(STEPS) == reused


def test_model_without_a_count_of_blocks_is_refused_with_those_that_have_one() -> None:
    cache = PatchLevel(
        AssumedFeatureSimilarity({"large": {64: 0.6}}, patch_px=32), Overhead({"sdxl": 7}, 0.001, 0.0, 32)
    )
    with pytest.raises(ConfigError, match="sdxl"):
        cache.step_costs(requests([64], [STEPS]), STEPS, by_hand)
