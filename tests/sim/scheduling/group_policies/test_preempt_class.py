"""Preemption of a class: who gives way, who is lost, and the choice of groups."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mezzotint.sim.core.request import FAILED
from mezzotint.sim.scheduling.group_policies import preempt_class
from mezzotint.sim.scheduling.group_policies.preempt_class import Candidate, Group, best_selection
from tests.sim.scheduling.group_policies.lab import STEP_S, amdahl, column, outcome, poisson, profile, served, spans

SYSTEM = "system=preempt-class"
DEADLINES = {"S": 20.0, "M": 60.0, "L": 400.0}


@pytest.mark.parametrize("max_selections", [0, preempt_class.MAX_SELECTIONS])
def test_selection_of_groups_has_the_largest_sum_of_worth(max_selections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempt_class, "MAX_SELECTIONS", max_selections)
    rng = np.random.default_rng(1)
    for _ in range(200):
        offers = []
        for number in range(int(rng.integers(1, 5))):
            masks = rng.integers(1, 64, int(rng.integers(1, 4)))
            group = Group((0,), 1, 1)
            offers.append((number, [Candidate(float(rng.random()), int(mask), group) for mask in masks]))
        sums = []
        for chosen in product(*([None, *candidates] for _, candidates in offers)):
            taken = [each for each in chosen if each is not None]
            claims = [each.claims for each in taken]
            if sum(each.bit_count() for each in claims) == np.bitwise_or.reduce(claims or [0]).bit_count():
                sums.append(sum(each.worth for each in taken))
        found = sum(candidate.worth for _, candidate in best_selection(offers))  # type: ignore[arg-type]
        assert found == pytest.approx(max(sums))


def test_choice_of_many_groups_on_many_gpus_ends() -> None:
    """Each of 64 requests claims a GPU of its own, or the eight GPUs around it; together there are 2**64 selections."""
    offers = []
    for gpu in range(64):
        one, eight = Group((gpu,), 1 << gpu, 1), Group((), 255 << gpu // 8 * 8, 8)
        offers.append((gpu, [Candidate(1.0, one.mask, one), Candidate(7.5, eight.mask, eight)]))
    assert len(best_selection(offers)) == 64  # type: ignore[arg-type]
    offers += [(64 + block, [Candidate(9.0, offers[8 * block][1][1].claims, one)]) for block in range(7)]
    assert len(best_selection(offers)) == 7 + 8  # type: ignore[arg-type]


def test_of_selections_worth_the_same_the_one_of_most_requests_is_chosen() -> None:
    group = Group((0,), 1, 1)
    offers = [
        (name, [Candidate(worth, claims, group)])
        for name, worth, claims in (("wide", 2.0, 7), ("a", 1.0, 1), ("b", 1.0, 2))
    ]
    for order in (offers, offers[::-1]):
        assert {name for name, _ in best_selection(order)} == {"a", "b"}  # type: ignore[arg-type, comparison-overlap]


def test_large_request_pauses_at_the_next_step_until_no_urgent_one_is_left(tmp_path: Path) -> None:
    rows, folder = [(0.0, "L", 200), (20.0, "S", 50)], profile(tmp_path / "p")
    words = [SYSTEM, "cluster.count=4", "group_policy.give_way=pause"]
    engine = served(rows, folder, *words, deadline_s=DEADLINES)
    alone = served(rows[:1], folder, *words, deadline_s=DEADLINES)
    start_s, finish_s = (column(engine, name) for name in ("start_s", "finish_s"))
    aside_s = finish_s[1] - start_s[1]
    assert 20.0 <= start_s[1] < 20.0 + amdahl(STEP_S["L"], 4)
    assert all(end <= start_s[1] or begin >= finish_s[1] for row, _, begin, end, _ in spans(engine) if row == 0)
    assert finish_s[0] == pytest.approx(column(alone, "finish_s")[0] + aside_s)


def test_demoted_request_starts_on_few_gpus(tmp_path: Path) -> None:
    rows, folder = [(0.0, "S", 50), (1.0, "L", 20)], profile(tmp_path / "p")
    first = {}
    for name, here in (("pressure", rows), ("none", rows[1:])):
        engine = served(here, folder, SYSTEM, "group_policy.demoted_degrees=[1]", deadline_s=DEADLINES)
        first[name] = len(next(gpus for row, gpus, *_ in spans(engine) if row == len(here) - 1))
    assert first == {"pressure": 1, "none": 4}


@pytest.mark.parametrize(("give_way", "runs"), [("demote", [((0, 1, 2, 3), 20)]), ("pause", [((0, 1, 2, 3), 1)])])
def test_late_end_adds_to_the_debt_after_the_decision_at_its_last_boundary(
    give_way: str, runs: list[tuple[tuple[int, ...], int]], tmp_path: Path
) -> None:
    """At that boundary no urgent request is left and the debt is not there yet: the large one takes all GPUs.

    From its next boundary on the debt counts. Demoted, it stays on its group; paused, it is lost after one step.
    """
    rows, deadline_s = [(0.0, "S", 50), (1.0, "L", 20)], {"S": 1.0, "L": 1e4}
    words = [SYSTEM, "cluster.count=4", f"group_policy.give_way={give_way}"]
    engine = served(rows, profile(tmp_path / "p"), *words, deadline_s=deadline_s)
    ended_s = column(engine, "finish_s")[0]
    of_large = [span for span in spans(engine) if span[0] == 1]
    assert of_large[0][2] == ended_s
    assert [(gpus, steps) for _, gpus, _, _, steps in of_large] == runs


def test_pausing_loses_requests_once_urgent_ones_were_late_and_reports_them(tmp_path: Path) -> None:
    rows = [(0.0, "L", 50), (1.0, "S", 50)]
    found = outcome(
        rows, profile(tmp_path / "p"), SYSTEM, "group_policy.give_way=pause", deadline_s={"S": 1.0, "L": 1e4}
    )
    assert found.requests["outcome"].to_pylist() == ["failed", "completed"]
    assert found.requests["reason"].to_pylist()[0].endswith("PreemptClass never launched it again")
    assert found.summary["requests"]["failed"] == 1


def test_demoting_loses_no_request(tmp_path: Path) -> None:
    engine = served(poisson(80, 5.0), profile(tmp_path / "p"), SYSTEM, deadline_s=dict.fromkeys("SML", 1.0))
    assert not (column(engine, "outcome") == FAILED).any()


def test_request_paused_for_long_takes_an_idle_gpu_first(tmp_path: Path) -> None:
    """A stream of small requests keeps the pressure up; the large one that was paused still moves on."""
    rows = [(0.0, "L", 50), *((1.0 + 5.0 * number, "S", 50) for number in range(60))]
    words = [SYSTEM, "group_policy.give_way=pause", "group_policy.max_aside_s=1e6"]
    deadline_s = {"S": 1.0, "L": 1e4}
    steps = {}
    for starved_s in (60, 1e6):
        engine = served(
            rows, profile(tmp_path / "p"), *words, f"group_policy.starved_s={starved_s}", deadline_s=deadline_s
        )
        steps[starved_s] = sum(count for row, *_, count in spans(engine) if row == 0)
    assert steps[60] > steps[1e6] + 2
