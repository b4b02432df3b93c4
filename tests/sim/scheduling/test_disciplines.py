"""Disciplines of a worker's queue, the group of all GPUs, and batches of patches, against their definitions."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import BackendError, Work
from mezzotint.backends.patched import common_side, count_patches, cut
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import COMPLETED, Addons, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.protocols import Discipline
from mezzotint.sim.scheduling.disciplines.edf import Edf
from mezzotint.sim.scheduling.disciplines.one_resolution import OneResolution
from mezzotint.sim.scheduling.disciplines.pixel_budget import PixelBudget
from mezzotint.sim.scheduling.disciplines.shortest_remaining import ShortestRemaining
from mezzotint.sim.scheduling.latency_predictor import Known, RequestKind, Svr
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from tests.sim.lab import engine, simulated
from tests.sim.scheduling.disciplines.test_slack import SIDES, UNIT, MixedTimes

SIZES = [(512, 512), (768, 768), (1024, 1024)]


def served(
    make: Any, backend: MixedTimes, times: Any, sides: Sequence[int], steps: Sequence[int], max_batch: int, **parts: Any
) -> Engine:  # fmt: skip
    side, left = np.array(sides, np.int32), np.array(steps, np.int32)
    executor = ContinuousBatching(max_batch)
    discipline: Discipline = make(executor)
    run = engine(
        times, 2.0 ** (side // 128), backend=backend, executor=executor,
        scheduler=PerWorkerQueues(LeastOutstanding("pixels"), discipline), shapes=(side, side, left),
        use_model_shape=False,
        models={"large": Model("large", 50, 64, 64)}, **parts,
    )  # fmt: skip
    run.run()
    assert (run.record.request_columns["outcome"] == COMPLETED).all()
    return run


@settings(max_examples=80)
@given(
    gaps=st.lists(st.integers(0, 8), min_size=1, max_size=15),
    steps=st.lists(st.integers(1, 9), min_size=15, max_size=15),
    max_batch=st.integers(1, 4),
)
def test_shortest_remaining_runs_the_requests_with_fewest_steps_left(
    gaps: list[int], steps: list[int], max_batch: int
) -> None:
    """Against simulating every step: a step takes a second for any batch."""
    times = np.cumsum(gaps).astype(float)
    left = dict(enumerate(steps[: len(gaps)]))
    finish = dict.fromkeys(left, 0.0)
    now = 0.0
    while left:
        there = sorted((n, row) for row, n in left.items() if times[row] <= now)
        if not there:
            now = min(times[row] for row in left)
            continue
        now += 1.0
        for _, row in there[:max_batch]:
            left[row] -= 1
            if not left[row]:
                finish[row] = now
                del left[row]
    run = served(
        lambda executor: ShortestRemaining(executor, Known()), MixedTimes(256, 0, 0), times, [64] * len(gaps),
        steps[: len(gaps)], max_batch,
    )  # fmt: skip
    assert run.record.request_columns["finish_s"].tolist() == list(finish.values())


@pytest.mark.invariant(7)
def test_preemption_keeps_finished_steps_and_adds_no_cost() -> None:
    """A long request with a short one in between: alone they take 100 and 10 units, and so they do when one
    preempts."""
    run = served(
        lambda executor: ShortestRemaining(executor, Known()), MixedTimes(1, 0, 0, begin=5), [0.0,
        20 * UNIT], [64, 64],
        [100, 10], 1,
    )  # fmt: skip
    columns = run.record.request_columns
    assert columns["finish_s"].tolist() == [120 * UNIT, 35 * UNIT]
    assert columns["denoise_s"].tolist() == [100 * UNIT, 10 * UNIT]
    assert columns["start_s"].tolist() == [0.0, 20 * UNIT]
    assert float(columns["energy_j"].sum()) == pytest.approx(300.0 * 120 * UNIT)


@settings(max_examples=40)
@given(
    sides=st.lists(st.sampled_from(SIDES), min_size=1, max_size=15),
    steps=st.lists(st.integers(1, 9), min_size=15, max_size=15),
    max_batch=st.integers(1, 6),
    overtake=st.booleans(),
    pixels=st.integers(4096, 4096 * 40),
)
def test_one_resolution_batches_share_a_size_and_stay_below_the_pixel_cap(
    sides: list[int], steps: list[int], max_batch: int, overtake: bool, pixels: int
) -> None:
    seen: list[list[int]] = []

    class Watched(MixedTimes):
        def steps(self, works: Sequence[Work], count: int = 1) -> Any:
            seen.append([work.width for work in works])
            return super().steps(works, count)

    backend, times = Watched(3, 1, 1), np.arange(len(sides)) * 4 * UNIT
    served(lambda executor: OneResolution(executor, overtake), backend, times, sides, steps[: len(sides)], max_batch)
    assert all(len(set(batch)) == 1 and len(batch) <= max_batch for batch in seen)
    seen.clear()
    served(lambda executor: PixelBudget(executor, pixels), backend, times, sides, steps[: len(sides)], max_batch)
    assert all(len(batch) == 1 or sum(side * side for side in batch) <= pixels for batch in seen)
    seen.clear()
    small = Gpu("test", 300.0, 60.0, "made up", memory_bytes=160)
    served(
        lambda executor: PixelBudget(executor, 10**9), Watched(3, 1, 1, bytes_=10), times, sides,
        steps[: len(sides)], max_batch,
        gpu=small,
    )  # fmt: skip
    assert all(sum((side // 64) ** 2 for side in batch) <= 16 for batch in seen)


def test_without_overtaking_no_request_joins_before_the_queue_head() -> None:
    def finish(overtake: bool) -> list[float]:
        run = served(
            lambda executor: OneResolution(executor, overtake),
            MixedTimes(4, 0, 0),
            [0.0, UNIT, 2 * UNIT],
            [64, 128, 64],
            [4] * 3,
            2,
        )
        return [float(value) / UNIT for value in run.record.request_columns["finish_s"]]

    assert finish(True) == [16, 36, 20]  # the third joins the first at the boundary after it came
    assert finish(False) == [16, 32, 48]


def test_edf_serves_the_earliest_deadline_next() -> None:
    """Deadlines are twice 2, 4 and 16 s after arrival; one runs, and the shortest limits overtake earlier arrivals."""
    run = served(
        lambda executor: Edf(),
        MixedTimes(256, 0, 0),
        [0.0, 0.1, 0.2, 0.3],
        [64, 256, 128, 64],
        [4] * 4,
        1,
        deadline=2.0,
    )
    assert np.argsort(run.record.request_columns["start_s"]).tolist() == [0, 3, 2, 1]


# -- patches -------------------------------------------------------------------------------------------------------


def test_patch_side_is_the_gcd_of_all_sizes_or_the_minimum() -> None:
    assert common_side(SIZES, 64) == 256
    assert common_side([(512, 768), (640, 512)], 64) == 128
    assert common_side([(512, 512), (904, 512)], 64) == 64  # 8 would be mostly border: 904 is padded to 960
    assert count_patches([(904, 512)], 64)[0] == 15 * 8
    assert cut((512, 512), 512) == (1, 1)


@given(sides=st.lists(st.integers(1, 4096), min_size=1, max_size=40), min_side=st.integers(1, 256))
def test_patches_cover_every_image(sides: list[int], min_side: int) -> None:
    sizes = [(width, height) for width, height in zip(sides, reversed(sides), strict=True)]
    side = common_side(sizes, min_side)
    assert side >= min_side
    for width, height in sizes:
        across, down = cut((width, height), side)
        assert across * side >= width > (across - 1) * side
        assert down * side >= height > (down - 1) * side


@pytest.mark.parametrize("model", ["sdxl", "sd3-medium"])
def test_patched_step_time_is_base_plus_patches_plus_sizes_plus_borders(model: str) -> None:
    backend = Profiled("h100")
    timing = backend.profiles[model].patched
    assert timing is not None

    def step_s(*sides: int, side: int = 256) -> float:
        return backend.patched([Work(model, each, each, 50) for each in sides], side).seconds

    borders = 48 + 2 * 8
    expected = timing.base_s + 24 * timing.patch_s + timing.size_s + borders * timing.halo_s
    assert step_s(1024, 512, 512) == pytest.approx(expected)
    assert step_s(512, 512, 1024) == step_s(1024, 512, 512)
    assert step_s(512, side=512) == pytest.approx(backend.seconds("step", model, 512, 512))  # uncut, as measured
    assert step_s(1024, 512) < step_s(1024) + step_s(512)  # patches are for this
    with pytest.raises(BackendError, match="outside the measured grid"):
        step_s(2048)
    with pytest.raises(BackendError, match="share no batch of patches"):
        backend.patched([Work("sdxl", 512, 512, 50), Work("sd3-medium", 512, 512, 50)], 256)
    with pytest.raises(BackendError, match="nobody measured what a step of patches takes"):
        backend.patched([Work("z-image-turbo", 1024, 1024, 9)], 256)


def test_any_set_of_sizes_can_be_served_in_patches() -> None:
    """Odd sizes too: a side outside the profile is reported as extrapolated, and is not the patch's."""
    shapes = "[[512,512,10,1],[904,576,10,1],[1016,760,10,1]]"
    for side in ("trace", "active", "128"):
        outcome = simulated(
            "system=patchedserve", "cluster=h100", "trace=mix", f"trace.shapes={shapes}", "shapes=trace", "slo=[5]",
            "trace.requests=60", f"batching.side={side}", "latency_predictor=known",
        )  # fmt: skip
        assert outcome.summary["requests"]["completed"] > 50
        (assumption,) = [each for each in outcome.summary["assumptions"] if each["what"] == "side of a patch [px]"]
        assert assumption["value"] == {"trace": 64, "active": "active", "128": 128}[side]


def test_a_backend_without_patches_is_refused_before_the_run() -> None:
    with pytest.raises(BackendError, match="nobody measured what a step of patches takes"):
        simulated("system=patched-cache", "feature_cache=none", "trace.requests=5", "trace.history=20")
    run = engine([0.0], [1.0], backend=MixedTimes(1, 1, 1), executor=ContinuousBatching(2, PatchedSteps()))
    with pytest.raises(ConfigError, match="MixedTimes does not step patches"):
        run.run()


def test_arrival_during_the_last_step_preempts_nothing() -> None:
    """The next boundary would have asked it to yield, but the other request leaves there."""
    run = served(
        lambda executor: ShortestRemaining(executor, Known()),
        MixedTimes(256, 0, 0),
        [0.0, 9.5],
        [64, 64],
        [10, 3],
        1,
    )
    assert run.record.request_columns["finish_s"].tolist() == [10.0, 13.0]


def test_preemptive_discipline_refuses_addons() -> None:
    with pytest.raises(ConfigError, match="a request that may be preempted cannot have add-ons; add addons=ignore"):
        served(
            lambda executor: ShortestRemaining(executor, Known()), MixedTimes(256, 0, 0), [0.0], [64], [5], 1,
            addons=lambda row: Addons(),
        )  # fmt: skip


def test_shortest_remaining_expects_the_model_shape_when_every_image_has_it() -> None:
    """The rows ask for 128 pixels and get the model's 64, at 50 steps of a unit and of one for the patch; the second
    arrives with the fewest steps left and never yields."""
    side = np.array([128, 128], np.int32)
    executor = ContinuousBatching(1)
    run = engine(
        [0.0, 1.5 * UNIT], [1.0] * 2, backend=MixedTimes(1, 1, 0), executor=executor, shapes=(side, side, side),
        scheduler=PerWorkerQueues(LeastOutstanding(), ShortestRemaining(executor, Known())),
        models={"large": Model("large", 50, 64, 64)},
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [100 * UNIT, 200 * UNIT]


# -- the predictor and the group --------------------------------------------------------------------------------------


def test_svr_latency_predictor_fits_the_backend_and_reports_its_error() -> None:
    side = np.array([64, 128, 256] * 3, np.int32)
    executor, svr, known = ContinuousBatching(16), Svr(), Known()
    run = engine(
        np.zeros(9),
        np.ones(9),
        backend=MixedTimes(40, 2, 9),
        executor=executor,
        shapes=(side, side, side),
        use_model_shape=False,
    )
    run.open()
    for latency in (svr, known):
        latency.bind(run, executor, [RequestKind(each, each, 1) for each in SIDES])
    drawn = np.random.default_rng(5).integers(0, 6, (100, 3))
    batches = [tuple(int(n) for n in row) for row in drawn if 0 < sum(row) <= 16]
    truth_s = np.array([known.step_s("large", each) for each in batches])
    error_s = np.array([svr.step_s("large", each) for each in batches]) - truth_s
    (assumption,) = [each for each in run.record.assumptions if "squared error" in each.what]
    assert "240 random batches, of 60 others" in assumption.source
    assert np.sqrt(np.mean(error_s**2)) < 0.03 * truth_s.mean()
    assert np.sqrt(assumption.value) / 1e3 < 0.03 * truth_s.mean()


@pytest.mark.parametrize("made", [Known, Svr])
def test_latency_predictor_repeats_answers_after_clearing_its_cache(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    side = np.array([64, 128, 256], np.int32)
    executor, latency = ContinuousBatching(4), made()
    run = engine(
        np.zeros(3),
        np.ones(3),
        backend=MixedTimes(40, 2, 9),
        executor=executor,
        shapes=(side, side, side),
        use_model_shape=False,
    )
    run.open()
    latency.bind(run, executor, [RequestKind(each, each, 1) for each in SIDES])
    batches = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 1, 0), (1, 1, 1)]
    first_s = [latency.step_s("large", each) for each in batches]
    assert len(set(first_s)) == len(batches)
    monkeypatch.setattr("mezzotint.sim.scheduling.latency_predictor.MAX_CACHED", 2)
    for each in (*range(5), *range(5)):
        assert latency.step_s("large", batches[each]) == first_s[each]
        latency.step_s("large", (each + 1, 2, each))  # plus one for the cache


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_distrifusion_serves_one_request_at_a_time_on_all_gpus(gpus: int) -> None:
    outcome = simulated(
        "system=distrifusion", "cluster=h100", f"cluster.count={gpus}", "trace=hybrid", "shapes=trace", "slo=[5]",
        "trace.requests=30", "arrivals.rate_rpm=60",
    )  # fmt: skip
    table = outcome.requests
    width, denoise_s = table["width"].to_numpy(), table["denoise_s"].to_numpy()
    standalone_s = 50 * np.interp(width**2, [512**2, 1024**2], [0.07, 0.091])
    times = {1: 1.0, 2: 1.62, 4: 1.666, 8: 1.642}[gpus]
    assert denoise_s == pytest.approx(standalone_s / times, rel=1e-5)
    starts, ends = (table[name].to_numpy() for name in ("start_s", "finish_s"))
    assert (starts[1:] >= ends[:-1] - 1e-9).all()


def test_nirvana_orca_skips_a_fixed_fraction_of_the_steps() -> None:
    outcome = simulated(
        "system=nirvana-orca", "cluster=h100", "trace=hybrid", "shapes=trace", "slo=[5]", "trace.requests=20",
        "arrivals.rate_rpm=1",
    )  # fmt: skip
    assert set(outcome.requests["skipped"].to_pylist()) == {10}  # 0.21 of 50
    assert "share of all steps that is not run" in {each["what"] for each in outcome.summary["assumptions"]}


def test_one_resolution_counts_waiting_requests_as_they_are_added_and_taken() -> None:
    stepper: Any = SimpleNamespace(active=lambda worker: [], joining=lambda worker: [])
    worker: Any = object()
    queue = OneResolution(stepper)
    requests = [Request(row, 0.0, side, side, 50) for row, side in enumerate((64, 128, 64))]
    for count, request in enumerate(requests, 1):
        queue.add(worker, request, 0.0)
        assert len(queue) == count
    assert queue.next(worker, 0.0) is requests[0]
    assert len(queue) == 2
    assert queue.leave(worker) == requests[1:]
    assert len(queue) == 0
