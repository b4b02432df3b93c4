"""Assumptions of runs as sentences, grouped by what they move."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any, TypeVar

import yaml
from markupsafe import Markup

from mezzotint.figures.page import DASH, number, render

T = TypeVar("T")

MOVES = {
    "times": "Latency and throughput",
    "cache": "Hits of the cache",
    "quality": "Quality",
    "cost": "Cost and energy",
    "traffic": "Traffic",
    "other": "Others",
}
"""What assumptions move, in words, in the order of a page."""

MAX_LISTED = 3
"""Of more values of one assumption, a sentence names the ends."""

MAX_TEXT = 120
"""A longer value stands below the sentences alone."""


@dataclass(frozen=True, slots=True)
class Stated:
    """An assumption of some runs.

    Attributes:
        value: as in the summary.
        systems: the systems that rest on it; empty if all do.
    """

    what: str
    value: Any
    source: str
    systems: str = ""

    @property
    def raw(self) -> str:
        """The value as in the summary, as text."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value, sort_keys=True, ensure_ascii=False)


def as_text(value: object) -> str:
    """Return a value of a summary as text."""
    if value is None:
        return DASH
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def collect(
    runs: Sequence[T], summary_of: Callable[[T], Mapping[str, Any]], systems_of: Callable[[Sequence[T]], str]
) -> list[Stated]:
    """Return the assumptions of ``runs``, each once, in order.

    Args:
        summary_of: returns the summary of a run.
        systems_of: names the systems of the runs that rest on an assumption; empty if all do.
    """
    runs_of: dict[tuple[str, str, str], tuple[Any, list[T]]] = {}
    for run in runs:
        for row in summary_of(run)["assumptions"] or []:
            fact = (as_text(row["what"]), as_text(row["value"]), as_text(row["source"]))
            members = runs_of.setdefault(fact, (row["value"], []))[1]
            if run not in members:
                members.append(run)
    return [
        Stated(what, value, source, systems_of(members))
        for (what, _, source), (value, members) in sorted(runs_of.items(), key=lambda item: item[0])
    ]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of assumption: the pattern of its name, what it moves, and its sentence."""

    pattern: re.Pattern[str]
    moves: str
    sentence: str


@cache
def kinds() -> tuple[Kind, ...]:
    """Return every kind of assumption, in the order of assumptions.yaml."""
    text = (files("mezzotint.sim.report") / "assumptions.yaml").read_text(encoding="utf-8")
    return tuple(
        Kind(_pattern(name), moves, sentence)
        for moves, entries in yaml.safe_load(text).items()
        for name, sentence in entries.items()
    )


def kind_of(what: str) -> tuple[int, Kind, Mapping[str, str]] | None:
    """Return the rank, the kind and the varying parts of an assumption's name; None if no entry names it."""
    for rank, kind in enumerate(kinds()):
        if match := kind.pattern.fullmatch(what):
            return rank, kind, match.groupdict()
    return None


def sentences(assumptions: Iterable[Stated]) -> dict[str, list[tuple[str, str]]]:
    """Return (sentence, systems) of each assumption by the words of what it moves, those that move it most first."""
    of_name: dict[str, list[Stated]] = {}
    for stated in assumptions:
        of_name.setdefault(stated.what, []).append(stated)
    members_of = [
        (what, part)
        for what, members in of_name.items()
        for part in ([members] if len(members) > MAX_LISTED else [[stated] for stated in members])
    ]
    placed: dict[str, list[tuple[int, str, str]]] = {moves: [] for moves in MOVES}
    for what, members in members_of:
        values = [stated.value for stated in members]
        systems = [] if any(not stated.systems for stated in members) else [stated.systems for stated in members]
        text = f"{what[:1].upper()}{what[1:]}: {_words(values)}."
        rank, moves = 0, "other"
        if known := kind_of(what):
            rank, kind, parts = known
            moves, text = kind.moves, _fill(kind.sentence, parts, values)
        placed[moves].append((rank, text, ", ".join(dict.fromkeys(systems))))
    return {
        MOVES[moves]: [(text, systems) for _, text, systems in sorted(rows)] for moves, rows in placed.items() if rows
    }


def section(assumptions: Sequence[Stated]) -> Markup:
    """Return the part of a page that states assumptions: their sentences, and folded their values and sources."""
    groups = sentences(assumptions)
    text = render("mezzotint.sim.report", "assumptions.html.jinja", groups=groups, assumptions=assumptions)
    return Markup(text)  # the template has escaped it


def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a name with {parts}. A part at the end of a word, such as {kind}, may be empty."""
    parts = (
        re.escape(text) + (f"(?P<{part}>{'.*' if part == 'kind' else '.+?'})" if part else "")
        for text, part, _, _ in Formatter().parse(name)
    )
    return re.compile("".join(parts))


def _fill(sentence: str, parts: Mapping[str, str], values: Sequence[Any]) -> str:
    """Return a sentence with the parts of the name and the words of the value in it."""
    lists = [value if isinstance(value, list) else [value] for value in values]
    first, second = (_words([value[index] for value in lists if len(value) > index]) for index in (0, 1))
    numbers = list(_numbers(list(values)))
    ends = {"low": min, "high": max}
    parts_of_value = {name: number(end(numbers), 3) if numbers else "?" for name, end in ends.items()}
    parts_of_value["largest"] = number(max(map(abs, numbers)), 2) if numbers else "?"
    return sentence.format(**parts, **parts_of_value, value=_words(values), first=first, second=second)


def _words(values: Sequence[Any]) -> str:
    """Return values in words: numbers by their ends, others in a row, cut after a few."""
    numbers = list(_numbers(list(values)))
    if len(numbers) > MAX_LISTED:
        return f"{number(min(numbers), 3)} to {number(max(numbers), 3)}"
    texts = list(dict.fromkeys(map(_text, values)))
    more = [f"{len(texts) - MAX_LISTED} more"] if len(texts) > MAX_LISTED else []
    words = " or ".join(texts[:MAX_LISTED] + more)
    return words if len(words) <= MAX_TEXT else "given below"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, int | float):  # also a bool
        return number(value)
    return "unknown" if value is None else str(value)


def _numbers(value: Any) -> Sequence[float]:
    """Return all numbers in a value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [inner for part in value for inner in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
