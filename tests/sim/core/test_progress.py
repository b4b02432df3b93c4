"""The cost of a stage: sums of its steps, equal or not."""

from itertools import accumulate
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.core.progress import StageCost


@st.composite
def unequal(draw: st.DrawFn) -> tuple[StageCost, list[float], int]:
    """A cost, the seconds of each step of a full run, and how many of them the stage runs, the last ones."""
    shares = draw(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=12))
    mean = fsum(shares) / len(shares)
    ends = tuple(accumulate((share / mean for share in shares), initial=0.0))
    step_s = draw(st.floats(0.01, 100.0))
    steps = draw(st.integers(1, len(shares)))
    cost = StageCost(draw(st.floats(0.0, 5.0)), step_s, draw(st.floats(0.0, 5.0)), 300.0, ends)
    return cost, [step_s * share / mean for share in shares], steps


@given(unequal(), st.data())
def test_seconds_of_consecutive_steps_add_up(drawn: tuple[StageCost, list[float], int], data: st.DataObject) -> None:
    cost, step_s, steps = drawn
    done = data.draw(st.integers(0, steps - 1))
    first = data.draw(st.integers(1, steps - done))
    then = steps - done - first
    whole_s = cost.seconds(done, first + then, steps)
    if then:
        assert whole_s == pytest.approx(cost.seconds(done, first, steps) + cost.seconds(done + first, then, steps))
    by_hand_s = fsum(step_s[len(step_s) - steps + done :]) + cost.last_s + (0.0 if done else cost.first_s)
    assert whole_s == pytest.approx(by_hand_s)


@given(unequal(), st.data())
def test_steps_in_the_seconds_of_some_steps_are_these_steps(
    drawn: tuple[StageCost, list[float], int], data: st.DataObject
) -> None:
    cost, step_s, steps = drawn
    done = data.draw(st.integers(0, steps - 1))
    count = data.draw(st.integers(0, steps - done))
    first = len(step_s) - steps + done
    seconds, last = fsum(step_s[first : first + count]), step_s[min(first + count, len(step_s) - 1)]
    assert cost.steps_in(seconds, done, steps) == pytest.approx(count, abs=1e-9)
    assert cost.steps_in(seconds + last / 4, done, steps) == pytest.approx(count + 0.25, abs=1e-9)
    assert cost.steps_s(done, 1, steps) == pytest.approx(step_s[first])


def test_equal_steps_are_multiples_of_one() -> None:
    cost = StageCost(0.5, 0.1, 0.25, 300.0)
    assert cost.seconds(0, 3, 10) == 0.5 + 0.1 * 3
    assert cost.seconds(7, 3, 10) == 0.1 * 3 + 0.25
    assert cost.steps_in(0.7, 2, 10) == 0.7 / 0.1
    assert cost.steps_s(4, 1, 10) == 0.1
