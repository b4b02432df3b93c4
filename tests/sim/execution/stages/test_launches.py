"""The order of launches that end, or pass a boundary, at one instant."""

from typing import Any

import numpy as np
import pytest

from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from tests.sim.execution.stages.test_life import STEP_S, StepByStep, attempts, run_stages


def brute_force(asked: list[tuple[int, str, int]], fit: Any, count: int, steps: int, **how: Any) -> list[Any]:
    """Return the attempts of long launches, and those of a decision at every boundary."""
    times = np.cumsum([float(gap) for gap, _, _ in asked])
    step_s = {degree: [float(STEP_S[size][at]) for _, size, _ in asked] for at, degree in enumerate((1, 2, 4))}
    how["limit_s"] = [float(limit) for _, _, limit in asked]
    return [
        attempts(run_stages(times, step_s, policy(fit=fit, steps=steps), count, **dict(how)))
        for policy in (EarliestDeadline, StepByStep)
    ]


LAWS: dict[str, tuple[list[tuple[int, str, int]], str, int, int, dict[str, float]]] = {
    "a launch that passes a boundary goes behind what was decided there before": (
        [(0, "small", 46), (0, "large", 45), (12, "large", 23)], "greedy", 2, 1, {},
    ),
    "the start of a launch that did not wait changes no order": (
        [(8, "small", 36), (0, "middle", 52), (12, "middle", 10)], "best", 4, 1, {},
    ),
    "the boundaries of a launch are units of several steps apart": (
        [(0, "middle", 4), (0, "small", 19), (12, "middle", 8), (3, "middle", 33)], "greedy", 2, 4,
        {"migration_s": 1.0},
    ),
    "the order of an instant is that of its begin": (
        [(3, "middle", 46), (1, "small", 3), (8, "small", 60), (3, "small", 56), (2, "small", 2), (0, "middle", 45),
         (2, "middle", 37), (2, "small", 17)], "best", 4, 1, {"migration_s": 1.0},
    ),
    "a launch that is left waiting interrupts what runs on its GPUs": (
        [(0, "large", 60), (0, "small", 27)], "best", 2, 4, {"migration_s": 3.0},
    ),
    "an interruption after the launch's turn acts at its next boundary": (
        [(3, "middle", 53), (12, "small", 34)], "greedy", 2, 1, {},
    ),
    "a launch interrupts what yields on its GPUs when it is decided": (
        [(12, "large", 47), (6, "large", 48), (8, "middle", 3)], "greedy", 3, 1, {"migration_s": 3.0},
    ),
    "a number is no older than the last boundary": (
        [(0, "large", 13), (8, "middle", 43), (6, "small", 15), (0, "middle", 59)], "best", 2, 4,
        {"migration_s": 3.0},
    ),
}  # fmt: skip


@pytest.mark.invariant(2)
@pytest.mark.parametrize("law", LAWS)
def test_tie_falls_as_with_a_decision_at_every_boundary(law: str) -> None:
    """Whole seconds; each system ends otherwise if its law is broken."""
    asked, fit, count, steps, delays = LAWS[law]
    long, short = brute_force(asked, fit, count, steps, **delays)
    assert long == short


@pytest.mark.invariant(2)
def test_launch_that_waited_goes_before_those_decided_at_its_start() -> None:
    """Two requests share two GPUs from 24 s on, and both begin at 25 s.

    The latent of the first moves until then. The second was decided for GPU 1 at 24 s, and waits for the end of the
    move. At 37 s the last step of the first ends, and a boundary of the second is reached. It takes its turn first,
    since it was decided first; so GPU 0 is not free for it yet.
    """
    step_s = {1: [6.0, 6.0], 2: [4.0, 4.0]}
    run = run_stages([8.0, 14.0], step_s, EarliestDeadline(steps=2), 2, limit_s=[28.0, 49.0], migration_s=1.0)
    assert attempts(run)[1:4] == [(24.0, 25.0, 0, (0, 1), 0), (25.0, 37.0, 0, (0,), 2), (25.0, 49.0, 1, (1,), 4)]
