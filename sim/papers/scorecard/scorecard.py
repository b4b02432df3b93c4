"""Make the scorecard: run the experiments, compare with the targets, write the files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TypeVar

from mezzotint.figures.page import number
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Point, Runs, finish, sweep, with_hits
from mezzotint.sim.papers.scorecard import page
from mezzotint.sim.papers.scorecard.columns import MECHANISM, Column, ColumnTrace, follows_from, read_columns
from mezzotint.sim.papers.scorecard.figure import figures
from mezzotint.sim.papers.scorecard.measures import modm, nirvana, patchedserve, swiftdiffusion, tetriserve
from mezzotint.sim.papers.scorecard.measures.formulas import TargetMeasure, load_measures
from mezzotint.sim.papers.scorecard.measures.interpretations import EXPERIMENTS as INTERPRETED
from mezzotint.sim.papers.scorecard.measures.interpretations import Interpretation, measure
from mezzotint.sim.papers.scorecard.measures.observations import Observation, observe
from mezzotint.sim.papers.scorecard.rows import Row, rejudge, score
from mezzotint.sim.papers.scorecard.targets import (
    Layers,
    Reasons,
    Targets,
    load_layers,
    load_reasons,
    load_targets,
    reasons_of,
)
from mezzotint.sim.papers.study import Comparison, read_data
from mezzotint.sim.report.pages import image_file, write_page
from mezzotint.sim.run.commands import COMMANDS
from mezzotint.sim.run.pool import Launcher

DATA = Path(str(resources.files("mezzotint.conf"))) / "data"

MEASURES: Mapping[str, TargetMeasure] = load_measures(
    DATA / "scorecard-measures.yaml",
    {
        **nirvana.MEASURES,
        **modm.MEASURES,
        **patchedserve.MEASURES,
        **swiftdiffusion.MEASURES,
        **tetriserve.MEASURES,
    },
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
        layers: the layer of each target, and the declared hits.
        tolerances: where the tolerance of each target comes from, by its id.
    """

    targets: Targets
    measures: Mapping[str, TargetMeasure]
    reasons: Reasons
    overrides: Mapping[str, Sequence[str]]
    form: str
    with_interpretations: bool = False
    layers: Layers = field(default_factory=Layers)
    tolerances: Mapping[str, str] = field(default_factory=dict)

    def experiments(self, column: ColumnTrace | None = None) -> list[str]:
        """Return the experiments of the targets, of all or of a column's, each once.

        The built-in trace has none of those that need real prompts.
        """
        targets = self.targets if column is None else column.targets(self.targets, self.layers)
        synthetic = column is not None and column.path is None
        ids = [target.id for listed in targets.values() for target in listed]
        measured = [self.measures[each] for each in ids if each in self.measures]
        named = [name for each in measured if not (synthetic and each.real_prompts) for name in each.experiments]
        return list(dict.fromkeys([*named, *(INTERPRETED if self.is_interpreted(column) else ())]))

    def is_interpreted(self, column: ColumnTrace | None) -> bool:
        """Return True if a column, or any, has NIRVANA's alternative interpretations and observations."""
        return self.with_interpretations and (column is None or (column.layer == "ground" and column.encoder is None))

    def points(self, column: ColumnTrace) -> list[Point]:
        """Return the runs of a column; a column of the mechanism declares the hits of those whose cache may be."""
        simulated = {
            name for each in self.layers.both if each in self.measures for name in self.measures[each].experiments
        }
        papers = {
            name: paper
            for paper, listed in self.targets.items()
            for target in listed
            if target.id in self.measures
            for name in self.measures[target.id].experiments
        }
        found = []
        for name in self.experiments(column):
            points = sweep(name, column.overrides(name, self.overrides.get(name, ())))
            declared = column.layer == "mechanism" and name not in simulated
            hits = self.layers.hits.get(papers.get(name, ""), {}) if declared else {}
            found += [with_hits(point, hits) for point in points] if hits else points
        return found


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A finished scorecard: a column for each trace, and the commands that failed by their error."""

    study: Study
    columns: list[Column]
    failed: dict[str, list[str]]


def load_study(system: str | None, *, quick: bool) -> Study:
    """Load the project's targets of one system or all. Raises ConfigError: no such system, or a malformed file."""
    targets = load_targets(DATA / "targets.yaml")
    reasons = load_reasons(DATA / "scorecard-reasons.yaml", targets)
    layers = load_layers(DATA / "scorecard-layers.yaml", targets)
    tolerances: dict[str, str] = read_data(DATA / "scorecard-tolerances.yaml", dict[str, str])
    if system is not None:
        if system not in targets:
            studies = ", ".join(words.partition(" ")[2] for words in COMMANDS if words.startswith("reproduce "))
            raise ConfigError(
                f"reproduce: found the system {system!r}, expected one of {', '.join(targets)}, or, as the first word "
                f"after reproduce, another study: {studies}"
            )
        targets = {system: targets[system]}
    if not quick:
        return Study(targets, MEASURES, reasons, {}, "in full", "nirvana" in targets, layers, tolerances)
    overrides = read_data(DATA / "scorecard-quick.yaml", dict[str, list[str] | None])
    excluded = {name for name, words in overrides.items() if words is None}
    measures = {name: measured for name, measured in MEASURES.items() if excluded.isdisjoint(measured.experiments)}
    added = {name: words for name, words in overrides.items() if words is not None}
    form = "quick form: small traces, for watching changes only"
    study = Study(targets, measures, reasons, added, form, layers=layers, tolerances=tolerances)
    for name in study.experiments():
        if name not in overrides:
            raise ConfigError(
                f"{DATA / 'scorecard-quick.yaml'}: found no experiment {name}, expected the overrides that make it "
                "quick, or null to leave it out; add it"
            )
    return study


BUILT_IN = (ColumnTrace(MECHANISM, layer="mechanism"), ColumnTrace())
"""The columns that need no trace file."""


def make(
    study: Study,
    work: Path,
    jobs: int = 1,
    traces: Sequence[ColumnTrace] = BUILT_IN,
    launcher: Launcher = "joblib",
) -> Scorecard:
    """Run the unfinished experiments under ``work``, with ``jobs`` processes of ``launcher``, and compare.

    There is a column for each trace.

    Raises:
        ConfigError: ``work`` cannot be used, or no target depends on the prompts of a trace.
        TraceError: the file of a trace cannot be read.
    """
    descriptions = [trace.describe() for trace in traces]  # refuses a file that is no trace before the runs
    columns, failed = [], dict[str, list[str]]()
    for trace, description in zip(traces, descriptions, strict=True):
        if not any(trace.targets(study.targets, study.layers).values()):
            if trace.path is not None:
                raise ConfigError(f"--trace: {', '.join(study.targets)} has no row that prompts decide; leave it out")
            continue
        runs = finish(study.points(trace), work, jobs, launcher)
        for point, error in runs.failed():
            failed.setdefault(error, []).append(point.command)
        columns.append(_column(study, trace, description, runs, work))
    return Scorecard(study, columns, failed)


def _column(study: Study, trace: ColumnTrace, description: str, runs: Runs, work: Path) -> Column:
    overrides = {
        name: [trace.without_path(word) for word in trace.overrides(name, study.overrides.get(name, ()))]
        for name in study.experiments()
    }
    reasons, targets = reasons_of(trace.name, study.reasons), trace.targets(study.targets, study.layers)
    rows = score(targets, study.measures, runs, reasons, overrides, study.layers, study.tolerances)
    interpreted = study.is_interpreted(trace)
    readings = measure(runs) if interpreted else []
    observations = observe(runs.of(["nirvana-table2"]), work) if interpreted else []

    def without_paths(listed: Sequence[T]) -> list[T]:
        return [replace(each, reason=each.reason and trace.without_path(each.reason)) for each in listed]

    return Column(
        trace.name,
        description,
        follows_from(study.overrides),
        without_paths(rows),
        trace.layer,
        without_paths(readings),
        without_paths(observations),
    )


def add_earlier_columns(made: Scorecard, before: Path) -> tuple[Scorecard, list[str]]:
    """Add to ``made`` the columns that only the earlier scorecard ``before`` (its JSON) has, and judge them again.

    Returns:
        The scorecard, and the names of the columns that were dropped: they come from other code or settings, or lack a
        target of their layer and a system that they have.
    """
    try:
        earlier = [each for each in read_columns(before) if each.name not in {column.name for column in made.columns}]
    except ConfigError:  # no scorecard, or one of an earlier layout
        return made, []
    now, reasons = follows_from(made.study.overrides), made.study.reasons
    columns, dropped = list(made.columns), []
    for column in earlier:
        rows, layers = {row.id: row for row in column.rows}, made.study.layers
        systems = {row.system for row in column.rows}
        targets = [
            target
            for name, listed in made.study.targets.items()
            for target in listed
            if name in systems and layers.includes(column.layer, target.id)
        ]
        if column.follows_from != now or any(target.id not in rows for target in targets):
            dropped.append(column.name)
            continue
        its_reasons = reasons_of(column.name, reasons)
        columns.append(replace(column, rows=[rejudge(rows[target.id], target, its_reasons) for target in targets]))
    first = [each.name for each in BUILT_IN]
    return replace(made, columns=sorted(columns, key=lambda each: [*first, each.name].index(each.name))), dropped


def write(made: Scorecard, folder: Path, name: str) -> None:
    """Write ``name``.md, .json and the figures of each system in ``folder``."""
    drawn = {
        system: {image_file(f"{name}-{part}"): figure for part, figure in parts.items()}
        for system, parts in figures(made.columns).items()
    }
    text = page.render(made.columns, made.study.form, {system: list(images) for system, images in drawn.items()})
    images = {image: figure for parts in drawn.values() for image, figure in parts.items()}
    write_page(folder, name, {"columns": [asdict(column) for column in made.columns]}, text, images)


def comparisons(columns: Sequence[Column]) -> dict[str, Comparison]:
    """Return the rows as --check compares them, by column and id."""
    found = {}
    for column in columns:
        for row in column.rows:
            ours = number(row.ours) + (f" ({row.reason})" if row.reason else "")
            expected = f"{row.what}: {number(row.paper)}"
            found[f"{column.name}: {row.id}"] = Comparison(expected, ours, row.verdict == "within tolerance")
    return found


def read_comparisons(before: Path, study: Study) -> dict[str, Comparison]:
    """Return the rows of the study's systems in the columns `BUILT_IN` of the scorecard ``before`` (its JSON).

    Raises ConfigError: the file is missing, is no scorecard, or has no such column.
    """
    names = [each.name for each in BUILT_IN]
    columns = read_columns(before)
    built_in = [column for column in columns if column.name in names]
    if not built_in:
        found = ", ".join(column.name for column in columns)
        expected = " and ".join(names)
        raise ConfigError(f"{before}: found the columns {found}, expected {expected}; make it once without --check")
    return comparisons(
        [replace(each, rows=[row for row in each.rows if row.system in study.targets]) for each in built_in]
    )
