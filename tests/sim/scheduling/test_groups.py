"""Groups of as many GPUs as each request takes: waiting for GPUs, reuse of groups, and their loads."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mezzotint.sim.core.request import COMPLETED, FAILED, Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.scheduling.groups import WorkerGroups
from tests.sim.lab import FixedTimes, engine

FASTER = dict.fromkeys(range(2, 9), 1.0)


def served_by_groups(
    times: Any, full_s: Any, nets: list[tuple[str, ...]], count: int, load_s: float = 0.0, **how: Any
) -> Engine:
    """A finished run of requests that take ``full_s`` on any group and ask for ``nets``."""
    run = engine(
        times, full_s, count, backend=FixedTimes([float(each) for each in full_s], load_s),
        scheduler=WorkerGroups(**how), executor=Sequential(FASTER), addons=lambda row: Addons(nets[row]),
    )  # fmt: skip
    run.run()
    return run


def members(run: Engine) -> list[tuple[int, ...]]:
    """Return the GPUs of each served request."""
    done = run.record.request_columns["outcome"] == COMPLETED
    return [run.cluster.gpus_of(int(worker)) for worker in run.record.request_columns["worker"][done]]


@settings(max_examples=60)
@given(
    data=st.data(),
    count=st.integers(1, 5),
    how=st.sampled_from([{}, {"denoisers": 2}, {"sizes": [1, 3, 2]}, {"sizes": [2]}]),
)
def test_queue_head_starts_once_enough_gpus_are_idle(data: st.DataObject, count: int, how: dict[str, Any]) -> None:
    """Brute force: no request overtakes, and the first waits for nothing but GPUs."""
    assume(count >= min(how.get("sizes", [how.get("denoisers", 1)])))
    asked = data.draw(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=12)
    )
    times = np.cumsum([float(gap) for gap, _, _ in asked])
    nets = [tuple(f"net-{number}" for number in range(some)) for _, _, some in asked]
    run = served_by_groups(times, [float(took) for _, took, _ in asked], nets, count, **how)
    free_s, turn_s, starts, takes = [0.0] * count, 0.0, [], []
    for time_s, (_, took, some) in zip(times, asked, strict=True):
        gpus = how.get("denoisers", 1) * (1 + some)
        if "sizes" in how:
            gpus = how["sizes"][min(some, len(how["sizes"]) - 1)]
        takes.append(gpus)
        if gpus > count:
            continue
        free_s.sort()
        turn_s = max(turn_s, time_s, free_s[gpus - 1])
        starts.append(turn_s)
        free_s[:gpus] = [turn_s + took] * gpus
    columns = run.record.request_columns
    fits = np.array(takes) <= count
    assert columns["outcome"].tolist() == np.where(fits, COMPLETED, FAILED).tolist()
    assert columns["start_s"][fits].tolist() == starts
    assert [len(each) for each in members(run)] == [gpus for gpus in takes if gpus <= count]
    assert len(run.scheduler) == 0
    gpu_seconds = sum(gpus * took for gpus, (_, took, _) in zip(takes, asked, strict=True) if gpus <= count)
    assert run.record.usage_log.inside(0.0, 1e6, run.cluster.gpu_counts()).busy_s == gpu_seconds


def test_new_queue_head_takes_gpus_that_stayed_idle() -> None:
    """Of four GPUs three serve the first request and then the second, which delayed the third: from the start of the
    second, the fourth is free for the third."""
    run = served_by_groups([0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [("a", "b"), ("a", "b"), ()], 4)
    assert run.record.request_columns["start_s"].tolist() == [0.0, 2.0, 2.0]


@pytest.mark.parametrize("how", [{"sizes": [1, 2]}, {}])
def test_request_prefers_the_group_that_holds_its_controlnet(how: dict[str, Any]) -> None:
    """Each of two groups loaded a ControlNet of its own (2 s): a second request for one goes to its group, in either
    order, and loads nothing."""
    nets: list[tuple[str, ...]] = [("canny",), ("depth",), ("canny",), ("depth",), ("depth",), ("canny",)]
    run = served_by_groups([0.0, 1.0, 20.0, 21.0, 40.0, 41.0], [5.0] * 6, nets, 5, 2.0, **how)
    columns = run.record.request_columns
    assert columns["load_s"].tolist() == [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    canny, depth, *later = members(run)
    assert not set(canny) & set(depth)
    assert later == [canny, depth, depth, canny]


def test_smallest_groups_are_disbanded_first_and_no_more_than_needed() -> None:
    """Of five GPUs a group of two and one of three are idle: one GPU comes from the two, and four from both."""
    nets: list[tuple[str, ...]] = [("a",), ("a", "b"), (), ("a", "b"), ("a", "b", "c")]
    run = served_by_groups([0.0, 0.0, 20.0, 20.0, 40.0], [5.0] * 5, nets, 5)
    two, three, one, again, four = members(run)
    assert [len(each) for each in (two, three, one, again, four)] == [2, 3, 1, 3, 4]
    assert set(one) < set(two)
    assert again == three
    assert run.record.request_columns["start_s"].tolist() == [0.0, 0.0, 20.0, 20.0, 40.0]


def test_request_waiting_for_a_loading_group_gets_no_second_group() -> None:
    """GPUs 2 and 3 hold different models, so that their group loads (5 s); 0 and 1 become free at 1 and 3 s, and
    stay."""
    nets: list[tuple[str, ...]] = [(), (), ("a",), ()]
    full_s = [1.0, 3.0, 2.0, 4.0]
    run = engine(
        [0.0, 0.0, 0.0, 4.0], full_s, 4, backend=FixedTimes(full_s, 5.0), scheduler=WorkerGroups(sizes=[1, 2]),
        executor=Sequential(FASTER), addons=lambda row: Addons(nets[row]), roles=["large", "large", "large", "small"],
    )  # fmt: skip
    run.run()
    groups = [details["gpus"] for _, what, details in run.record.decisions if what == "group"]
    assert groups == [[2, 3]]
    assert members(run)[2] == (2, 3)
    assert run.record.request_columns["start_s"].tolist() == [0.0, 0.0, 5.0, 5.0]


def test_request_that_needs_more_gpus_than_exist_fails_with_the_counts() -> None:
    run = served_by_groups([0.0, 1.0], [5.0, 5.0], [("a", "b"), ()], 5, denoisers=2)
    assert run.record.request_columns["outcome"].tolist() == [FAILED, COMPLETED]
    reason = "with 2 ControlNets it takes 6 GPUs, 2 of them for the denoiser; found 5; raise cluster.count"
    assert run.record.request_columns.reasons == {0: reason}
