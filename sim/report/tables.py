"""Numbers of the report's tables: comparison, assumptions and reproduction."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from mezzotint.figures.page import DASH, number
from mezzotint.sim.metrics.header import split_rows, unlike_work
from mezzotint.sim.metrics.served import runs_by_images
from mezzotint.sim.report.assumed import Stated, as_text, collect
from mezzotint.sim.report.compare import SeriesAtLoad, beyond_noise, cells, limit_name, slo_multiples
from mezzotint.sim.report.labels import Load, natural, short_value
from mezzotint.sim.report.runs import Run

QUALITY = ("quality", "factor_mean")
"""Quality of the served images over that of the large model's full runs: a speed-up may cost quality."""


_NAMING = ("work", "times")
"""Rows of the header whose numbers name something: they are not joined to ranges."""

_MAX_WORDS = 6
"""Phrases of a row of the header that are told apart in it."""

_PHRASES = re.compile(r"; (?![^()]*\))")
"""Between phrases: not in brackets."""

_MASK = "\0"
_NUMBER = re.compile(r"\d[\d,.]*(?<![.,])")


Facts = tuple[list[tuple[str, str]], list[tuple[str, tuple[str, ...]]]]
"""Rows (name, words), and rows that differ (name, words of each run)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed number of the comparison.

    Attributes:
        range: lowest and highest value over seeds, in words.
        best: True if no other system at that load reaches it.
        unstable: True if it depends on the trace's length, because the system is overloaded.
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
        settles: True if it converges on a longer trace even in overload.
        more: True if it is none of the quantities that decide, and stands in a table of its own.
    """

    title: str
    unit: str
    keys: tuple[str, ...]
    scale: float = 1.0
    better: int = 0
    settles: bool = True
    more: bool = False

    def text(self, value: float) -> str:
        """Return the value in three digits; a percentage with one decimal."""
        return f"{100 * value:.1f}" if self.unit == "%" else number(value * self.scale, 3)


def columns(runs: Sequence[Run]) -> list[Column]:
    """Return the comparison's columns that some run has a value for, one for each SLO limit.

    Quality always has a column, since readers look for it beside speed.
    """
    offered = [
        *(
            Column(f"Over {limit_name(name)}", "%", ("slo", name, "violation_rate"), better=-1, settles=False)
            for name in slo_multiples(runs)
        ),
        *(
            Column(f"Latency {name}", "s", ("latency_s", name), better=-1, settles=False, more=name == "mean")
            for name in ("p50", "p95", "p99", "mean")
        ),
        Column("Quality", "", QUALITY, better=1),
        Column("Cost per image", "US$", ("cost_usd", "per_image"), better=-1),
        Column("Throughput", "per min", ("throughput_rpm",), better=1, settles=False),
        Column("Throughput to last arrival", "per min", ("throughput_until_last_arrival_rpm",), better=1, more=True),
        Column("Cache hit rate", "%", ("cache", "hit_rate"), better=1),
        Column("Compute saved", "%", ("cache", "compute_saving"), better=1, more=True),
        Column("Cached age p50", "min", ("cache", "source_age_s", "p50"), scale=1 / 60, more=True),
        Column("Cached age in trace", "min", ("cache", "source_age_trace_s", "p50"), scale=1 / 60, more=True),
        Column("GPU busy", "%", ("gpu", "busy_fraction"), more=True),
        Column("Energy per image", "kJ", ("energy_j", "per_image"), scale=1e-3, better=-1, more=True),
    ]
    overloaded = any(run.is_overloaded for run in runs)
    return [
        column
        for column in offered
        if column.keys == QUALITY
        or (
            any(run.number(*column.keys) is not None for run in runs)
            and (overloaded or column.keys != ("throughput_until_last_arrival_rpm",))
        )
    ]


def comparison(runs: Sequence[Run]) -> list[tuple[SeriesAtLoad, list[Entry]]]:
    """Return the entries of ``columns`` for each series and load, by load.

    The best value at each load is marked if it exceeds the noise of seeds and all systems make the same images.
    """
    shown, grid = columns(runs), cells(runs)
    rivals = {cell.load: [other for other in grid if other.load == cell.load] for cell in grid}
    return [(cell, [_entry(cell, column, rivals[cell.load]) for column in shown]) for cell in grid]


def _gpu_kinds(run: Run) -> str:
    return " + ".join(map(short_value, run.gpu_kinds))


def gpus(cell: SeriesAtLoad) -> str:
    """Return the number and kinds of GPUs: "16 mi210"."""
    count, kinds = cell.mean("gpu", "count"), _gpu_kinds(cell.runs[0])
    return DASH if count is None else f"{number(count, 3)} {kinds}".rstrip()


def verdict(cell: SeriesAtLoad) -> str:
    """Say whether the system serves what is offered, and what it drops."""
    if not cell.mean("requests", "arrived") or cell.mean("requests", "completed") is None:
        return DASH
    if not cell.mean("requests", "completed"):
        return "completes no request"
    words = "overloaded" if cell.is_overloaded else "too short to tell" if cell.is_undecided else "below capacity"
    return words + (f", drops {share:.1%}" if (share := lost_share(cell)) > 0 else "")


def lost_share(cell: SeriesAtLoad) -> float:
    """Return the share of arrived requests that were not completed."""
    arrived, completed = cell.mean("requests", "arrived"), cell.mean("requests", "completed")
    return 1 - completed / arrived if arrived and completed is not None else 0.0


def different_images(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return (images with their basis, systems) if the runs make different images, else an empty list."""
    named = [(f"{run.system} on {kinds}" if (kinds := _gpu_kinds(run)) else run.system, run.models) for run in runs]
    return [(images, ", ".join(names)) for images, names in runs_by_images(named)]


def assumptions(runs: Sequence[Run]) -> list[Stated]:
    """Return the assumptions of all runs, each once, with the systems that rest on it."""
    return collect(runs, lambda run: run.summary, lambda members: _systems_text(members, runs))


def _systems_text(members: Sequence[Run], runs: Sequence[Run]) -> str:
    """Return the systems of `members`, with the number of runs of each that lacks some; empty for all."""
    if len(members) == len(runs):
        return ""
    counts, totals = (Counter(run.family or run.series for run in group) for group in (members, runs))
    names = sorted(counts, key=natural)
    parts = (
        name if counts[name] == totals[name] else f"{counts[name]} of {totals[name]} runs of {name}" for name in names
    )
    return ", ".join(parts)


def facts(runs: Sequence[Run], decides: Mapping[tuple[str, Load], str] = MappingProxyType({})) -> Facts:
    """Return the rows of the runs' headers in one, and those that differ with the words of each run, in order.

    Phrases that differ in numbers alone are one, with the range of each number. A phrase that not all runs have names
    its systems.

    Args:
        decides: what results rest on, by series and load, where reruns have found it.
    """
    found_by = [decides.get((run.series, run.load)) for run in runs]
    abouts = [
        replace(run.header, rests_on=text) if text else run.header for run, text in zip(runs, found_by, strict=True)
    ]
    differing = dict(split_rows(abouts)[1])
    rows = []
    for name, text in abouts[0].rows:
        if values := differing.get(name):
            said = [(phrase, run) for words, run in zip(values, runs, strict=True) for phrase in _PHRASES.split(words)]
            phrases = [phrase for phrase, _ in said]
            members = _by_words(phrases if name in _NAMING else _with_ranges(phrases), [run for _, run in said], runs)
            parts = [f"{words or DASH} ({systems})" if systems else words for words, systems in members.items()]
            more = [f"{len(parts) - _MAX_WORDS} more below"] if len(parts) > _MAX_WORDS else []
            text = "; ".join(parts[:_MAX_WORDS] + more)
        rows.append((name, text))
    return [(name, text) for name, text in rows if text], list(differing.items())


def _with_ranges(values: Sequence[str]) -> list[str]:
    """Return texts in which a number has the range that it has in all texts that differ from it in numbers alone."""
    alike: dict[str, list[list[str]]] = {}
    for text in values:
        alike.setdefault(_NUMBER.sub(_MASK, text), []).append(_NUMBER.findall(text))
    ranges = {
        mask: [sorted(set(column), key=natural) for column in zip(*rows, strict=True)] for mask, rows in alike.items()
    }
    return ["".join(_fill_mask(mask, ranges[mask])) for mask in (_NUMBER.sub(_MASK, text) for text in values)]


def _fill_mask(mask: str, ranges: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the parts of a text whose numbers are masked, with their ranges."""
    for text, ends in zip(mask.split(_MASK), [*ranges, ()], strict=True):
        yield text
        yield " to ".join(dict.fromkeys([*ends[:1], *ends[-1:]]))


def _by_words(phrases: Sequence[str], speakers: Sequence[Run], runs: Sequence[Run]) -> dict[str, str]:
    """Return the systems of each phrase, whose runs are the ``speakers``."""
    runs_of: dict[str, dict[str, Run]] = {}
    for words, run in zip(phrases, speakers, strict=True):
        runs_of.setdefault(words, {})[run.name] = run
    return {words: _systems_text(list(members.values()), runs) for words, members in runs_of.items()}


def reproduction(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return (run, series, load, seed, trace, digest) of each run: equal ones give equal bytes."""
    rows = []
    for run in runs:
        trace = run.summary["trace"] or {}
        facts = (run.summary["seed"], trace.get("name"), trace.get("digest"))
        rows.append((run.name, run.series, run.load.label, *map(as_text, facts)))
    return rows


def quality_notes(runs: Sequence[Run]) -> dict[str, str]:
    """Return what summaries say of quality factors: the score, and what one above 1 means, each with its systems."""
    systems_of: dict[str, set[str]] = {}
    for run in runs:
        quality = run.summary.get("quality") or {}
        said = (f"compares {quality['score']}" if quality.get("score") else None, quality.get("note"))
        for text in filter(None, said):
            systems_of.setdefault(as_text(text), set()).add(run.family or run.series)
    return {text: ", ".join(sorted(names, key=natural)) for text, names in systems_of.items()}


def unknown_quality(runs: Sequence[Run]) -> dict[str, str]:
    """Return the reasons why quality is unknown, each with its systems."""
    systems_of: dict[str, set[str]] = {}
    for run in runs:
        if run.number(*QUALITY) is None:
            quality = run.summary.get("quality")
            quality = quality if isinstance(quality, Mapping) else {}
            reason = quality.get("reason") or quality.get("basis") or "the run gives no reason"
            systems_of.setdefault(as_text(reason), set()).add(run.family or run.series)
    return {reason: ", ".join(sorted(names, key=natural)) for reason, names in systems_of.items()}


def _entry(cell: SeriesAtLoad, column: Column, rivals: Sequence[SeriesAtLoad]) -> Entry:
    value = cell.spread(*column.keys)
    if value is None:
        return Entry(DASH)
    low, high = column.text(value.low), column.text(value.high)
    spread = f"{low} to {high}" if low != high else ""
    unstable = cell.is_overloaded and not column.settles
    return Entry(column.text(value.mean), spread, _is_best(cell, column, rivals), unstable)


def _is_best(cell: SeriesAtLoad, column: Column, rivals: Sequence[SeriesAtLoad]) -> bool:
    """Return True if a cell beats each rival at the load, as printed and beyond the noise of seeds."""
    mean = cell.mean(*column.keys)
    others = [
        (rival, value) for rival in rivals if rival is not cell and (value := rival.mean(*column.keys)) is not None
    ]
    is_comparable = not unlike_work([rival.runs[0].header for rival in rivals])
    if not column.better or mean is None or not others or not is_comparable:
        return False
    return all(
        column.better * (mean - theirs) > 0
        and column.text(mean) != column.text(theirs)
        and beyond_noise(cell, rival, *column.keys)
        for rival, theirs in others
    )
