"""The report's words and numbers: headline, comparison table, assumptions, and how to make each run again."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.study.compare import Cell, Spread, cells, common_loads, slo_multiples
from sim.study.identity import Load, short_value
from sim.study.runs import Run

DASH = "–"


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed number: its text, the range over seeds if there is one, whether it is the load's best."""

    text: str
    range: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One series at one load."""

    series: str
    load: str
    seeds: int
    entries: tuple[Entry, ...]
    opens_load: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of the table: where it is in the summary, how it prints, and which direction is better."""

    title: str
    unit: str
    keys: tuple[str, ...]
    scale: float = 1.0
    percent: bool = False
    better: int = 0


def columns(runs: Sequence[Run]) -> list[Column]:
    """The comparison's columns; one for each SLO multiple that some run measured."""
    return [
        Column("Throughput", "rpm", ("throughput_rpm",), better=1),
        Column("Latency mean", "s", ("latency_s", "mean"), better=-1),
        Column("p50", "s", ("latency_s", "p50"), better=-1),
        Column("p99", "s", ("latency_s", "p99"), better=-1),
        *(
            Column(f"Over SLO {name}", "%", ("slo", name, "violation_rate"), percent=True, better=-1)
            for name in slo_multiples(runs)
        ),
        Column("Hit rate", "%", ("cache", "hit_rate"), percent=True, better=1),
        Column("Compute saved", "%", ("cache", "compute_saving"), percent=True, better=1),
        Column("GPU busy", "%", ("gpu", "busy_fraction"), percent=True),
        Column("Energy per image", "kJ", ("energy_j", "per_image"), scale=1e-3, better=-1),
        Column("Cost per image", "US$", ("cost_usd", "per_image"), better=-1),
    ]


def comparison(runs: Sequence[Run]) -> list[Row]:
    """A row for each series and load; the best value of each load is marked where values differ."""
    shown = columns(runs)
    grid = cells(runs)
    rows = []
    for index, cell in enumerate(grid):
        rivals = [other for other in grid if other.load == cell.load]
        entries = tuple(_entry(cell.spread(*column.keys), column, rivals) for column in shown)
        opens = index == 0 or grid[index - 1].load != cell.load
        rows.append(Row(cell.series, cell.load.label, len(cell.runs), entries, opens))
    return rows


def number(value: float | None, *, percent: bool = False) -> str:
    """Three significant digits, thousands separated, or a percentage with one decimal; a dash for None."""
    if value is None or not math.isfinite(value):
        return DASH
    if percent:
        return f"{100 * value:.1f}"
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, decimals)}f}" if decimals < 7 else f"{value:.2e}"


def headline(runs: Sequence[Run]) -> str:
    """What was compared and how it came out at the highest load all share; only measured numbers."""
    grid = cells(runs)
    load = common_loads(runs, 1)[0]
    rivals = [cell for cell in grid if cell.load == load]
    sentences = [_scope(runs), _race(rivals)]
    tightest = slo_multiples(runs)[:1]
    for subject, keys, unit, percent in (
        ("the p99 latency", ("latency_s", "p99"), " s", False),
        *((f"the share of requests over the {n} SLO", ("slo", n, "violation_rate"), "%", True) for n in tightest),
    ):
        found: dict[str, list[str]] = {}
        values = [(x.mean, cell.series) for cell in rivals if (x := cell.spread(*keys))]
        for value, series in sorted(values):
            found.setdefault(f"{number(value, percent=percent)}{unit}", []).append(series)
        (low, winners), (high, losers) = (
            next(iter(found.items()), ("", [])),
            next(reversed(found.items()), ("", [])),
        )
        if len(found) > 1:
            sentences.append(f"{subject} runs from {low} ({_names(winners)}) to {high} ({_names(losers)})")
        elif found:
            sentences.append(f"{subject} is {low}" + (" for every system" if len(winners) > 1 else ""))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)


def assumptions(runs: Sequence[Run]) -> list[tuple[str, str, str, str]]:
    """(what, value, source, how many runs rest on it) over all runs, each once."""
    held: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for row in run.summary["assumptions"] or []:
            fact = (_text(row.get("what")), _text(row.get("value")), _text(row.get("source")))
            held.setdefault(fact, set()).add(run.name)
    return [
        (*fact, "all" if len(who) == len(runs) else f"{len(who)} of {len(runs)}") for fact, who in sorted(held.items())
    ]


def reproduction(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """(run, main choices, seed, trace, digest): what has to be the same for the same bytes to come out."""
    rows = []
    for run in runs:
        trace = run.summary["trace"] or {}
        facts = (run.summary["seed"], trace.get("name"), trace.get("digest"))
        rows.append((run.name, _choices(run), *(_text(fact) for fact in facts)))
    return rows


def _entry(value: Spread | None, column: Column, rivals: Sequence[Cell]) -> Entry:
    if value is None:
        return Entry(DASH)
    text, low, high = (number(x * column.scale, percent=column.percent) for x in (value.mean, value.low, value.high))
    others = [
        number(x.mean * column.scale, percent=column.percent) for cell in rivals if (x := cell.spread(*column.keys))
    ]
    means = [x.mean for cell in rivals if (x := cell.spread(*column.keys))]
    best = bool(column.better) and len(set(others)) > 1
    if best:
        best = text == number((max if column.better > 0 else min)(means) * column.scale, percent=column.percent)
    return Entry(text, f"{low} to {high}" if low != high else "", best)


def _scope(runs: Sequence[Run]) -> str:
    """How many runs of what at which loads."""
    series, systems = {run.series for run in runs}, {run.system for run in runs}
    what = _count(len(systems), "system")
    what = what if len(series) == len(systems) else f"{len(series)} variants of {what}"
    loads = sorted({run.load for run in runs}, key=lambda load: load.order)
    where = _at(loads[0]) if len(loads) == 1 else f"at {len(loads)} loads"
    rates = [load.rate_rpm for load in loads if load.rate_rpm is not None]
    span = f" ({rates[0]:g} to {rates[-1]:g} requests per minute)" if len(rates) > 1 else ""
    return f"{_count(len(runs), 'run')} of {what} {where}{span}"


def _race(rivals: Sequence[Cell]) -> str:
    """Who completes how many times the requests of the baseline: vanilla where it ran, else the slowest."""
    found = [(cell.series, x.mean) for cell in rivals if (x := cell.spread("throughput_rpm"))]
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    if not found:
        return ""
    load, (best, most) = rivals[0].load, found[0]
    if len(found) == 1:
        return f"{_at(load)}, {best} completes {number(most)} requests per minute"
    plain = [pair for pair in found if pair[0].split(" ")[0] == "vanilla"]
    base, least = plain[0] if len(plain) == 1 else found[-1]
    full = load.rate_rpm is not None and least < 0.95 * load.rate_rpm
    where = _at(load) + (f", more than {base} can serve" if full else "")
    slow, last = found[-1]
    rest = f"; {slow} completes {(1 - last / least):.0%} fewer" if last < 0.98 * least else ""
    if least <= 0 or most / least < 1.02:
        return f"{where}, no system completes 2% more requests than {base} ({number(least)} per minute){rest}"
    return (
        f"{where}, {best} completes {number(most / least)} times the requests of {base} "
        f"({number(most)} against {number(least)} per minute){rest}"
    )


def _at(load: Load) -> str:
    return f"{'at' if load.rate_rpm is not None else 'under'} {load.label}"


def _names(series: Sequence[str]) -> str:
    if len(series) > 3:
        return f"{len(series)} systems"
    return " and ".join([", ".join(series[:-1]), series[-1]] if len(series) > 1 else series)


def _choices(run: Run) -> str:
    """The main choices of the resolved configuration, as overrides."""
    facts = {
        "system": run.config.get("system.name"),
        "cluster": run.config.get("cluster.gpu.name"),
        "trace": run.config.get("trace._target_"),
        "arrivals": run.config.get("arrivals._target_"),
    }
    plain = ("cluster.count", "trace.path", "trace.requests", "arrivals.rate_rpm", "preload", "warmup")
    facts |= {key: run.config.get(key) for key in plain}
    said = [f"{key}={short_value(value)}" for key, value in facts.items() if value]
    return " ".join(said) or DASH


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _text(value: object) -> str:
    if value is None:
        return DASH
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
