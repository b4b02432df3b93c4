"""Steps of unequal seconds: whoever runs them, each takes its own, or the profile is refused."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import BackendError, Work, standalone_cost
from mezzotint.backends.profile import Point, Profile, StepShares, read, write
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from tests.sim.execution.stages.test_life import StepByStep, Unsure
from tests.sim.scheduling.group_policies.lab import (
    SIDES,
    STEP_S,
    amdahl,
    assembled,
    column,
    poisson,
    profile,
    served,
    spans,
)

SHARES = {"S": [3.0, 1.0], "M": [2.0, 2.0, 1.0], "L": [71.0, 71.0, 71.0, 37.0, 37.0, 37.0]}
STEPS = 8
"""More than any list has: the last weight counts for those beyond it."""


def entries(shares: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [{"width": SIDES[name], "height": SIDES[name], "shares": each} for name, each in shares.items()]


def by_hand_s(name: str, degree: int, first: int, count: int) -> float:
    """Return the seconds of ``count`` of STEPS steps, from step ``first`` on."""
    weights = [SHARES[name][min(step, len(SHARES[name]) - 1)] for step in range(STEPS)]
    mean = sum(weights) / STEPS
    return sum(amdahl(STEP_S[name], degree) * weight / mean for weight in weights[first : first + count])


SYSTEMS = {
    "srtf": ("system=fixed-groups", "group_policy.groups=2x4", "group_policy.order=srtf"),
    "edf": ("system=edf-best-fit",),
    "rounds": ("system=rounds",),
    "preempt-class": ("system=preempt-class", "group_policy.give_way=pause", "group_policy.starved_s=5"),
    "central-pull": ("system=central-pull", "group_policy.degree=2"),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_run_of_a_stage_takes_the_sum_of_its_own_steps(system: str, tmp_path: Path) -> None:
    """Preempted, moved, widened or not: by hand from the steps that its attempts ran, in their order."""
    rows, folder = poisson(60, 3.0, steps=STEPS), profile(tmp_path / "p", step_shares=entries(SHARES))
    engine = served(rows, folder, *SYSTEMS[system], deadline_s={"S": 10.0, "M": 20.0, "L": 60.0})
    done, counts = dict.fromkeys(range(len(rows)), 0), []
    for row, gpus, from_s, until_s, steps in spans(engine):
        expected_s = by_hand_s(rows[row][1], len(gpus), done[row], steps)
        assert until_s - from_s == pytest.approx(expected_s, abs=1e-9)
        done[row] += steps
        counts.append(steps)
    assert set(done.values()) == {STEPS}
    assert min(counts) < STEPS or system == "central-pull", "nothing was ever preempted"


def test_preempted_request_ends_when_the_rest_of_its_steps_has_run(tmp_path: Path) -> None:
    """The large one is interrupted at the first boundary after the small one came, and then runs on without it."""
    rows = [(0.0, "L", STEPS), (3.0, "S", STEPS)]
    words = ("system=fixed-groups", "group_policy.groups=1x1", "group_policy.order=srtf", "cluster.count=1")
    engine = served(rows, profile(tmp_path / "p", step_shares=entries(SHARES)), *words)
    ends_s = np.cumsum([by_hand_s("L", 1, step, 1) for step in range(STEPS)])
    ran = int(np.searchsorted(ends_s, 3.0)) + 1
    small_s = by_hand_s("S", 1, 0, STEPS)
    assert column(engine, "start_s")[1] == pytest.approx(ends_s[ran - 1])
    assert column(engine, "finish_s")[0] == pytest.approx(ends_s[ran - 1] + small_s + by_hand_s("L", 1, ran, STEPS))
    assert column(engine, "denoise_s")[0] == pytest.approx(STEP_S["L"] * STEPS)


@dataclass
class Apart(GroupPolicy):
    """Each request alone on the GPU of its number, ``steps`` steps at a time (0: all that are left).

    It notes at each decision for a request what it expects to be left, and which requests end.
    """

    steps: int
    expected_s: list[tuple[float, float]] = field(default_factory=list)
    ended_rows: list[int] = field(default_factory=list)
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view

    def arrived(self, progress: Progress, now_s: float) -> None:
        pass

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if not progress.left:
            self.ended_rows.append(progress.request.row)

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self._view.waiting)
        self.expected_s += [(now_s, self._view.remaining_s(progress, 1)) for progress in waiting]
        return [Launch(each, (each.submission_index,), self.steps or each.left) for each in waiting]


def apart(rows: list[tuple[float, str, int]], folder: Path, steps: int) -> tuple[Engine, Apart]:
    engine: Engine = assembled(rows, folder, "system=fixed-groups")[-1].engine
    assert isinstance(engine.scheduler, Stages)
    policy = engine.scheduler.group_policy = Apart(steps)
    engine.run()
    return engine, policy


def test_estimate_of_what_is_left_is_what_is_then_taken(tmp_path: Path) -> None:
    folder = profile(tmp_path / "p", step_shares=entries(SHARES))
    engine, policy = apart([(0.0, "L", STEPS)], folder, 1)
    (end_s,) = column(engine, "finish_s")
    assert len(policy.expected_s) == STEPS
    assert [left for _, left in policy.expected_s] == pytest.approx([end_s - now_s for now_s, _ in policy.expected_s])


def test_launches_that_end_together_take_turns_by_the_begin_of_their_last_step(tmp_path: Path) -> None:
    """Both take 16 s. The last step of the one decided first began at 14 s, that of the other at 2 s."""
    step = [{"width": SIDES[name], "height": SIDES[name], "seconds": 8.0} for name in SIDES]
    shares = entries({"L": [7.0, 1.0], "S": [1.0, 7.0]})
    folder = profile(tmp_path / "p", step=step, step_shares=shares)
    engine, policy = apart([(0.0, "L", 2), (0.0, "S", 2)], folder, 0)
    assert column(engine, "finish_s").tolist() == [16.0, 16.0]
    assert policy.ended_rows == [1, 0]


def test_wrong_estimate_is_wrong_by_its_factor_at_every_step(tmp_path: Path) -> None:
    words = ("system=fixed-groups", "group_policy.order=srtf", "group_policy.groups=1x1", "cluster.count=1")
    folder = profile(tmp_path / "p", step_shares=entries(SHARES))
    engine = served(poisson(20, 3.0, steps=STEPS), folder, *words, "estimates=wrong", "estimates.factor=3")
    log = engine.record.attempts
    assert log is not None
    assert min(log.steps) < STEPS, "nothing was ever preempted"
    took_s = np.array(log.until_s) - np.array(log.from_s)
    assert np.array(log.estimate_s) == pytest.approx(3.0 * took_s)


def test_round_holds_the_steps_that_end_in_it(tmp_path: Path) -> None:
    """Only a first step may be longer than the round."""
    folder = profile(tmp_path / "p", step_shares=entries(SHARES))
    engine = served(poisson(60, 3.0, steps=STEPS), folder, "system=rounds", "group_policy.round_s=2.5")
    first_s = column(engine, "arrival_s").min()
    for _, _, from_s, until_s, steps in spans(engine):
        tick_s = first_s + 2.5 * (np.floor((from_s - first_s) / 2.5 + 1e-9) + 1)
        assert steps == 1 or until_s <= tick_s + 1e-9
    assert max(steps for *_, steps in spans(engine)) > 1


@pytest.mark.parametrize("system", ["edf-best-fit", "preempt-class"])
@pytest.mark.parametrize("seed", [0, 1, 2, 15, 19, 66, 75])
def test_launches_of_several_steps_change_nothing(system: str, seed: int, tmp_path: Path) -> None:
    """Times are binary fractions, so that boundaries of different requests fall on one instant.

    From seed 15 on, EDF decides otherwise if such boundaries are not passed in the order in which their steps began.
    """
    rng = np.random.default_rng(seed)
    sides = [{"width": side, "height": side} for side in SIDES.values()]
    step = [{**each, "seconds": seconds} for each, seconds in zip(sides, (1.0, 4.0, 8.0), strict=True)]
    gang = [{**each, "seconds": each["seconds"] / gpus, "gpus": gpus} for each in step for gpus in (2, 4)]
    shares = entries({"S": [3.0, 3.0, 1.0, 1.0], "M": [1.0, 3.0, 1.0, 3.0], "L": [3.0, 3.0, 1.0, 1.0]})
    folder = profile(tmp_path / "p", step=step, gang_step=gang, step_shares=shares)
    count = int(rng.integers(8, 25))
    times = np.cumsum(rng.integers(0, 12, count)).tolist()
    rows = [(float(time), str(name), 4) for time, name in zip(times, rng.choice([*"SSML"], count), strict=True)]
    words = (f"system={system}", f"cluster.count={rng.choice([1, 2, 4])}")
    found = []
    for is_step_by_step in (False, True):
        engine = assembled(rows, folder, *words, deadline_s={"S": 3.0, "M": 60.0, "L": 400.0})[-1].engine
        if is_step_by_step and system == "edf-best-fit":
            engine.scheduler.group_policy = StepByStep()
        elif is_step_by_step:
            engine.scheduler.estimates = Unsure()
        engine.run()
        found.append([column(engine, name).tolist() for name in ("start_s", "finish_s", "pauses", "moves")])
    assert found[0] == found[1]


@pytest.mark.parametrize("system", SYSTEMS)
def test_equal_shares_are_no_shares(system: str, tmp_path: Path) -> None:
    rows = poisson(60, 3.0, steps=STEPS)
    shares = entries({"S": [5.0], "M": [2.0, 2.0, 2.0], "L": [1.0]})
    found = [
        served(rows, folder, *SYSTEMS[system], deadline_s={"S": 10.0, "M": 20.0, "L": 60.0})
        for folder in (profile(tmp_path / "a", step_shares=shares), profile(tmp_path / "b"))
    ]
    assert spans(found[0]) == spans(found[1])


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """A profile of 4 steps of 1 s in the mean, of which the first takes half."""
    made = Profile(
        schema=1,
        model="qwen-image",
        gpu="h100",
        source="made up",
        step=[Point(width=64, height=64, batch=batch, seconds=float(batch)) for batch in (1, 2)],
        step_shares=[StepShares(width=64, height=64, shares=[3, 1])],
    )
    (tmp_path / "v").mkdir()
    write(made, tmp_path / "v" / "v.yaml")
    assert read(tmp_path / "v" / "v.yaml") == made
    return tmp_path / "v"


def works(*skipped: int) -> list[Work]:
    return [Work("qwen-image", 64, 64, 4, each) for each in skipped]


def test_whole_request_takes_its_mean_step_as_often_as_it_has_steps(video: Path) -> None:
    backend = Profiled("h100", folder=video)
    assert standalone_cost(backend, works(0)[0]).denoise_s == 4.0
    assert [backend.steps(works(done)).seconds for done in range(4)] == pytest.approx([2.0, *[2 / 3] * 3])
    assert standalone_cost(backend, works(1)[0]).denoise_s == pytest.approx(2.0), "a hit pays for its steps alone"
    assert backend.group_step(works(0)[0], 1) == backend.steps([Work("qwen-image", 64, 64, 1)])


def test_batch_of_requests_at_one_step_takes_that_step_and_others_are_refused(video: Path) -> None:
    backend = Profiled("h100", folder=video)
    assert backend.steps(works(0, 0), 2).seconds == pytest.approx(2.0 * (2.0 + 2 / 3))
    assert backend.steps(works(1, 2)).seconds == pytest.approx(2.0 * 2 / 3), "other steps, equally long"
    with pytest.raises(
        BackendError, match=r"step_shares: 2 requests are at steps of unequal seconds.*one request at a"
    ):
        backend.steps(works(0, 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("system=vanilla", "executor=continuous-batching"),
            r"^executor=continuous-batching: it takes the steps of a request as equal, and those of qwen-image at 512",
        ),
        (("system=tetriserve",), r"^group_policy=tetriserve: it takes the steps of a request as equal"),
    ],
)
def test_part_that_takes_steps_as_equal_refuses_the_profile(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    folder = profile(tmp_path / "p", step_shares=entries(SHARES))
    with pytest.raises(ConfigError, match=message):
        served([(0.0, "S", STEPS)], folder, *words)
    served([(0.0, "S", STEPS)], profile(tmp_path / "q", step_shares=entries({"L": [2.0, 1.0]})), *words)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[{width: 64, height: 64, shares: []}]", r"step_shares.*shares"),
        ("[{width: 64, height: 64, shares: [1, 0]}]", r"step_shares.*greater than 0"),
        ("[{width: 64, height: 64, shares: [1, .nan]}]", r"step_shares"),
        ("[{width: 64, shares: [1]}]", r"step_shares.*height"),
        (
            "[{width: 64, height: 64, shares: [1]}, {width: 64, height: 64, shares: [2]}]",
            r"step_shares.*found 2 entries of 64x64, expected one of each size",
        ),
    ],
)
def test_wrong_shares_are_refused_in_one_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "schema: 1\nmodel: m\ngpu: g\nsource: made up\nstep: [{width: 64, height: 64, seconds: 1.0}]\n"
        f"step_shares: {line}\n"
    )
    with pytest.raises(BackendError, match=message) as error:
        read(path)
    assert "\n" not in str(error.value)
