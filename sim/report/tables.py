"""Numbers of the report's tables: verdicts, comparison, assumptions and reproduction."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mezzotint.figures.page import DASH, number
from mezzotint.sim.report.compare import SeriesAtLoad, beyond_noise, cells, limit_name, slo_multiples
from mezzotint.sim.report.labels import natural, short_value
from mezzotint.sim.report.runs import Run
from mezzotint.sim.report.served import UNKNOWN, runs_by_images

QUALITY = ("quality", "factor_mean")
"""Quality of the served images over that of the large model's full runs: a speed-up may cost quality."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed number of the comparison.

    Attributes:
        range: lowest and highest value over seeds, in words.
        best: True if no other system at that load reaches it.
        unstable: True if it depends on the trace's length, because the backlog grows.
    """

    text: str
    range: str = ""
    best: bool = False
    unstable: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of the comparison.

    Attributes:
        keys: its place in the summary.
        better: 1 if more is better, -1 if less is, 0 if neither.
        settles: True if it converges on a longer trace even while the backlog grows.
    """

    title: str
    unit: str
    keys: tuple[str, ...]
    scale: float = 1.0
    better: int = 0
    settles: bool = True

    def text(self, value: float) -> str:
        """Return the value in three digits; a percentage with one decimal."""
        return f"{100 * value:.1f}" if self.unit == "%" else number(value * self.scale, 3)


def columns(runs: Sequence[Run]) -> list[Column]:
    """Return the comparison's columns that some run has a value for, one for each SLO limit.

    Quality always has a column, since readers look for it beside speed.
    """
    shares = ("p50", "p95", "p99", "mean")
    offered = [
        *(
            Column(f"Over {limit_name(name)}", "%", ("slo", name, "violation_rate"), better=-1, settles=False)
            for name in slo_multiples(runs)
        ),
        *(Column(f"Latency {at}", "s", ("latency_s", at), better=-1, settles=False) for at in shares),
        Column("Quality", "", QUALITY, better=1),
        Column("Cost per image", "US$", ("cost_usd", "per_image"), better=-1),
        Column("Throughput", "per min", ("throughput_rpm",), better=1, settles=False),
        Column("Throughput to last arrival", "per min", ("throughput_until_last_arrival_rpm",), better=1),
        Column("Cache hit rate", "%", ("cache", "hit_rate"), better=1),
        Column("Compute saved", "%", ("cache", "compute_saving"), better=1),
        Column("Cached age p50", "min", ("cache", "source_age_s", "p50"), scale=1 / 60),
        Column("Cached age in trace", "min", ("cache", "source_age_trace_s", "p50"), scale=1 / 60),
        Column("GPU busy", "%", ("gpu", "busy_fraction")),
        Column("Energy per image", "kJ", ("energy_j", "per_image"), scale=1e-3, better=-1),
    ]
    known = [
        each for each in offered if each.keys == QUALITY or any(run.number(*each.keys) is not None for run in runs)
    ]
    grows = any(run.backlog_grows for run in runs)
    return [each for each in known if grows or each.keys != ("throughput_until_last_arrival_rpm",)]


def comparison(runs: Sequence[Run]) -> list[tuple[SeriesAtLoad, list[Entry]]]:
    """Return the entries of ``columns`` for each series and load, by load.

    The best value at each load is marked if it exceeds the noise of seeds and all systems make the same images.
    """
    shown, grid = columns(runs), cells(runs)
    rivals = {cell.load: [other for other in grid if other.load == cell.load] for cell in grid}
    return [(cell, [_entry(cell, column, rivals[cell.load]) for column in shown]) for cell in grid]


def verdicts(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Return rows for each system and GPU kind, one per load, number of GPUs and other distinguishing setting.

    A row's ``series`` is empty if the group's title identifies it.
    """
    groups: dict[str, list[SeriesAtLoad]] = {}
    for cell in cells(runs):
        groups.setdefault(_system_on_gpu(cell.runs[0]), []).append(cell)
    found = {}
    for title, members in sorted(groups.items(), key=lambda item: natural(item[0])):
        places = [(*cell.load.order, cell.runs[0].number("gpu", "count") or 0.0) for cell in members]
        is_unique = len(set(places)) == len(places)
        ordered = [cell for _, cell in sorted(zip(places, members, strict=True), key=lambda each: each[0])]
        found[title] = [_verdict(cell, "" if is_unique else cell.series) for cell in ordered]
    return found


def _system_on_gpu(run: Run) -> str:
    """Return a run's system and kinds of GPU, in words."""
    kinds = " + ".join(map(short_value, run.gpu_kinds))
    return f"{run.system} on {kinds}" if kinds else run.system


def _verdict(cell: SeriesAtLoad, series: str) -> dict[str, Any]:
    models = cell.runs[0].models
    means = {
        "gpus": (("gpu", "count"), 1.0),
        "usd_per_1000": (("cost_usd", "per_image"), 1000.0),
        "p95_s": (("latency_s", "p95"), 1.0),
    }
    of_models = {
        "model": [each.images.model for each in models],
        "steps": [DASH if each.images.steps is None else str(each.images.steps) for each in models],
        "precision": [each.images.precision or UNKNOWN for each in models],
        "basis": [each.basis_text for each in models],
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


def _stability(cell: SeriesAtLoad) -> str:
    """Whether the queue grows, what is not served, and the share of requests over the tightest limit."""
    arrived, completed = cell.spread("requests", "arrived"), cell.spread("requests", "completed")
    if arrived is None or completed is None or not arrived.mean:
        return DASH
    if not completed.mean:
        return "completes no request"
    verdict = "overloaded: its queue grows" if cell.backlog_grows else "stable"
    if cell.runs[0].summary.get("backlog") is None:
        verdict = "queue not recorded"
    lost = 1 - completed.mean / arrived.mean
    verdict += f", drops {lost:.1%}" if lost > 0 else ""
    for name in slo_multiples(cell.runs)[:1]:
        late = cell.spread("slo", name, "violation_rate")
        verdict += "" if late is None else f", {late.mean:.1%} over {name}"
    return verdict


def different_images(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return (images with their basis, systems) if the runs make different images, else an empty list."""
    return [
        (images, ", ".join(names))
        for images, names in runs_by_images([(_system_on_gpu(run), run.models) for run in runs])
    ]


def assumptions(runs: Sequence[Run]) -> list[tuple[str, str, str, str]]:
    """Return (assumption, value, source, systems that rest on it) over all runs, each once."""
    runs_of: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        for row in run.summary["assumptions"] or []:
            fact = (_text(row["what"]), _text(row["value"]), _text(row["source"]))
            if run not in runs_of.setdefault(fact, []):
                runs_of[fact].append(run)
    return [(*fact, _systems_text(some, runs)) for fact, some in sorted(runs_of.items())]


def _systems_text(some: Sequence[Run], runs: Sequence[Run]) -> str:
    """Return the systems of `some` runs, each with the number of its runs if `some` lacks any of them."""
    if len(some) == len(runs):
        return "all"
    counts, totals = (Counter(run.family or run.series for run in each) for each in (some, runs))
    names = sorted(counts, key=natural)
    parts = (name if counts[name] == totals[name] else f"{name} ({counts[name]} of {totals[name]})" for name in names)
    return ", ".join(parts)


def reproduction(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return (run, series, load, seed, trace, digest) of each run: equal ones give equal bytes."""
    rows = []
    for run in runs:
        trace = run.summary["trace"] or {}
        facts = (run.summary["seed"], trace.get("name"), trace.get("digest"))
        rows.append((run.name, run.series, run.load.label, *map(_text, facts)))
    return rows


def unknown_quality(runs: Sequence[Run]) -> dict[str, str]:
    """Return the reasons why quality is unknown, each with its systems."""
    systems_of: dict[str, set[str]] = {}
    for run in runs:
        if run.number(*QUALITY) is None:
            quality = run.summary.get("quality")
            quality = quality if isinstance(quality, Mapping) else {}
            reason = quality.get("reason") or quality.get("basis") or "the run gives no reason"
            systems_of.setdefault(_text(reason), set()).add(run.family or run.series)
    return {reason: ", ".join(sorted(names, key=natural)) for reason, names in systems_of.items()}


def _entry(cell: SeriesAtLoad, column: Column, rivals: Sequence[SeriesAtLoad]) -> Entry:
    value = cell.spread(*column.keys)
    if value is None:
        return Entry(DASH)
    low, high = column.text(value.low), column.text(value.high)
    spread = f"{low} to {high}" if low != high else ""
    unstable = cell.backlog_grows and not column.settles
    return Entry(column.text(value.mean), spread, _is_best(cell, column, rivals), unstable)


def _is_best(cell: SeriesAtLoad, column: Column, rivals: Sequence[SeriesAtLoad]) -> bool:
    """Return True if a cell beats each rival at the load, as printed and beyond the noise of seeds."""
    own = cell.spread(*column.keys)
    others = [(other, x.mean) for other in rivals if other is not cell and (x := other.spread(*column.keys))]
    is_comparable = len({other.runs[0].images for other in rivals}) == 1
    if not column.better or own is None or not others or not is_comparable:
        return False
    return all(
        column.better * (own.mean - theirs) > 0
        and column.text(own.mean) != column.text(theirs)
        and beyond_noise(cell, other, *column.keys)
        for other, theirs in others
    )


def _text(value: object) -> str:
    if value is None:
        return DASH
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
