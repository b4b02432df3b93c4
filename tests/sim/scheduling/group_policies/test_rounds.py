"""Rounds of fixed length: what changes only at a tick, and who runs in a round."""

from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.scheduling.group_policies.rounds import Rounds
from tests.sim.execution.stages.test_life import run_stages
from tests.sim.scheduling.group_policies.lab import STEP_S, column, poisson, profile, served, spans

DEADLINES = {"S": 15.0, "M": 40.0, "L": 90.0}


def rounds(*more: str) -> list[str]:
    return ["system=rounds", *more]


def test_work_begins_only_at_a_tick_and_ends_by_the_next_one(tmp_path: Path) -> None:
    rows = poisson(60, 6.0)
    engine = served(rows, profile(tmp_path / "p"), *rounds(), deadline_s=DEADLINES)
    first_s = rows[0][0]
    for _, _, begin, end, steps in spans(engine):
        since = (begin - first_s) / 2.0
        assert since == pytest.approx(round(since), abs=1e-9)
        whole_rounds = end - begin
        assert whole_rounds <= 2.0 + 1e-9 or steps * 2.0 >= whole_rounds - 2.0  # it ran on over a tick
    assert (column(engine, "start_s") >= [row[0] for row in rows]).all()


def test_request_that_survives_a_deferral_waits_for_those_that_do_not(tmp_path: Path) -> None:
    """Two large requests and eight GPUs: the urgent one needs four of them at once, the other takes what is left."""
    rows = [(0.0, "L", 50), (0.0, "L", 50), (0.0, "L", 50)]
    engine = served(rows, profile(tmp_path / "p"), *rounds("group_policy.scale_up=false"), deadline_s={"L": 30.0})
    at_first = {row: len(gpus) for row, gpus, begin, *_ in spans(engine) if begin == 0.0}
    assert sorted(at_first.values()) == [4, 4]


def test_scale_up_uses_idle_gpus_and_never_finishes_a_lone_request_later(tmp_path: Path) -> None:
    for name in "SML":
        finish_s = [
            column(
                served(
                    [(0.0, name, 50)],
                    profile(tmp_path / "p"),
                    *rounds(f"group_policy.scale_up={scale_up}"),
                    deadline_s=dict.fromkeys("SML", 1e6),
                ),
                "finish_s",
            )[0]
            for scale_up in ("true", "false")
        ]
        assert finish_s[0] < finish_s[1]


def test_late_request_takes_the_largest_degree_that_is_idle(tmp_path: Path) -> None:
    engine = served(
        [(0.0, "M", 20)], profile(tmp_path / "p"), *rounds("group_policy.scale_up=false"), deadline_s={"M": 1.0}
    )
    assert {len(gpus) for _, gpus, *_ in spans(engine)} == {4}


def test_step_longer_than_a_round_still_runs(tmp_path: Path) -> None:
    engine = served(
        [(0.0, "L", 4)],
        profile(tmp_path / "p"),
        *rounds("group_policy.round_s=1", "group_policy.degrees=[1]"),
        deadline_s=DEADLINES,
    )
    assert column(engine, "finish_s")[0] == pytest.approx(4 * 2.0 - (2.0 - STEP_S["L"]))


def test_ticks_go_on_after_a_pause_without_requests(tmp_path: Path) -> None:
    rows = [(0.5, "S", 5), (101.0, "S", 5)]
    engine = served(rows, profile(tmp_path / "p"), *rounds(), deadline_s=DEADLINES)
    assert np.asarray(column(engine, "start_s")).tolist() == [0.5, 102.5]


def test_most_requests_survive_rather_than_the_first() -> None:
    """The first needs all four GPUs of the round to be in time, and the two others half of them each."""
    step_s = {1: [4.0, 2.0, 2.0], 2: [2.0, 1.0, 1.0], 4: [1.0, 0.5, 0.5]}
    run = run_stages([0.0] * 3, step_s, Rounds(6.0), limit_s=[6.0, 7.0, 7.0])
    assert column(run, "finish_s").tolist()[1:] == [6.0, 6.0]
    assert column(run, "start_s")[0] == 6.0


def test_idle_gpus_widen_one_request_after_another() -> None:
    """Both can be in time on one GPU. Of the two idle ones each gets one."""
    step_s = {1: [4.0, 4.0], 2: [2.0, 2.0], 4: [1.0, 1.0]}
    run = run_stages([0.0] * 2, step_s, Rounds(30.0), limit_s=[25.0, 25.0])
    assert column(run, "finish_s").tolist() == [12.0, 12.0]


def test_launch_ends_at_the_last_boundary_before_the_next_tick() -> None:
    """Two steps of 3 s fit into a round of 8 s."""
    run = run_stages([0.0], {1: [3.0]}, Rounds(8.0), 1)
    assert [each[2:] for each in spans(run)] == [(0.0, 6.0, 2), (8.0, 14.0, 2), (16.0, 22.0, 2)]


def test_request_that_runs_on_at_a_tick_does_not_pause() -> None:
    """Three rounds of two steps each: the tick decides at the instant at which the steps end, after all its events."""
    run = run_stages([0.0], {1: [1.0]}, Rounds(2.0), 1)
    assert [each[2:] for each in spans(run)] == [(0.0, 6.0, 6)]
    assert column(run, "pauses").tolist() == [0]
