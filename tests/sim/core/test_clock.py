"""The clock alone: calls and SimPy's own events in one order."""

from collections.abc import Callable, Generator

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.core import EmptySchedule

from mezzotint.sim.core.clock import ARRIVAL, COMPLETION, CONTROL, Clock


@pytest.mark.invariant(2)
@given(asked=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.1 + 0.2, 1e9]), st.integers(0, 3))))
def test_calls_run_by_time_then_order_then_insertion(asked: list[tuple[float, int]]) -> None:
    clock = Clock()
    made: list[tuple[float, int]] = []
    for number, (time_s, order) in enumerate(asked):
        clock.at(time_s, order, lambda number: made.append((clock.now, number)), number)
    clock.run()
    by_time = sorted(range(len(asked)), key=lambda number: asked[number])
    assert made == [(asked[number][0], number) for number in by_time]


def test_call_may_schedule_another_at_the_same_instant() -> None:
    clock = Clock()
    made: list[str] = []

    def arrive(_: None) -> None:
        made.append("arrival")
        clock.at(clock.now, COMPLETION, made.append, "completion")

    clock.at(1.0, ARRIVAL, arrive)
    clock.at(1.0, ARRIVAL, made.append, "the next arrival")
    clock.run()
    assert made == ["arrival", "completion", "the next arrival"]


def test_simpy_processes_run_among_the_calls() -> None:
    """A long-lived actor sleeps, is woken by an event that a call triggers, and fails as it does in SimPy."""
    clock = Clock()
    seen: list[tuple[float, str]] = []
    woken = clock.event()

    def actor() -> Generator[simpy.Event, str, None]:
        yield clock.timeout(2.0)
        seen.append((clock.now, "slept"))
        value = yield woken
        seen.append((clock.now, value))
        raise ValueError("an actor failed")

    clock.process(actor())
    clock.at(1.0, CONTROL, lambda value: seen.append((clock.now, value)), "before")
    clock.at(3.0, CONTROL, woken.succeed, "woken")
    with pytest.raises(ValueError, match="an actor failed"):
        clock.run()
    assert seen == [(1.0, "before"), (2.0, "slept"), (3.0, "woken")]
    assert Clock().run(until=5.0) is None


@given(
    fed=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=8),
    asked=st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([COMPLETION, ARRIVAL])), max_size=8
    ),
)
def test_single_steps_of_the_clock_equal_one_run(fed: list[float], asked: list[tuple[float, int]]) -> None:
    """Fed and scheduled calls mixed, up to the last of either kind and none after it."""

    def made(run: Callable[[Clock], None]) -> list[tuple[float, str]]:
        clock, seen = Clock(), list[tuple[float, str]]()
        clock.feed(sorted(fed), ARRIVAL, lambda name: seen.append((clock.now, name)), map("fed {}".format, range(9)))
        for number, (time_s, order) in enumerate(asked):
            clock.at(time_s, order, lambda name: seen.append((clock.now, name)), f"asked {number}")
        run(clock)
        assert clock.peek() == float("inf")
        with pytest.raises(EmptySchedule):
            clock.step()
        return seen

    def stepped(clock: Clock) -> None:
        for _ in range(len(fed) + len(asked)):
            due_s = clock.peek()
            clock.step()
            assert clock.now == due_s

    found = made(stepped)
    assert found == made(Clock.run)
    assert len(found) == len(fed) + len(asked)
    assert [time_s for time_s, _ in found] == sorted([*fed, *(time_s for time_s, _ in asked)])


def test_run_until_a_time_leaves_later_calls() -> None:
    clock, seen = Clock(), list[float]()
    clock.feed([1.0, 2.0, 3.0], ARRIVAL, seen.append, [1.0, 2.0, 3.0])
    clock.run(until=2.5)
    assert (clock.now, seen) == (2.5, [1.0, 2.0])
    clock.run()
    assert (clock.now, seen) == (3.0, [1.0, 2.0, 3.0])
