"""Launches on a live backend: they run as launches of the same times that were known before, each step once."""

import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Cost, Work, WorkFailed
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DENOISER, Stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import COMPLETED, DISCARDED, FAILED
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import Estimates, GroupPolicy, Launch
from mezzotint.sim.scheduling.estimates import EstimateTable, Learnt, Scaled
from mezzotint.sim.scheduling.group_policies.central_pull import CentralPull
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from mezzotint.sim.scheduling.group_policies.pools import Pools
from mezzotint.sim.scheduling.group_policies.preempt_class import PreemptClass
from mezzotint.sim.scheduling.group_policies.rounds import Rounds
from mezzotint.sim.scheduling.group_policies.super_p95 import SuperP95
from mezzotint.sim.scheduling.group_policies.tails import TailQuota
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from tests.sim.lab import FixedTimes, engine

STEPS, GPUS = 6, 3
SIDES = 64, 128

POLICIES: dict[str, Any] = {
    "central-pull": lambda: CentralPull(TailQuota(every=4)),
    "edf": EarliestDeadline,
    "edf-4": lambda: EarliestDeadline(steps=4),
    "fixed-degree": FixedDegree,
    "srtf": lambda: FixedGroups("x1", "least-backlog", "srtf"),
    "pause": lambda: PreemptClass(["64x64"], ["128x128"], give_way="pause", late_share=0.9, max_aside_s=2.0),
    "pools": lambda: Pools({"text-encoder": 1, "denoiser": 1, "vae": 1}),
    "colocated": Pools,
    "rounds": lambda: Rounds(4.0),
    "super-p95": lambda: SuperP95(TailQuota(every=4)),
    "tetriserve": lambda: TetriServe(round_s=6.0),
}


class Timed(FixedTimes):
    """Text encoding, steps and decoding of each row take seconds of their own, which are known before."""

    def __init__(self, step_s: np.ndarray[Any, Any]) -> None:
        super().__init__([])
        self.step_s = step_s

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.step_s[works[0].row, 0])

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost:
        return Cost(self.step_s[work.row].mean())

    def step_ends(self, work: Work) -> tuple[float, ...]:
        seconds = self.step_s[work.row]
        return tuple((np.cumsum([0.0, *seconds]) / seconds.mean()).tolist())

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        (work,) = works
        work.done += count
        return Cost(float(self.step_s[work.row, work.done - count : work.done].sum()))

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(self.step_s[works[0].row, 1])


class Run(Timed):
    """The same, of which nothing is known before it runs; it counts what ran, and the steps before it."""

    live = True

    def __init__(self, step_s: np.ndarray[Any, Any], fails: tuple[int, int] = (-1, -1)) -> None:
        super().__init__(step_s)
        self.fails = fails
        self.ran: Counter[tuple[int, str, int]] = Counter()

    group_step = step_ends = None  # type: ignore[assignment]

    def begin(self, works: Sequence[Work]) -> Cost:
        self.ran[works[0].row, "begin", works[0].done] += 1
        return super().begin(works)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        assert count == 1
        if self.fails == (works[0].row, works[0].done):
            raise WorkFailed("out of memory")
        self.ran[works[0].row, "step", works[0].done] += 1
        return super().steps(works)

    def end(self, works: Sequence[Work]) -> Cost:
        self.ran[works[0].row, "end", works[0].done] += 1
        return super().end(works)


def served(seed: int, name: str | None, backend: type[Timed], estimates: Estimates | None, **parts: Any) -> Engine:
    """Run random requests on three GPUs under the policy ``name``; None is a scheduler, first come first served."""
    rng = np.random.default_rng(seed)
    rows, fails = 12, parts.pop("fails", None)
    sides = np.array(SIDES, np.int32)[rng.integers(0, 2, rows)]
    step_s = rng.uniform(0.5, 1.5, (rows, STEPS)) * (sides[:, None] / 64)
    gaps_s = rng.uniform(0.0, 5.0, rows)
    if seed % 4 > 1:  # many events fall on one instant; else none do
        step_s, gaps_s = np.ceil(step_s), np.ceil(gaps_s)
    times = np.cumsum(gaps_s)
    policy: GroupPolicy | None = None if name is None else POLICIES[name]()
    stages: Any = "disaggregated" if name in ("pools", "colocated") else "whole"
    run = engine(
        times, step_s.sum(axis=1), GPUS, backend=backend(step_s) if fails is None else Run(step_s, fails),
        use_model_shape=False, shapes=(sides, sides, np.full(rows, STEPS, np.int32)),
        own_deadline_s=rng.uniform(5.0, 40.0, rows),
        **{"executor": Stages(policy, estimates, stages=stages)} | parts,
    )  # fmt: skip
    run.run()
    return run


def table() -> EstimateTable:
    return EstimateTable({"64x64": 7.0, "128x128": 14.0})


def columns(run: Engine, *names: str) -> np.ndarray[Any, Any]:
    return np.array([run.record.request_columns[name] for name in names], float)


TIMES = "start_s", "finish_s", "denoise_s", "decode_s", "worker", "pauses", "estimate_s", "energy_j"


@pytest.mark.parametrize("name", POLICIES)
def test_live_launches_run_as_those_whose_times_are_known_before(name: str) -> None:
    """Under the same beliefs: each request at the same instants on the same GPUs, however often it is preempted."""
    for seed in range(4):
        live, known = (
            served(seed, name, backend, table() if seed % 2 else Learnt(prior_s=1.5)) for backend in (Run, Timed)
        )
        assert columns(live, *TIMES) == pytest.approx(columns(known, *TIMES), abs=1e-9, nan_ok=True)
        log, other = live.record.attempts, known.record.attempts
        assert log is not None
        assert other is not None
        assert (log.row, log.gpus, log.steps) == (other.row, other.gpus, other.steps)


@pytest.mark.parametrize("name", POLICIES)
def test_live_steps_run_once_each_whoever_interrupts(name: str) -> None:
    for seed in (5, 6):
        run = served(seed, name, Run, Learnt())
        assert isinstance(run.backend, Run)
        each = {("begin", 0), ("end", STEPS), *(("step", done) for done in range(STEPS))}
        completed = np.flatnonzero(columns(run, "outcome")[0] == COMPLETED).tolist()
        assert {(row, *what) for row in completed for what in each} <= run.backend.ran.keys()
        assert set(run.backend.ran.values()) == {1}


class InterruptsLate(FixedDegree):
    """Interrupts the first request at 3 s, once its next step has begun at that instant."""

    def arrived(self, progress: Progress, now_s: float) -> None:
        super().arrived(progress, now_s)
        self.first = progress if now_s == 0.0 else self.first
        self._view.decide_at(3.0)

    def decide(self, now_s: float) -> list[Launch]:
        if now_s == 3.0:
            self._view.interrupt(self.first)
        return super().decide(now_s)


def test_step_that_has_begun_is_run_to_its_end() -> None:
    step_s = np.ones((2, STEPS))
    run = engine(
        np.array([0.0, 2.5]), [8.0] * 2, 2, backend=Run(step_s), executor=Stages(InterruptsLate()),
        use_model_shape=False, shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, STEPS)),
    )  # fmt: skip
    run.run()
    assert isinstance(run.backend, Run)
    assert set(run.backend.ran.values()) == {1}
    assert columns(run, "finish_s")[0].tolist() == [8.0, 10.5]


def test_live_launches_on_workers_run_as_whole_requests() -> None:
    """Without a group policy, as executor=sequential does, whose requests run live at their start."""

    class InFull(Run):
        def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
            return Timed.steps(self, works, count)

    stages, whole = (
        served(1, None, InFull, None, **executor)
        for executor in ({}, {"executor": Sequential()})  # type: ignore[arg-type]
    )
    assert columns(stages, *TIMES[:5]) == pytest.approx(columns(whole, *TIMES[:5]), abs=1e-9)


@pytest.mark.parametrize("name", ["fixed-degree", "srtf", "colocated", "edf", None])
def test_step_that_cannot_be_run_fails_its_request_alone(name: str | None) -> None:
    for at_step in (0, 3):
        run = served(2, name, Run, None if name in ("fixed-degree", None) else Learnt(), fails=(4, at_step))
        outcome = run.record.request_columns["outcome"].tolist()
        assert [row for row, ended in enumerate(outcome) if ended == FAILED] == [4]
        assert run.record.request_columns.reasons == {4: "out of memory"}


def test_live_request_that_lost_its_gpu_is_run_anew() -> None:
    failures = Failures({0: [(6.0, 9.0)], 1: [(20.0, 21.0)]})
    live, known = (served(3, "edf", backend, table(), controllers=[failures]) for backend in (Run, Timed))
    assert (columns(live, "outcome") == COMPLETED).all()
    assert columns(live, *TIMES) == pytest.approx(columns(known, *TIMES), abs=1e-9, nan_ok=True)
    assert isinstance(live.backend, Run)
    assert max(live.backend.ran.values()) > 1


class Latent:
    """The state of a request on the device."""


def test_device_forgets_requests_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the policy discards in mid-run too."""
    latents: list[weakref.ref[Latent]] = []

    def begin(self: Run, works: Sequence[Work]) -> Cost:
        works[0].state = latent = Latent()
        latents.append(weakref.ref(latent))
        return Cost(0.5)

    monkeypatch.setattr(Run, "begin", begin)
    table = EstimateTable({"64x64": 4.0, "128x128": 8.0})
    run = served(4, None, Run, None, executor=Stages(TetriServe(round_s=6.0, late="drop"), table))
    discarded = columns(run, "outcome")[0] == DISCARDED
    gc.collect()
    assert len(latents) > 12 - discarded.sum()
    assert not any(latent() for latent in latents)


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (Stages(FixedDegree(2)), r"launches .* on 2 GPUs, and a live backend runs each on one; give every group one"),
        (Stages(EarliestDeadline()), r"estimates: found none beside a live backend.*add estimates=learnt or table"),
        (Stages(EarliestDeadline(), Scaled()), r"estimates: found true costs beside a live backend"),
        (Stages(EarliestDeadline(), Scaled(0.5)), r"estimates: found true costs beside a live backend"),
        (Stages(Pools(), stages=[Stage(DENOISER, max_batch=4)]), r"in a batch of 2, and groups of GPUs run no batch"),
    ],
)
def test_what_cannot_be_known_or_run_live_is_refused_by_name(executor: Stages, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        served(5, None, Run, None, executor=executor)
