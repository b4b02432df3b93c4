"""Whatever the input: done, or refused in one line that names what was wrong, and nothing half-written.

A few inputs of each kind, always the same ones; ``python -m tests.fuzz`` gives as many as you like.
"""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from tests.fuzz import caches, config, importers, profiles, rundirs
from tests.fuzz.inputs import Input, drawing
from tests.fuzz.pool import judge_all

ABOUT = [("system=vanilla", *config.SMALL), ("system=nirvana", *config.SMALL)]
"""The configurations that are composed here: two, since composing one takes a second."""

STRATEGIES: dict[str, tuple[Callable[[], st.SearchStrategy[Input]], int]] = {
    "config": (lambda: config.inputs(ABOUT), 12),
    "importers": (importers.inputs, 24),
    "profiles": (profiles.inputs, 8),
    "caches": (caches.inputs, 6),
    "rundirs": (rundirs.inputs, 3),
}
SEED = 1


def test_every_input_is_done_or_refused_in_one_line() -> None:
    inputs = []
    for kind, (strategy, count) in STRATEGIES.items():
        draw = drawing(strategy())
        inputs += [draw(SEED, kind, number) for number in range(count)]
    judged = list(judge_all(enumerate(inputs), jobs=1))
    wrong = [f"{given.covers}: {given.spelled()}: {each}" for _, given, _, _, found in judged for each in found]
    assert len(judged) == len(inputs)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", list(STRATEGIES))
def test_an_input_is_the_same_whatever_was_drawn_before(kind: str) -> None:
    """What is printed to give an input again gives it again."""
    one, other = drawing(STRATEGIES[kind][0]()), drawing(STRATEGIES[kind][0]())
    one(SEED, kind, 3)
    assert one(SEED, kind, 5) == other(SEED, kind, 5)
