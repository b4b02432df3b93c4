"""The numbers of the report's tables: verdicts, comparison, assumptions and what makes each run again."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conf.page import DASH, number
from sim.report.compare import Cell, beyond_noise, cells, slo_multiples
from sim.report.labels import natural, short_value
from sim.report.runs import Run
from sim.report.served import UNKNOWN, unlike

QUALITY = ("quality", "factor_mean")
"""Of the images served, over that of the large model's in full: a speed that costs quality is told with it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed number: its text, its range over seeds, whether it is the load's best, and whether it depends on the
    length of the trace because the backlog grows."""

    text: str
    range: str = ""
    best: bool = False
    unstable: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of the table: where it is in the summary, how it prints, and which direction is better.

    `settles` where it tends to a value as the trace grows even if the backlog grows with it.
    """

    title: str
    unit: str
    keys: tuple[str, ...]
    scale: float = 1.0
    better: int = 0
    settles: bool = True

    def text(self, value: float) -> str:
        """The value in three digits; a percentage with one decimal."""
        return f"{100 * value:.1f}" if self.unit == "%" else number(value * self.scale, 3)


def columns(runs: Sequence[Run]) -> list[Column]:
    """The comparison's columns; one for each SLO multiple that some run measured. What no run knows has none: a table
    of dashes hides the columns behind it. Quality has one all the same, as a reader asks for it beside speed."""
    shares = ("p50", "p95", "p99", "mean")
    offered = [
        *(
            Column(f"Over SLO {name}", "%", ("slo", name, "violation_rate"), better=-1, settles=False)
            for name in slo_multiples(runs)
        ),
        *(Column(f"Latency {at}", "s", ("latency_s", at), better=-1, settles=False) for at in shares),
        Column("Quality", "", QUALITY, better=1),
        Column("Cost per image", "US$", ("cost_usd", "per_image"), better=-1),
        Column("Throughput", "rpm", ("throughput_rpm",), better=1, settles=False),
        Column("Until the last arrival", "rpm", ("throughput_until_last_arrival_rpm",), better=1),
        Column("Hit rate", "%", ("cache", "hit_rate"), better=1),
        Column("Compute saved", "%", ("cache", "compute_saving"), better=1),
        Column("Source age p50", "min", ("cache", "source_age_s", "p50"), scale=1 / 60),
        Column("in the trace", "min", ("cache", "source_age_trace_s", "p50"), scale=1 / 60),
        Column("GPU busy", "%", ("gpu", "busy_fraction")),
        Column("Energy per image", "kJ", ("energy_j", "per_image"), scale=1e-3, better=-1),
    ]
    known = [
        each for each in offered if each.keys == QUALITY or any(run.number(*each.keys) is not None for run in runs)
    ]
    grows = any(run.backlog_grows for run in runs)
    return [each for each in known if grows or each.keys != ("throughput_until_last_arrival_rpm",)]


def comparison(runs: Sequence[Run]) -> list[tuple[Cell, list[Entry]]]:
    """The entries of ``columns`` for each series and load, by load.

    The best value of each load is marked where seeds show that it is no noise and all systems do like work.
    """
    shown, grid = columns(runs), cells(runs)
    rivals = {cell.load: [other for other in grid if other.load == cell.load] for cell in grid}
    return [(cell, [_entry(cell, column, rivals[cell.load]) for column in shown]) for cell in grid]


def verdicts(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Group the runs by system and GPU kind: a row for each load, number of GPUs, and what else tells them apart.

    ``series`` of a row is empty where the group's title says it.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells(runs):
        groups.setdefault(_placed(cell.runs[0]), []).append(cell)
    found = {}
    for title, of in sorted(groups.items(), key=lambda item: natural(item[0])):
        places = [(*cell.load.order, cell.runs[0].number("gpu", "count") or 0.0) for cell in of]
        alone = len(set(places)) == len(places)
        ordered = [cell for _, cell in sorted(zip(places, of, strict=True), key=lambda each: each[0])]
        found[title] = [_verdict(cell, "" if alone else cell.series) for cell in ordered]
    return found


def _placed(run: Run) -> str:
    """A run's system, and the kind of GPU that it has."""
    kind = run.config.get("cluster.gpu.name")
    return f"{run.system} on {short_value(kind)}" if kind else run.system


def _verdict(cell: Cell, series: str) -> dict[str, Any]:
    models = cell.runs[0].models
    means = {
        "gpus": (("gpu", "count"), 1.0),
        "usd_per_1000": (("cost_usd", "per_image"), 1000.0),
        "p95_s": (("latency_s", "p95"), 1.0),
    }
    of_models = {
        "model": [each.work.model for each in models],
        "steps": [DASH if each.work.steps is None else str(each.work.steps) for each in models],
        "precision": [each.work.precision or UNKNOWN for each in models],
        "basis": [each.basis_words for each in models],
    }
    found = {name: (cell.spread(*keys), scale) for name, (keys, scale) in means.items()}
    return {
        "series": series,
        "load": cell.load.label,
        "verdict": _stability(cell),
        "unstable": cell.backlog_grows,
        **{name: DASH if value is None else number(scale * value.mean, 3) for name, (value, scale) in found.items()},
        **{name: " / ".join(dict.fromkeys(words)) or DASH for name, words in of_models.items()},
    }


def _stability(cell: Cell) -> str:
    """Whether the queue grows, what is not served, and the share of requests over the tightest limit."""
    arrived, completed = cell.spread("requests", "arrived"), cell.spread("requests", "completed")
    if arrived is None or completed is None or not arrived.mean:
        return DASH
    if not completed.mean:
        return "serves nothing"
    said = "overloaded: its queue grows" if cell.backlog_grows else "stable"
    if cell.runs[0].summary.get("backlog") is None:
        said = "queue not recorded"
    lost = 1 - completed.mean / arrived.mean
    said += f", drops {lost:.1%}" if lost > 0 else ""
    for name in slo_multiples(cell.runs)[:1]:
        late = cell.spread("slo", name, "violation_rate")
        said += "" if late is None else f", {late.mean:.1%} over {name}"
    return said


def unlike_work(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(work with its basis, the systems that do it) where runs do unlike work; empty where all do the same."""
    return [(work, ", ".join(names)) for work, names in unlike([(_placed(run), run.models) for run in runs])]


def assumptions(runs: Sequence[Run]) -> list[tuple[str, str, str, str]]:
    """(what, value, source, the systems that rest on it) over all runs, each once."""
    held: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        for row in run.summary["assumptions"] or []:
            fact = (_text(row["what"]), _text(row["value"]), _text(row["source"]))
            if run not in held.setdefault(fact, []):
                held[fact].append(run)
    return [(*fact, _resting(who, runs)) for fact, who in sorted(held.items())]


def _resting(who: Sequence[Run], runs: Sequence[Run]) -> str:
    """The systems of `who`, each with how many of its runs where that is not all of them."""
    if len(who) == len(runs):
        return "all"
    of, all_of = (Counter(run.family or run.series for run in some) for some in (who, runs))
    named = sorted(of, key=natural)
    return ", ".join(name if of[name] == all_of[name] else f"{name} ({of[name]} of {all_of[name]})" for name in named)


def reproduction(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """(run, series, load, seed, trace, digest): what has to be the same for the same bytes to come out."""
    rows = []
    for run in runs:
        trace = run.summary["trace"] or {}
        facts = (run.summary["seed"], trace.get("name"), trace.get("digest"))
        rows.append((run.name, run.series, run.load.label, *map(_text, facts)))
    return rows


def unknown_quality(runs: Sequence[Run]) -> dict[str, str]:
    """The reasons why quality is not known, and the systems that each is given for."""
    held: dict[str, set[str]] = {}
    for run in runs:
        if run.number(*QUALITY) is None:
            told = run.summary.get("quality")
            told = told if isinstance(told, Mapping) else {}
            reason = told.get("reason") or told.get("basis") or "the run does not say why"
            held.setdefault(_text(reason), set()).add(run.family or run.series)
    return {reason: ", ".join(sorted(who, key=natural)) for reason, who in held.items()}


def _entry(cell: Cell, column: Column, rivals: Sequence[Cell]) -> Entry:
    value = cell.spread(*column.keys)
    if value is None:
        return Entry(DASH)
    low, high = column.text(value.low), column.text(value.high)
    spread = f"{low} to {high}" if low != high else ""
    unstable = cell.backlog_grows and not column.settles
    return Entry(column.text(value.mean), spread, _best(cell, column, rivals), unstable)


def _best(cell: Cell, column: Column, rivals: Sequence[Cell]) -> bool:
    """Whether a cell beats each of its rivals at the load, in print and beyond what seeds make differ."""
    mine = cell.spread(*column.keys)
    others = [(other, x.mean) for other in rivals if other is not cell and (x := other.spread(*column.keys))]
    alike = len({other.runs[0].work for other in rivals}) == 1
    if not column.better or mine is None or not others or not alike:
        return False
    return all(
        column.better * (mine.mean - theirs) > 0
        and column.text(mine.mean) != column.text(theirs)
        and beyond_noise(cell, other, *column.keys)
        for other, theirs in others
    )


def _text(value: object) -> str:
    if value is None:
        return DASH
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
