"""The report's words and numbers: headline, comparison table, assumptions, and how to make each run again."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.study.compare import Cell, beyond_noise, cells, common_loads, slo_multiples
from sim.study.identity import Load, natural, short_key, short_value
from sim.study.palette import families_of
from sim.study.runs import Run
from sim.study.sensitivity import Likely

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
    opens_load: bool


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
    """A row for each series and load; the best value of each load is marked where seeds show that it is no noise."""
    shown = columns(runs)
    grid = cells(runs)
    rows = []
    for index, cell in enumerate(grid):
        rivals = [other for other in grid if other.load == cell.load]
        entries = tuple(_entry(cell, column, rivals) for column in shown)
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
    sentences += [_quality(rivals), _caveat(rivals)]
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences if sentence)


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
    if not column.better or mine is None or not others:
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
    elif len(grid) > 1:
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
    for reason, who in unknown_quality(runs):
        said.append(f"Quality is not known of {who}: {reason}.")
    return said


def _scope(runs: Sequence[Run]) -> str:
    """How many runs of what at which loads."""
    systems = {run.system for run in runs}
    variants = families_of(runs)
    what = _count(len(systems), "system")
    what = what if len(variants) == len(systems) else f"{len(variants)} variants of {what}"
    if values := sorted({run.setting.value for run in runs if run.setting}):
        key = next(run.setting.key for run in runs if run.setting)
        what += f" at {len(values)} values of {short_key(key)} ({values[0]:,.10g} to {values[-1]:,.10g})"
    loads = sorted({run.load for run in runs}, key=lambda load: load.order)
    where = _at(loads[0]) if len(loads) == 1 else f"at {len(loads)} loads"
    rates = [load.rate_rpm for load in loads if load.rate_rpm is not None]
    span = f" ({rates[0]:g} to {rates[-1]:g} requests per minute)" if len(rates) > 1 else ""
    return f"{_count(len(runs), 'run')} of {what} {where}{span}"


def _quality(rivals: Sequence[Cell]) -> str:
    """What the images of those that race are worth: speed alone would let a smaller model win."""
    known = [(cell.series, x.mean) for cell in rivals if (x := cell.spread(*QUALITY))]
    if not known:
        return "no quality of their images is known" if len(rivals) > 1 else "the quality of its images is not known"
    found: dict[str, list[str]] = {}
    for series, value in sorted(known, key=lambda pair: -pair[1]):
        found.setdefault(f"{value:.3g}", []).append(series)
    said = "; ".join(f"{text} ({_names(who)})" for text, who in found.items())
    if len(found) == 1 and len(known) == len(rivals) > 1:
        return f"the quality of the images, 1 being the large model in full, is {next(iter(found))} for all"
    missing = [cell.series for cell in rivals if cell.series not in dict(known)]
    rest = f"; not known of {_names(missing)}" if missing else ""
    return f"the quality of the images, 1 being the large model in full, is {said}{rest}"


def _caveat(rivals: Sequence[Cell]) -> str:
    """What the comparison cannot tell: noise of a single seed, numbers of a queue that only grows."""
    said = []
    if len(rivals) > 1 and any(len(cell.runs) < 2 for cell in rivals):
        said.append("with one seed, small differences may be noise")
    if unstable := [cell.series for cell in rivals if cell.backlog_grows]:
        said.append(f"the backlog of {_names(unstable)} grows as long as requests come")
    return "; ".join(said)


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
    cell_of = {cell.series: cell for cell in rivals}
    pair = (cell_of[best], cell_of[base])
    noise = min(len(cell.runs) for cell in pair) > 1 and not beyond_noise(*pair, "throughput_rpm")
    if least > 0 and most / least >= 1.02 and noise:
        return f"{where}, no system completes more requests than {base} beyond the noise of the seeds"
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
        return f"{len(series)} of them"
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


SHARES = (0.01, 0.02, 0.03)
"""By how much the service time is moved."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """How right one run is likely to be, as it prints: its busy share, p50, p90 and p99, and their bands; or the reason
    why there are none."""

    series: str
    load: str
    busy: str
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
    run, busy = each.run, each.run.number("gpu", "busy_fraction")
    said = () if each.said is None else tuple(number(value) for value in each.said.values())
    asked = [("p99", share) for share in SHARES] + [("p50", SHARES[-1])]
    bands = [each.band(name, share) for name, share in asked]
    return Confidence(
        run.series,
        run.load.label,
        DASH if busy is None else f"{busy:.0%}",
        said,
        tuple(f"{number(band[0])} to {number(band[1])}" for band in bands if band is not None),
        each.reason,
    )
