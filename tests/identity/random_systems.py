"""Random systems of stages, and a digest of what each does: ``random_systems.py FIRST LAST``.

Few GPUs and costs in whole units, so that many events fall on one instant: every group policy, with moves, groups that
form, launches that are delayed, loads, text encoding, wrong estimates and GPUs that fail. A script too: it then imports
the checkout on PYTHONPATH alone.
"""

import os
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import sim
from mezzotint.backends.base import Cost, Work
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Learnt, Scaled
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
from mezzotint.sim.scheduling.group_policies.tridentserve import TridentServe
from tests.sim.lab import FixedTimes, engine

GPUS, STEPS = 4, 6

STEP_S = {1: (2, 6, 12), 2: (3, 4, 7), 4: (4, 2, 4)}, {1: (2, 4, 8), 2: (1, 2, 4), 4: (1, 1, 2)}
"""Units of a step by parallel degree, of each of the three kinds of requests: where more GPUs may be slower, and where
they never are."""

SIDES = 64, 64, 128
"""Pixels of the side of an image, of each kind."""


def _class(unit_s: float, **how: Any) -> PreemptClass:
    """Return a policy in which small requests are urgent and large ones give way."""
    seconds = {name: how.pop(name) * unit_s for name in ("starved_s", "max_aside_s") if name in how}
    return PreemptClass(["64x64"], ["128x128"], move_s=0.003 * unit_s, **how, **seconds)


POLICIES: dict[str, Callable[[float], GroupPolicy]] = {
    "central-pull": lambda unit_s: CentralPull(TailQuota(every=4), 2),
    "demote": lambda unit_s: _class(unit_s, degrees=[1, 2], starved_s=60.0, max_aside_s=600.0),
    "demote-3": lambda unit_s: _class(unit_s, starved_s=3.0, max_aside_s=8.0),
    "edf-best": lambda unit_s: EarliestDeadline(),
    "edf-best-2": lambda unit_s: EarliestDeadline(steps=2),
    "edf-best-4": lambda unit_s: EarliestDeadline(steps=4),
    "edf-greedy": lambda unit_s: EarliestDeadline("greedy"),
    "edf-greedy-2": lambda unit_s: EarliestDeadline("greedy", steps=2),
    "fixed-degree": lambda unit_s: FixedDegree(2),
    "fixed-groups": lambda unit_s: FixedGroups("2x2"),
    "load-adaptive": lambda unit_s: FixedGroups(
        [[0], [1], [2], [3], [0, 1], [2, 3]], "load-adaptive", busy_gap_s=3.0 * unit_s, busy_hold_s=9.0 * unit_s
    ),
    "pause": lambda unit_s: _class(
        unit_s, give_way="pause", degrees=[1, 2], late_share=0.9, starved_s=60.0, max_aside_s=2.0
    ),
    "pause-3": lambda unit_s: _class(unit_s, give_way="pause", starved_s=3.0, max_aside_s=30.0),
    "pools": lambda unit_s: Pools({"text-encoder": 1, "denoiser": 2, "vae": 1}),
    "rounds": lambda unit_s: Rounds(4.0 * unit_s),
    "srtf": lambda unit_s: FixedGroups("x1", "least-backlog", "srtf"),
    "srtf-2": lambda unit_s: FixedGroups("x2", "least-backlog", "srtf"),
    "super-p95": lambda unit_s: SuperP95(TailQuota(every=4), 2),
    "tetriserve": lambda unit_s: TetriServe(round_s=6.0 * unit_s),
    "tetriserve-batches": lambda unit_s: TetriServe(round_s=6.0 * unit_s, max_batch=3),
    "colocated": lambda unit_s: Pools(),
    "tridentserve": lambda unit_s: TridentServe(period_s=20.0 * unit_s),
}

HOW: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"migration_s": 1.0},
    {"migration_s": 3.0, "handover": "background"},
    {"launch_s": 1.0},
    {"forming_s": 3.0},
)
"""Delays of the executor, in units."""


@dataclass(slots=True)
class Units(FixedTimes):
    """Costs by parallel degree and row; text encoding and loads take the same for all."""

    step_s: dict[int, list[float]]
    encode_s: float
    load_s: float

    def __post_init__(self) -> None:
        FixedTimes.__init__(self, [each * STEPS for each in self.step_s[1]], self.load_s)

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [degree for degree in self.step_s if degree > 1]

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost:
        return Cost(self.step_s[gpus][work.row])

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.encode_s)


def name_of(seed: int) -> str:
    """Return the name of the policy of a system."""
    return list(POLICIES)[seed % len(POLICIES)]


def system(seed: int, scale: float = 1.0) -> Engine:
    """Draw a system; with ``scale`` all that takes seconds takes so many times as long."""
    rng, name = np.random.default_rng(seed), name_of(seed)
    rows = int(rng.integers(3, 25))
    kinds = rng.integers(0, 3, rows)
    unit_s = scale * [1.0, 0.1][int(rng.integers(2))]
    step_s = {
        degree: [units[kind] * unit_s for kind in kinds] for degree, units in STEP_S[int(rng.integers(2))].items()
    }
    times = np.cumsum(rng.integers(0, int(rng.integers(2, 20)), rows)) * unit_s
    limit_s = rng.integers(1, 200, rows) * unit_s
    how = {
        key: value * unit_s if isinstance(value, float) else value
        for key, value in HOW[int(rng.integers(len(HOW)))].items()
    }
    encode_s, load_s = unit_s * (rng.random() < 0.3), 5.0 * unit_s * (rng.random() < 0.3)
    if name in ("tridentserve", "pools") or (encode_s and rng.random() < 0.3):
        how["stages"] = "disaggregated"
    parts: dict[str, Any] = {}
    if rng.random() < 0.25:
        mean_up_s, lost = float(rng.integers(40, 200)) * unit_s, ("again", "failed")[int(rng.integers(2))]
        parts["controllers"] = [Failures(mean_up_s=mean_up_s, mean_down_s=4.0 * unit_s, lost=lost)]
    estimates = (Scaled(), Scaled(), Scaled(0.5), Learnt(prior_s=unit_s))[int(rng.integers(4))]
    executor = Stages(POLICIES[name](unit_s), estimates, **how)
    side = np.array(SIDES, np.int32)[kinds]
    made = engine(
        times, [each * STEPS for each in step_s[1]], GPUS, backend=Units(step_s, encode_s, load_s), executor=executor,
        scheduler=executor, seed=seed, use_model_shape=False,
        sample_s=60.0 * unit_s, shapes=(side, side, np.full(rows, STEPS, np.int32)), **parts,
    )  # fmt: skip
    made.workload.limit_s[:] = array("d", limit_s.tolist())
    return made


def digest(seed: int, scale: float = 1.0) -> str:
    """Run a system; return a digest of its attempts and requests, in unscaled seconds and joules, or of its error."""
    try:
        run = system(seed, scale)
        run.run()
    except Exception as error:
        return _short(f"{type(error).__name__}: {error}")
    log, columns = run.record.attempts, run.record.request_columns
    assert log is not None
    found: list[Any] = [list(each) for each in (log.row, log.component, log.gpus, log.steps, log.batch)]
    found += [np.asarray(each) / scale for each in (log.from_s, log.until_s, log.estimate_s, log.energy_j)]
    found += [list(columns[name]) for name in ("worker", "outcome")]
    found += [np.asarray(columns[name]) / scale for name in ("start_s", "finish_s", "denoise_s", "energy_j")]
    return _short(repr([each.tolist() if isinstance(each, np.ndarray) else each for each in found]))


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def digests(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Run the systems from ``first`` to before ``last``. Yields the number and digest of each."""
    for seed in range(first, last):
        yield seed, digest(seed)


if __name__ == "__main__":
    if not Path(str(sim.__file__)).is_relative_to(os.environ["PYTHONPATH"]):
        raise ImportError(f"sim was found in {sim.__file__}, not in {os.environ['PYTHONPATH']}")
    for number, found in digests(*map(int, sys.argv[1:])):
        print(number, found)
