"""Whatever the input: done, or refused in one line that names what was wrong, and nothing half-written.

A few inputs of each kind, always the same ones; ``python -m tests.fuzz`` gives as many as you like.
"""

from dataclasses import replace

from tests.fuzz import caches, config, importers, profiles, rundirs
from tests.fuzz.inputs import Input, drawing
from tests.fuzz.pool import judge_all

ABOUT = [("system=vanilla", *config.SMALL), ("system=nirvana", *config.SMALL)]
"""The configurations composed here: two, since composing one takes a second."""


def drawn() -> list[Input]:
    """Return the inputs of every kind; two drawings of one number are equal, whatever was drawn before."""
    found = []
    for kind, module, count in (
        ("importers", importers, 24),
        ("profiles", profiles, 8),
        ("caches", caches, 6),
        ("rundirs", rundirs, 3),
        ("config", config, 12),
    ):
        draw = drawing(module.inputs(ABOUT) if module is config else module.inputs())
        found += [draw(1, kind, number) for number in range(count)]
        assert draw(1, kind, 0) == found[-count]
    return found


def test_every_input_succeeds_or_is_refused_in_one_line() -> None:
    inputs = drawn()
    judged = list(judge_all(enumerate(inputs), jobs=1))
    wrong = [f"{given.covers}: {given.spelled()}: {each}" for _, given, _, _, found in judged for each in found]
    assert len(judged) == len(inputs)
    assert not wrong, "\n".join(wrong)


def test_judge_reports_an_input_that_should_have_been_refused() -> None:
    taken = Input((("t.csv", b"prompt\na fox\n"),), (("trace", "import", "csv", "t.csv", "-o", "o"),), ("o",))
    spoiled = replace(taken, refused=True, outputs=())
    (*_, fine), (*_, wrong) = judge_all(enumerate([taken, spoiled]), jobs=1)
    assert fine == []
    assert wrong == ["what cannot be meant was taken", "o: is none of the outputs"]
