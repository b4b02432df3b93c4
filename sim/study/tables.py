"""The report's words and numbers: verdicts, comparison, error bands, assumptions, and how to make each run again."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.study.compare import Cell, beyond_noise, cells, slo_multiples
from sim.study.identity import natural, short_value
from sim.study.palette import families_of
from sim.study.runs import Run
from sim.study.sensitivity import EXAMPLE, Likely
from sim.study.served import UNKNOWN, unlike

DASH = "–"

QUALITY = ("quality", "factor_mean")
"""Of the images served, over that of the large model's in full: a speed that costs quality is told with it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed number: its text, the range over seeds if there is one, whether it is the load's best.

    `unstable` where the run's backlog grows, so that the number depends on the length of the trace.
    """

    text: str
    range: str = ""
    best: bool = False
    unstable: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One series at one load."""

    series: str
    load: str
    seeds: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of the table: where it is in the summary, how it prints, and which direction is better.

    `settles` where it tends to a value as the trace grows even if the backlog grows with it.
    """

    title: str
    unit: str
    keys: tuple[str, ...]
    scale: float = 1.0
    percent: bool = False
    better: int = 0
    settles: bool = True


def columns(runs: Sequence[Run]) -> list[Column]:
    """The comparison's columns; one for each SLO multiple that some run measured. What no run knows has none: a table
    of dashes hides the columns behind it. Quality has one all the same, as a reader asks for it beside speed."""
    ages = (
        Column("Source age p50", "min", ("cache", "source_age_s", "p50"), scale=1 / 60),
        Column("in the trace", "min", ("cache", "source_age_trace_s", "p50"), scale=1 / 60),
    )
    until_last = Column("Until the last arrival", "rpm", ("throughput_until_last_arrival_rpm",), better=1)
    offered = [
        *(
            Column(f"Over SLO {name}", "%", ("slo", name, "violation_rate"), percent=True, better=-1, settles=False)
            for name in slo_multiples(runs)
        ),
        Column("Latency p50", "s", ("latency_s", "p50"), better=-1, settles=False),
        Column("Latency p95", "s", ("latency_s", "p95"), better=-1, settles=False),
        Column("Latency p99", "s", ("latency_s", "p99"), better=-1, settles=False),
        Column("Latency mean", "s", ("latency_s", "mean"), better=-1, settles=False),
        Column("Quality", "", QUALITY, better=1),
        Column("Cost per image", "US$", ("cost_usd", "per_image"), better=-1),
        Column("Throughput", "rpm", ("throughput_rpm",), better=1, settles=False),
        *([until_last] if any(run.backlog_grows for run in runs) else []),
        Column("Hit rate", "%", ("cache", "hit_rate"), percent=True, better=1),
        Column("Compute saved", "%", ("cache", "compute_saving"), percent=True, better=1),
        *ages,
        Column("GPU busy", "%", ("gpu", "busy_fraction"), percent=True),
        Column("Energy per image", "kJ", ("energy_j", "per_image"), scale=1e-3, better=-1),
    ]
    return [
        column
        for column in offered
        if column.keys == QUALITY or any(run.number(*column.keys) is not None for run in runs)
    ]


def comparison(runs: Sequence[Run]) -> list[Row]:
    """A row for each series and load, by load.

    The best value of each load is marked where seeds show that it is no noise and all systems do like work.
    """
    shown = columns(runs)
    grid = cells(runs)
    rows = []
    for cell in grid:
        rivals = [other for other in grid if other.load == cell.load]
        entries = tuple(_entry(cell, column, rivals) for column in shown)
        rows.append(Row(cell.series, cell.load.label, len(cell.runs), entries))
    return rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """One series at one load, as the first table shows it; ``series`` is empty where the group's title says it."""

    series: str
    load: str
    verdict: str
    unstable: bool
    gpus: str
    usd_per_1000: str
    p95_s: str
    model: str
    steps: str
    precision: str
    basis: str


@dataclass(frozen=True, slots=True)
class Group:
    """The verdicts of one system on one kind of GPU."""

    title: str
    rows: tuple[Verdict, ...]


def verdicts(runs: Sequence[Run]) -> list[Group]:
    """Group the runs by system and GPU kind: a row for each load, number of GPUs, and what else tells them apart."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(runs):
        groups.setdefault(_placed(cell.runs[0]), []).append(cell)
    found = []
    for title, of in sorted(groups.items(), key=lambda item: natural(item[0])):
        places = [(cell.load, cell.runs[0].number("gpu", "count")) for cell in of]
        ordered = sorted(of, key=lambda cell: (cell.load.order, cell.runs[0].number("gpu", "count") or 0.0))
        alone = len(set(places)) == len(places)
        found.append(Group(title, tuple(_verdict(cell, "" if alone else cell.series) for cell in ordered)))
    return found


def _placed(run: Run) -> str:
    """A run's system, and the kind of GPU that it has."""
    kind = run.config.get("cluster.gpu.name")
    return f"{run.system} on {short_value(kind)}" if kind else run.system


def _verdict(cell: Cell, series: str) -> Verdict:
    models = cell.runs[0].models
    gpus, usd, p95_s = (
        cell.spread(*keys) for keys in (("gpu", "count"), ("cost_usd", "per_image"), ("latency_s", "p95"))
    )

    def of_models(words: Sequence[str]) -> str:
        return " / ".join(dict.fromkeys(words)) or DASH

    return Verdict(
        series,
        cell.load.label,
        _stability(cell),
        cell.backlog_grows,
        DASH if gpus is None else f"{gpus.mean:g}",
        DASH if usd is None else number(1000 * usd.mean),
        DASH if p95_s is None else number(p95_s.mean),
        of_models([each.work.model for each in models]),
        of_models([DASH if each.work.steps is None else str(each.work.steps) for each in models]),
        of_models([each.work.precision or UNKNOWN for each in models]),
        of_models([each.basis_words for each in models]),
    )


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


def prices(runs: Sequence[Run]) -> list[str]:
    """Return the price of each GPU kind with its source, and how to set one where none is known."""
    said: dict[str, None] = {}
    for run in runs:
        kind = run.config.get("cluster.gpu.name")
        if not kind or run.summary["cost_usd"] is None:
            continue
        stated = [row for row in run.summary["assumptions"] or [] if row.get("what") == "price of a GPU [USD/h]"]
        for row in stated:
            price = f"US$ {_text(row.get('value'))} per GPU-hour ({_text(row.get('source'))})"
            said[f"{short_value(kind)}: {price}."] = None
        if not stated:
            said[f"{short_value(kind)}: no price known; set cluster.gpu.usd_per_gpu_h."] = None
    return list(said)


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


def assumptions(runs: Sequence[Run]) -> list[tuple[str, str, str, str]]:
    """(what, value, source, the systems that rest on it) over all runs, each once."""
    held: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        for row in run.summary["assumptions"] or []:
            fact = (_text(row.get("what")), _text(row.get("value")), _text(row.get("source")))
            if run not in held.setdefault(fact, []):
                held[fact].append(run)
    return [(*fact, _resting(who, runs)) for fact, who in sorted(held.items())]


def _resting(who: Sequence[Run], runs: Sequence[Run]) -> str:
    """The systems of `who`, each with how many of its runs where that is not all of them."""
    if len(who) == len(runs):
        return "all"
    said = []
    for name in families_of(who):
        of, all_of = (sum((run.family or run.series) == name for run in some) for some in (who, runs))
        said.append(name if of == all_of else f"{name} ({of} of {_count(all_of, 'run')})")
    return ", ".join(said)


def reproduction(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """(run, main choices, seed, trace, digest): what has to be the same for the same bytes to come out."""
    rows = []
    for run in runs:
        trace = run.summary["trace"] or {}
        facts = (run.summary["seed"], trace.get("name"), trace.get("digest"))
        rows.append((run.name, _choices(run), *(_text(fact) for fact in facts)))
    return rows


def _entry(cell: Cell, column: Column, rivals: Sequence[Cell]) -> Entry:
    value = cell.spread(*column.keys)
    if value is None:
        return Entry(DASH)
    text, low, high = (number(x * column.scale, percent=column.percent) for x in (value.mean, value.low, value.high))
    spread = f"{low} to {high}" if low != high else ""
    return Entry(text, spread, _best(cell, column, rivals), cell.backlog_grows and not column.settles)


def _best(cell: Cell, column: Column, rivals: Sequence[Cell]) -> bool:
    """Whether a cell beats each of its rivals at the load, in print and beyond what seeds make differ."""
    mine = cell.spread(*column.keys)
    others = [(other, x.mean) for other in rivals if other is not cell and (x := other.spread(*column.keys))]
    alike = len({other.runs[0].work for other in rivals}) == 1
    if not column.better or mine is None or not others or not alike:
        return False
    return all(
        column.better * (mine.mean - theirs) > 0
        and number(mine.mean * column.scale, percent=column.percent)
        != number(theirs * column.scale, percent=column.percent)
        and beyond_noise(cell, other, *column.keys)
        for other, theirs in others
    )


def unknown_quality(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(reason, the systems whose quality is not known for it)."""
    held: dict[str, list[str]] = {}
    for run in runs:
        if run.number(*QUALITY) is None:
            told = run.summary.get("quality")
            told = told if isinstance(told, Mapping) else {}
            reason = told.get("reason") or told.get("basis") or "the run does not say why"
            held.setdefault(_text(reason), []).append(run.family or run.series)
    return [(reason, ", ".join(sorted(set(who), key=natural))) for reason, who in held.items()]


def notes(runs: Sequence[Run]) -> list[str]:
    """What the reader of the table has to know: marks, noise, reruns, backlogs and unknown quality."""
    grid = cells(runs)
    seeds = max(len(cell.runs) for cell in grid)
    said = ["All values are over the measured window, after warm-up."]
    if seeds > 1:
        said.append("Values are means over seeds, with the lowest and highest below where they differ.")
        said.append("Bold is what beats every other system at that load beyond the noise of its seeds (95 % interval).")
    elif len(grid) > 1 and not unlike_work(runs):
        said.append(
            "Every system ran with one seed, which tells nothing of noise, so nothing is marked as best; "
            "three or more (seed=1,2,3) would."
        )
    if repeated := len(runs) - sum(len(cell.runs) for cell in grid):
        said.append(f"{_count(repeated, 'run')} under the configuration and seed of another counted once with it.")
    if any(cell.backlog_grows for cell in grid):
        said.append(
            "↗ marks runs whose backlog grows for as long as requests come: the system does not keep up, and the "
            "number is that of this length of trace, not of the system."
        )
    said.append("Quality is that of the images served over that of the large model's in full: 1 loses nothing.")
    said.append("A dash marks a quantity that does not apply or was not measured.")
    if any(run.number("cache", "source_age_s", "p50") is not None for run in runs):
        said.append(
            "Source age is how old what a hit starts from is: since it was finished in the run and, in the trace, "
            "between the two requests, which is the age that it had in the service."
        )
    said += prices(runs)
    for reason, who in unknown_quality(runs):
        said.append(f"Quality is not known of {who}: {reason}.")
    return said


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


@dataclass(frozen=True, slots=True)
class Confidence:
    """The error band of one run, as it prints.

    Attributes:
        basis: how its service times are known; ``error`` is their known error, or says that nobody knows it.
        said: p50, p95 and p99, with the ``bands`` of each; none where there is a ``reason`` instead.
    """

    series: str
    load: str
    basis: str
    error: str
    said: tuple[str, ...]
    bands: tuple[str, ...]
    reason: str


def confidence(found: Sequence[Likely]) -> list[Confidence]:
    """A row for each run whose service time was moved, or could not be."""
    return [_confident(each) for each in found]


def checks(found: Sequence[Likely]) -> list[str]:
    """What was checked of each profile behind the runs, each once."""
    return list(dict.fromkeys(said for each in found for said in each.checked))


def _confident(each: Likely) -> Confidence:
    run = each.run
    bands = [] if each.said is None else [each.band(name) for name in each.said]
    return Confidence(
        run.series,
        run.load.label,
        " / ".join(dict.fromkeys(model.basis_words for model in run.models)) or UNKNOWN,
        f"not known; example ±{EXAMPLE:.0%}" if each.error is None else f"±{100 * each.error:.3g}%",
        () if each.said is None else tuple(number(value) for value in each.said.values()),
        tuple(f"{number(band[0])} to {number(band[1])}" for band in bands if band is not None),
        each.reason,
    )
