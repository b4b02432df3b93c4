"""The whole scorecard: from what is to be compared to the files that say how it went."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TypeVar

from conf.page import number
from sim.core.errors import ConfigError
from sim.papers.scorecard import modm, nirvana, page, patchedserve, swiftdiffusion
from sim.papers.scorecard.columns import SYNTHETIC, Column, Feed, follows_from, read_columns
from sim.papers.scorecard.figure import draw
from sim.papers.scorecard.finished import Runs
from sim.papers.scorecard.measures import Measured, load_measures
from sim.papers.scorecard.observations import Observation, observe
from sim.papers.scorecard.points import sweep
from sim.papers.scorecard.readings import EXPERIMENTS as READ
from sim.papers.scorecard.readings import Reading, measure
from sim.papers.scorecard.rows import Row, judged_again, score
from sim.papers.scorecard.runner import finish
from sim.papers.scorecard.targets import Reasons, Targets, load_reasons, load_targets, read_data, reasons_of
from sim.papers.verdicts import Judged
from sim.report.pages import write_page
from sim.run.commands import COMMANDS

DATA = Path(str(resources.files("conf"))) / "data"

MEASURES: Mapping[str, Measured] = load_measures(
    DATA / "scorecard-measures.yaml",
    {**nirvana.MEASURES, **modm.MEASURES, **patchedserve.MEASURES, **swiftdiffusion.MEASURES},
)
"""Of all systems."""

T = TypeVar("T", Row, Reading, Observation)


@dataclass(frozen=True, slots=True)
class Study:
    """What is to be compared: targets by system, measures and reasons by target id.

    Attributes:
        overrides: experiment -> what is set beside its own settings.
        form: what this form of the scorecard is, in words.
        beside: whether other readings of the paper and what it saw in its traffic are looked at too.
    """

    targets: Targets
    measures: Mapping[str, Measured]
    reasons: Reasons
    overrides: Mapping[str, Sequence[str]]
    form: str
    beside: bool = False

    def experiments(self, *, made_up: bool = False) -> list[str]:
        """The experiments behind the targets, each once; ``made_up``: those that say something of made-up prompts."""
        ids = [target.id for listed in self.targets.values() for target in listed]
        measured = [self.measures[each] for each in ids if each in self.measures]
        named = [name for each in measured if not (made_up and each.real_prompts) for name in each.experiments]
        return list(dict.fromkeys([*named, *(READ if self.beside else ())]))


@dataclass(frozen=True, slots=True)
class Card:
    """A finished scorecard: a column for each trace, and the commands that could not be run by the error they met."""

    study: Study
    columns: list[Column]
    failed: dict[str, list[str]]

    @property
    def rows(self) -> list[Row]:
        """Those of the first column."""
        return self.columns[0].rows


def study(system: str | None, *, quick: bool) -> Study:
    """The project's own targets, of one system or all. Raises ConfigError: no such system, or a malformed file."""
    targets = load_targets(DATA / "targets.yaml")
    reasons = load_reasons(DATA / "scorecard-reasons.yaml", targets)
    if system is not None:
        if system not in targets:
            studies = ", ".join(words.partition(" ")[2] for words in COMMANDS if words.startswith("scorecard "))
            raise ConfigError(
                f"scorecard: found the system {system!r}, expected one of {', '.join(targets)}, or, as the first word "
                f"after scorecard, another study: {studies}"
            )
        targets = {system: targets[system]}
    if not quick:
        return Study(targets, MEASURES, reasons, {}, "in full", beside="nirvana" in targets)
    overrides = read_data(DATA / "scorecard-quick.yaml", dict[str, list[str] | None])
    skip_fraction = {name for name, words in overrides.items() if words is None}
    measures = {of: measured for of, measured in MEASURES.items() if skip_fraction.isdisjoint(measured.experiments)}
    set_beside = {name: words for name, words in overrides.items() if words is not None}
    said = Study(targets, measures, reasons, set_beside, "quick form: small traces, for watching changes only")
    for name in said.experiments():
        if name not in overrides:
            raise ConfigError(f"{DATA / 'scorecard-quick.yaml'}: {name} is missing; say what makes it quick")
    return said


def runs_of(study: Study, name: str, work: Path, jobs: int, leave_out: bool = False) -> Runs:
    """Run what is not finished of the experiment ``name``, with what ``study`` sets beside its own; see ``finish``.

    With ``leave_out``, an experiment that ``study`` sets nothing beside has no runs: it is too long for the quick form.
    """
    if leave_out and name not in study.overrides:
        print(f"{name}: left out of the quick form")
        return Runs(())
    return finish(sweep(name, study.overrides.get(name, ())), work, jobs)


def make(study: Study, work: Path, jobs: int = 1, feeds: Sequence[Feed] = (Feed(),)) -> Card:
    """Run what is not finished yet under ``work``, in ``jobs`` processes, and compare; a column for each feed.

    Raises:
        ConfigError: ``work`` cannot be used.
        TraceError: the file of a feed cannot be read.
    """
    said = [feed.said for feed in feeds]  # a file that is no trace is found before the work
    columns, failed = [], dict[str, list[str]]()
    for feed, of in zip(feeds, said, strict=True):
        points = [
            point
            for name in study.experiments(made_up=feed.path is None)
            for point in sweep(name, feed.overrides(name, study.overrides.get(name, ())))
        ]
        runs = finish(points, work, jobs)
        for point, error in runs.failed():
            failed.setdefault(error, []).append(point.command)
        columns.append(_column(study, feed, of, runs, work))
    return Card(study, columns, failed)


def _column(study: Study, feed: Feed, said: str, runs: Runs, work: Path) -> Column:
    overrides = {
        name: [feed.public(word) for word in feed.overrides(name, study.overrides.get(name, ()))]
        for name in study.experiments()
    }
    rows = score(study.targets, study.measures, runs, reasons_of(feed.name, study.reasons), overrides)
    read = measure(runs) if study.beside else []
    seen = observe(runs.of(["nirvana-table2"]), work) if study.beside else []

    def public(listed: Sequence[T]) -> list[T]:
        return [replace(one, reason=one.reason and feed.public(one.reason)) for one in listed]

    return Column(feed.name, said, follows_from(study.overrides), public(rows), public(read), public(seen))


def beside(card: Card, before: Path) -> tuple[Card, list[str]]:
    """``card`` with those columns of the scorecard ``before`` (its JSON) that it does not have itself.

    Their rows are judged anew. Returned beside it are the names of those that cannot stay: other code or settings made
    them, or they lack a target.
    """
    try:
        known = [each for each in read_columns(before) if each.name not in {mine.name for mine in card.columns}]
    except ConfigError:  # there is none, or one of an earlier layout
        return card, []
    now, reasons = follows_from(card.study.overrides), card.study.reasons
    columns, dropped = list(card.columns), []
    for column in known:
        rows = {row.id: row for row in column.rows}
        targets = [target for listed in card.study.targets.values() for target in listed]
        if column.follows_from != now or any(target.id not in rows for target in targets):
            dropped.append(column.name)
            continue
        told = reasons_of(column.name, reasons)
        columns.append(replace(column, rows=[judged_again(rows[target.id], target, told) for target in targets]))
    return replace(card, columns=sorted(columns, key=lambda each: each.name != SYNTHETIC)), dropped


def write(card: Card, folder: Path, name: str) -> None:
    """Write ``name``.md, .json and .png in ``folder``, as ``write_page``; no figure where nothing was simulated."""
    figure, image = draw({column.name: column.rows for column in card.columns}), f"{name}.png"
    text = page.render(card.columns, card.study.form, image if figure else None)
    write_page(folder, name, {"columns": [asdict(column) for column in card.columns]}, text, {image: figure})


def judged(rows: Sequence[Row]) -> dict[str, Judged]:
    """Return the verdicts of rows for --check, by id."""
    ours = {row.id: number(row.ours) + (f" ({row.reason})" if row.reason else "") for row in rows}
    return {row.id: Judged(f"{row.what}: {number(row.paper)}", ours[row.id], row.verdict == "held") for row in rows}


def known(before: Path, study: Study) -> dict[str, Judged]:
    """Return the verdicts that the scorecard ``before`` (its JSON) has of the study's systems on the built-in trace.

    Raises ConfigError: there is no such scorecard, or it is not one, or it has no such column.
    """
    columns = {column.name: column.rows for column in read_columns(before)}
    if SYNTHETIC not in columns:
        others = ", ".join(columns)
        raise ConfigError(f"{before}: has no column {SYNTHETIC}, only {others}; make it once without --check")
    return judged([row for row in columns[SYNTHETIC] if row.system in study.targets])
