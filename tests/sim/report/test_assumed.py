"""Assumptions are sentences, grouped by what they move."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mezzotint.sim.report.assumed import MOVES, Stated, kind_of, kinds, section, sentences
from tests.conftest import REPOSITORY

PART = "7"
"""Stands for what varies in a name."""


def _names(path: Path) -> Iterator[str]:
    """Yield the names of the assumptions that a module makes: literals in calls, or assigned to `what` before."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] in CALLS:
            yield from _text(node.args[0])


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else PART for part in node.values)


CALLS = ("assume", "Assumption")
MODULES = [path for folder in ("backends", "sim", "traces") for path in sorted((REPOSITORY / folder).rglob("*.py"))]


@pytest.fixture(scope="module")
def in_code() -> list[str]:
    return sorted({name for path in MODULES for name in _names(path)})


@pytest.fixture(scope="module")
def in_conf() -> list[str]:
    return sorted(
        {
            row["what"]
            for path in (REPOSITORY / "conf" / "system").glob("*.yaml")
            for row in yaml.safe_load(path.read_text(encoding="utf-8")).get("system", {}).get("assumptions", [])
        }
    )


def test_every_assumption_has_a_sentence(in_code: list[str], in_conf: list[str]) -> None:
    """A new one needs an entry in sim/report/assumptions.yaml."""
    assert len(in_code) > 60
    assert len(in_conf) > 5
    assert [name for name in [*in_code, *in_conf] if kind_of(name) is None] == []


def test_every_sentence_is_of_an_assumption_in_the_code() -> None:
    """A sentence whose words are in no module is of an assumption that is gone."""
    code = " ".join(path.read_text(encoding="utf-8") for path in MODULES)
    for path in (REPOSITORY / "conf" / "system").glob("*.yaml"):
        code += path.read_text(encoding="utf-8")
    for kind in kinds():
        words = re.sub(r"\\(.)", r"\1", max(re.split(r"\(\?P<\w+>\.[*+]\??\)", kind.pattern.pattern), key=len))
        assert words.strip() in code.replace('"\n            f"', ""), kind.pattern.pattern


@pytest.mark.parametrize("value", [None, True, 3, 1.5, "words", [1, 2], {"a": 1, "b": {"c": -2}}, [], "long " * 99])
def test_sentence_is_words_whatever_the_value(value: object, in_code: list[str]) -> None:
    for name in [*in_code, "an assumption of a plug-in"]:
        ((text, systems),) = next(iter(sentences([Stated(name, value, "somebody", "nirvana")]).values()))
        assert text.endswith(".")
        assert systems == "nirvana"
        assert not set("{}[]") & set(text), text
        assert len(text) < 300


def test_groups_and_their_sentences_are_in_the_declared_order() -> None:
    names = ["price of a GPU [USD/h]", "load time of m on g [s]", "step time of m on g", "hits by K", "unheard of"]
    groups = sentences([Stated(name, 1.0, "") for name in names])
    assert list(groups) == [MOVES[moves] for moves in ("times", "cache", "cost", "other")]
    times = [text for text, _ in groups[MOVES["times"]]]
    assert [text.partition(" ")[0] for text in times] == ["A", "To"], "steps decide more than loads"


def test_many_values_of_an_assumption_are_one_sentence() -> None:
    errors = [Stated("mean squared error of the predicted step of m [ms^2]", float(n), "", f"s{n}") for n in range(9)]
    ((text, systems),) = sentences(errors)[MOVES["times"]]
    assert "0 to 8 ms²" in text
    assert systems == ", ".join(f"s{n}" for n in range(9))


def test_residuals_are_said_as_the_largest_and_kept_folded() -> None:
    page = section([Stated("residuals of that scale, ours - paper", {"N07": -0.043, "N08": 0.02}, "fitted")])
    said, _, folded = page.partition("<details")
    assert "within 0.043" in said
    assert "N07" not in said
    assert "N07" in folded
