"""Fixed groups of GPUs: queues, preemption at boundaries, groups that share GPUs."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from tests.sim.lab import simulated
from tests.sim.scheduling.group_policies.lab import (
    STEP_S,
    amdahl,
    column,
    ideal,
    outcome,
    poisson,
    profile,
    served,
    spans,
)

SHARED = "group_policy.groups=[[0],[1],[2],[3],[4],[5],[6],[7],[0,1,2,3],[4,5,6,7]]"


def fixed(groups: str, *more: str) -> list[str]:
    return ["system=fixed-groups", f"group_policy.groups={groups}", *more]


def test_one_gpu_of_degree_one_equals_sequential_execution_to_the_bit() -> None:
    common = ("cluster.count=1", "arrivals.rate_rpm=1", "trace.requests=300", "models=sdxl", "cluster=h100")
    plain = simulated("system=vanilla", *common).requests
    groups = simulated("system=fixed-groups", "group_policy.groups=1x1", *common).requests
    for name in ("arrival_s", "start_s", "finish_s"):
        assert np.array_equal(plain[name].to_numpy(), groups[name].to_numpy()), name
    assert groups["energy_j"].to_numpy() == pytest.approx(plain["energy_j"].to_numpy(), rel=1e-9)


@pytest.mark.parametrize("degree", [2, 4])
def test_degree_n_without_cost_is_n_times_as_fast(degree: int, tmp_path: Path) -> None:
    rows = [(0.0, name, steps) for name in "SML" for steps in (50, 7)]
    folder = profile(tmp_path / "ideal", ideal)
    one, several = (
        column(served(rows, folder, *fixed(f"1x{n}", f"cluster.count={n}")), "finish_s") for n in (1, degree)
    )
    assert several * degree == pytest.approx(one, rel=1e-12)


def test_round_robin_gives_each_group_every_nth_request(tmp_path: Path) -> None:
    engine = served(poisson(40, 1.0), profile(tmp_path / "p"), *fixed("4x2"))
    gpus = {row: group for row, group, *_ in spans(engine)}
    assert [gpus[row][0] for row in range(40)] == [2 * (row % 4) for row in range(40)]


def test_degree_without_a_count_fills_the_cluster(tmp_path: Path) -> None:
    engine = served([(0.0, "S", 5)] * 3, profile(tmp_path / "p"), *fixed("x2", "cluster.count=6"))
    assert [gpus for _, gpus, *_ in spans(engine)] == [(0, 1), (2, 3), (4, 5)]


def test_least_backlog_lets_no_request_wait_while_a_group_is_idle(tmp_path: Path) -> None:
    rows = poisson(300, 4.0, seed=3)
    engine = served(rows, profile(tmp_path / "p"), *fixed("8x1", "group_policy.assignment=least-backlog"))
    start_s, finish_s = column(engine, "start_s"), column(engine, "finish_s")
    waited = [row for row, (arrival_s, *_) in enumerate(rows) if start_s[row] > arrival_s]
    assert len(waited) > 20
    for row in waited:
        arrival_s = rows[row][0]
        assert ((start_s <= arrival_s) & (finish_s > arrival_s)).sum() == 8


def test_shortest_job_first_runs_the_shortest_that_waits(tmp_path: Path) -> None:
    rows = [(0.0, "L", 50), (1.0, "L", 50), (2.0, "M", 50), (3.0, "S", 50)]
    engine = served(rows, profile(tmp_path / "p"), *fixed("1x1", "cluster.count=1", "group_policy.order=sjf"))
    assert np.argsort(column(engine, "start_s")).tolist() == [0, 3, 2, 1]


def test_priority_order_goes_before_deadline_and_arrival(tmp_path: Path) -> None:
    rows = [(0.0, "L", 50), (1.0, "L", 50), (2.0, "M", 50), (3.0, "M", 50)]
    words = ["cluster.count=1", "group_policy.order=priority", "+group_policy.priority_by_size={1024x1024: 1}"]
    engine = served(rows, profile(tmp_path / "p"), *fixed("1x1", *words))
    assert np.argsort(column(engine, "start_s")).tolist() == [0, 2, 3, 1]


def test_preemption_by_least_remaining_time_equals_a_decision_at_every_step(tmp_path: Path) -> None:
    """The group launches whole requests and interrupts them; the recursion decides step by step."""
    rows = poisson(150, 40.0, seed=5)
    engine = served(rows, profile(tmp_path / "p"), *fixed("1x1", "cluster.count=1", "group_policy.order=srtf"))
    now_s, left, pauses = 0.0, dict.fromkeys(range(len(rows)), 50), Counter[int]()
    finish_s, last = np.zeros(len(rows)), -1
    while left:
        here = [row for row in left if rows[row][0] <= now_s]
        if not here:
            now_s, last = min(rows[row][0] for row in left), -1
            continue
        chosen = min(here, key=lambda row: (left[row] * STEP_S[rows[row][1]], row != last, row))
        pauses[last] += last in left and chosen != last
        now_s += STEP_S[rows[chosen][1]]
        left[chosen] -= 1
        last = chosen
        if not left[chosen]:
            finish_s[chosen] = now_s
            del left[chosen]
    assert sum(pauses.values()) > 30
    assert column(engine, "finish_s") == pytest.approx(finish_s, abs=1e-6)
    assert column(engine, "pauses").tolist() == [pauses[row] for row in range(len(rows))]
    assert len(spans(engine)) == len(rows) + sum(pauses.values())


def test_groups_that_share_gpus_never_use_one_twice_and_take_turns(tmp_path: Path) -> None:
    rows = poisson(80, 5.0, seed=2)
    words = ["system=rssp-shared"]
    engine = served(rows, profile(tmp_path / "p"), *words)
    found = spans(engine)
    for gpu in range(8):
        mine = [(begin, end) for _, gpus, begin, end, _ in found if gpu in gpus]
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(mine))
    assert column(engine, "pauses").sum() > 100
    degrees = {row: len(gpus) for row, gpus, *_ in found}
    assert all(degrees[row] == (1 if name == "S" else 4) for row, (_, name, _) in enumerate(rows))


def test_request_alone_on_a_shared_group_is_one_attempt(tmp_path: Path) -> None:
    engine = served([(0.0, "M", 50)], profile(tmp_path / "p"), "system=rssp-shared")
    assert [each[-1] for each in spans(engine)] == [50]


def test_split_sizes_never_meet_on_a_gpu(tmp_path: Path) -> None:
    rows = poisson(60, 3.0)
    engine = served(rows, profile(tmp_path / "p"), "system=rssp-split")
    assert all((max(gpus) < 4) == (rows[row][1] == "S") for row, gpus, *_ in spans(engine))


def test_load_adaptive_widens_only_when_arrivals_are_rare(tmp_path: Path) -> None:
    rows = [(0.0, "S", 50), (500.0, "S", 50), (560.0, "S", 50), (800.0, "S", 50)]
    engine = served(rows, profile(tmp_path / "p"), "system=load-adaptive")
    assert [len(gpus) for _, gpus, *_ in spans(engine)] == [4, 4, 1, 4]


def test_load_adaptive_narrows_while_requests_are_in_the_system(tmp_path: Path) -> None:
    rows = [(0.0, "L", 900), (200.0, "L", 900), (400.0, "S", 50)]
    engine = served(rows, profile(tmp_path / "p"), "system=load-adaptive")
    assert [len({row: gpus for row, gpus, *_ in spans(engine)}[row]) for row in range(3)] == [4, 4, 1]


def test_stages_of_a_plan_run_on_the_first_gpu_or_on_all_of_the_group(tmp_path: Path) -> None:
    size = {"width": 1024, "height": 1024}
    folder = profile(
        tmp_path / "p",
        text_encode=[{"seconds": 0.3}],
        vae_decode=[{**size, "seconds": 0.5}],
        component=[{**size, "component": "prepare", "seconds": 0.25, "gpus": 4}],
    )
    one_gpu = "max_degree: 1"
    parts = (f"text-encoder, {one_gpu}", "prepare", "denoiser", f"vae, {one_gpu}")
    plan = f"[{','.join(f'{{component: {each}}}' for each in parts)}]"
    found = outcome([(0.0, "M", 10)], folder, *fixed("2x4", f"executor.stages={plan}", "executor.launch_s=0.125"))
    assert found.attempts is not None
    assert found.attempts["gpus"].to_pylist() == [[0], [0, 1, 2, 3], [0, 1, 2, 3], [0]]
    assert found.attempts["component"].to_pylist() == ["text-encoder", "prepare", "denoiser", "vae"]
    start_s, finish_s = (found.requests[name][0].as_py() for name in ("start_s", "finish_s"))
    assert start_s == 0.125
    assert finish_s == pytest.approx(0.125 + 0.3 + 0.25 + 10 * amdahl(STEP_S["M"], 4) + 0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["group_policy.groups=3x2"], r"group_policy.groups: found '3x2' on 8 GPUs; expected COUNTxDEGREE"),
        (["group_policy.groups=x3"], r"group_policy.groups: found 'x3' on 8 GPUs"),
        (["group_policy.groups=wide"], r"group_policy.groups: found 'wide'"),
        (["group_policy.groups=[[0,8]]"], r"group_policy.groups: found the group \[0, 8\] on 8 GPUs"),
        (["group_policy.groups=[[0,0]]"], r"found the group \[0, 0\]"),
        (["group_policy.groups=[]"], r"group_policy.groups: found no group"),
        (
            ["+group_policy.degree_by_size={512x512: 3}"],
            r"degree_by_size: found 3 for 512x512, and no group has 3 GPUs",
        ),
        (
            ["+group_policy.degree_by_size={64x64: 1}"],
            r"found no degree for 1024x1024, the size of the request in row 0",
        ),
        (["executor.stages=[{component: vae}]"], r"executor.stages: found vae; expected one denoiser"),
        (["executor.stages=[]"], r"executor.stages: found no stage"),
    ],
)
def test_unusable_settings_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        served([(0.0, "M", 5)], profile(tmp_path / "p"), "system=fixed-groups", *words)
