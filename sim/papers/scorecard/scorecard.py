"""Make the scorecard: run the experiments, compare with the targets, write the files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TypeVar

from conf.page import number
from sim.core.errors import ConfigError
from sim.papers.scorecard import page
from sim.papers.scorecard.columns import SYNTHETIC, Column, ColumnTrace, follows_from, read_columns
from sim.papers.scorecard.figure import draw
from sim.papers.scorecard.measures import modm, nirvana, patchedserve, swiftdiffusion
from sim.papers.scorecard.measures.formulas import TargetMeasure, load_measures
from sim.papers.scorecard.measures.interpretations import EXPERIMENTS as INTERPRETED
from sim.papers.scorecard.measures.interpretations import Interpretation, measure
from sim.papers.scorecard.measures.observations import Observation, observe
from sim.papers.scorecard.rows import Row, rejudge, score
from sim.papers.scorecard.runs.finished import Runs
from sim.papers.scorecard.runs.points import sweep
from sim.papers.scorecard.runs.runner import finish
from sim.papers.scorecard.targets import Reasons, Targets, load_reasons, load_targets, read_data, reasons_of
from sim.papers.verdicts import Comparison
from sim.report.pages import write_page
from sim.run.commands import COMMANDS

DATA = Path(str(resources.files("conf"))) / "data"

MEASURES: Mapping[str, TargetMeasure] = load_measures(
    DATA / "scorecard-measures.yaml",
    {**nirvana.MEASURES, **modm.MEASURES, **patchedserve.MEASURES, **swiftdiffusion.MEASURES},
)
"""Measures of all systems, by target id."""

T = TypeVar("T", Row, Interpretation, Observation)


@dataclass(frozen=True, slots=True)
class Study:
    """Targets by system, with measures and reasons by target id.

    Attributes:
        overrides: by experiment, the settings that are added to its own.
        form: the form of the scorecard in words, such as "in full".
        with_interpretations: True if NIRVANA's alternative interpretations and its observations are included.
    """

    targets: Targets
    measures: Mapping[str, TargetMeasure]
    reasons: Reasons
    overrides: Mapping[str, Sequence[str]]
    form: str
    with_interpretations: bool = False

    def experiments(self, *, synthetic: bool = False) -> list[str]:
        """Return the experiments of the targets, each once; if ``synthetic``, without those that need real prompts."""
        ids = [target.id for listed in self.targets.values() for target in listed]
        measured = [self.measures[each] for each in ids if each in self.measures]
        named = [name for each in measured if not (synthetic and each.real_prompts) for name in each.experiments]
        return list(dict.fromkeys([*named, *(INTERPRETED if self.with_interpretations else ())]))


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A finished scorecard: a column for each trace, and the commands that failed by their error."""

    study: Study
    columns: list[Column]
    failed: dict[str, list[str]]

    @property
    def rows(self) -> list[Row]:
        """The rows of the first column."""
        return self.columns[0].rows


def load_study(system: str | None, *, quick: bool) -> Study:
    """Load the project's targets of one system or all. Raises ConfigError: no such system, or a malformed file."""
    targets = load_targets(DATA / "targets.yaml")
    reasons = load_reasons(DATA / "scorecard-reasons.yaml", targets)
    if system is not None:
        if system not in targets:
            studies = ", ".join(words.partition(" ")[2] for words in COMMANDS if words.startswith("reproduce "))
            raise ConfigError(
                f"reproduce: found the system {system!r}, expected one of {', '.join(targets)}, or, as the first word "
                f"after reproduce, another study: {studies}"
            )
        targets = {system: targets[system]}
    if not quick:
        return Study(targets, MEASURES, reasons, {}, "in full", with_interpretations="nirvana" in targets)
    overrides = read_data(DATA / "scorecard-quick.yaml", dict[str, list[str] | None])
    excluded = {name for name, words in overrides.items() if words is None}
    measures = {name: measured for name, measured in MEASURES.items() if excluded.isdisjoint(measured.experiments)}
    added = {name: words for name, words in overrides.items() if words is not None}
    study = Study(targets, measures, reasons, added, "quick form: small traces, for watching changes only")
    for name in study.experiments():
        if name not in overrides:
            raise ConfigError(
                f"{DATA / 'scorecard-quick.yaml'}: found no experiment {name}, expected the overrides that make it "
                "quick, or null to leave it out; add it"
            )
    return study


def runs_of(study: Study, name: str, work: Path, jobs: int, leave_out: bool = False) -> Runs:
    """Finish the runs of the experiment ``name``, with the overrides that ``study`` adds.

    With ``leave_out``, an experiment without overrides in ``study`` has no runs: it is too long for the quick form.
    """
    if leave_out and name not in study.overrides:
        print(f"{name}: left out of the quick form")
        return Runs(())
    return finish(sweep(name, study.overrides.get(name, ())), work, jobs)


def make(study: Study, work: Path, jobs: int = 1, traces: Sequence[ColumnTrace] = (ColumnTrace(),)) -> Scorecard:
    """Run the unfinished experiments under ``work``, in ``jobs`` processes, and compare; a column for each trace.

    Raises:
        ConfigError: ``work`` cannot be used.
        TraceError: the file of a trace cannot be read.
    """
    descriptions = [trace.describe() for trace in traces]  # refuses a file that is no trace before the runs
    columns, failed = [], dict[str, list[str]]()
    for trace, description in zip(traces, descriptions, strict=True):
        points = [
            point
            for name in study.experiments(synthetic=trace.path is None)
            for point in sweep(name, trace.overrides(name, study.overrides.get(name, ())))
        ]
        runs = finish(points, work, jobs)
        for point, error in runs.failed():
            failed.setdefault(error, []).append(point.command)
        columns.append(_column(study, trace, description, runs, work))
    return Scorecard(study, columns, failed)


def _column(study: Study, trace: ColumnTrace, description: str, runs: Runs, work: Path) -> Column:
    overrides = {
        name: [trace.without_path(word) for word in trace.overrides(name, study.overrides.get(name, ()))]
        for name in study.experiments()
    }
    rows = score(study.targets, study.measures, runs, reasons_of(trace.name, study.reasons), overrides)
    readings = measure(runs) if study.with_interpretations else []
    observations = observe(runs.of(["nirvana-table2"]), work) if study.with_interpretations else []

    def without_paths(listed: Sequence[T]) -> list[T]:
        return [replace(each, reason=each.reason and trace.without_path(each.reason)) for each in listed]

    parts = without_paths(rows), without_paths(readings), without_paths(observations)
    return Column(trace.name, description, follows_from(study.overrides), *parts)


def add_earlier_columns(made: Scorecard, before: Path) -> tuple[Scorecard, list[str]]:
    """Add to ``made`` the columns that only the earlier scorecard ``before`` (its JSON) has, and judge them again.

    Returns:
        The scorecard, and the names of the columns that were dropped: they come from other code or settings, or lack a
        target.
    """
    try:
        earlier = [each for each in read_columns(before) if each.name not in {column.name for column in made.columns}]
    except ConfigError:  # no scorecard, or one of an earlier layout
        return made, []
    now, reasons = follows_from(made.study.overrides), made.study.reasons
    columns, dropped = list(made.columns), []
    for column in earlier:
        rows = {row.id: row for row in column.rows}
        targets = [target for listed in made.study.targets.values() for target in listed]
        if column.follows_from != now or any(target.id not in rows for target in targets):
            dropped.append(column.name)
            continue
        its_reasons = reasons_of(column.name, reasons)
        columns.append(replace(column, rows=[rejudge(rows[target.id], target, its_reasons) for target in targets]))
    return replace(made, columns=sorted(columns, key=lambda each: each.name != SYNTHETIC)), dropped


def write(made: Scorecard, folder: Path, name: str) -> None:
    """Write ``name``.md, .json and .png in ``folder``; no figure if nothing was simulated."""
    figure, image = draw({column.name: column.rows for column in made.columns}), f"{name}.png"
    text = page.render(made.columns, made.study.form, image if figure else None)
    write_page(folder, name, {"columns": [asdict(column) for column in made.columns]}, text, {image: figure})


def comparisons(rows: Sequence[Row]) -> dict[str, Comparison]:
    """Return the rows as --check compares them, by id."""
    found = {}
    for row in rows:
        ours = number(row.ours) + (f" ({row.reason})" if row.reason else "")
        found[row.id] = Comparison(f"{row.what}: {number(row.paper)}", ours, row.verdict == "within tolerance")
    return found


def read_comparisons(before: Path, study: Study) -> dict[str, Comparison]:
    """Return the rows of the study's systems on the built-in trace from the scorecard ``before`` (its JSON).

    Raises ConfigError: the file is missing, is no scorecard, or has no such column.
    """
    columns = {column.name: column.rows for column in read_columns(before)}
    if SYNTHETIC not in columns:
        others = ", ".join(columns)
        raise ConfigError(f"{before}: found the columns {others}, expected {SYNTHETIC}; make it once without --check")
    return comparisons([row for row in columns[SYNTHETIC] if row.system in study.targets])
