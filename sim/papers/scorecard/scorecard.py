"""Make the scorecard: run the experiments, compare with the targets, write the files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure

from mezzotint.figures.page import number
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import finish
from mezzotint.sim.papers.scorecard import page
from mezzotint.sim.papers.scorecard.columns import MECHANISM, SYNTHETIC, ColumnTrace
from mezzotint.sim.papers.scorecard.curves import compare, draw
from mezzotint.sim.papers.scorecard.figure import figures
from mezzotint.sim.papers.scorecard.measures.interpretations import Interpretation, interpret
from mezzotint.sim.papers.scorecard.measures.observations import Observation, observe
from mezzotint.sim.papers.scorecard.rows import Column, Row, not_made, read_columns, rejudge, score
from mezzotint.sim.papers.scorecard.study import Study
from mezzotint.sim.papers.study import Comparison
from mezzotint.sim.report.pages import image_file, write_page
from mezzotint.sim.run import run_key as key
from mezzotint.sim.run.pool import Launcher

BUILT_IN = (ColumnTrace(MECHANISM, layer="mechanism"), ColumnTrace())
"""The columns that need no trace file."""

T = TypeVar("T", Interpretation, Observation)


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A finished scorecard: a column for each trace, and the commands that failed by their error."""

    study: Study
    columns: list[Column]
    failed: dict[str, list[str]]


def make(
    study: Study,
    work: Path,
    jobs: int = 1,
    traces: Sequence[ColumnTrace] = BUILT_IN,
    launcher: Launcher = "joblib",
    earlier: Sequence[Column] = (),
) -> Scorecard:
    """Run the unfinished experiments under ``work``, with ``jobs`` processes of ``launcher``, and compare.

    There is a column for each trace.

    Args:
        earlier: columns to which `add_earlier_columns` will add this scorecard.

    Raises:
        ConfigError: ``work`` cannot be used, no target depends on the prompts of a trace, or other papers' rows of an
            ``earlier`` column come from another trace.
        TraceError: the file of a trace cannot be read.
    """
    descriptions = [trace.describe() for trace in traces]  # refuses a file that is no trace before the runs
    for trace, description in zip(traces, descriptions, strict=True):
        if trace.path is not None:
            _refuse_another_trace(trace.name, description, study, earlier)
    columns, failed = [], dict[str, list[str]]()
    for trace, description in zip(traces, descriptions, strict=True):
        if not any(study.in_column(trace).values()):
            if trace.path is not None:
                raise ConfigError(f"--trace: {', '.join(study.targets)} has no row that prompts decide; leave it out")
            continue
        runs = finish(study.points(trace), work, jobs, launcher)
        for point, error in runs.failed():
            failed.setdefault(error, []).append(point.command)
        rows, today = score(study, trace, runs), date.today().isoformat()
        column = Column(trace.name, description, follows_from(study), rows, trace.layer, today)
        if study.is_interpreted(trace):
            observations = observe(runs.of(["nirvana-table2"]), work)
            column.readings.extend(_without_path(trace, interpret(runs)))
            column.observations.extend(_without_path(trace, observations))
        columns.append(column)
    return Scorecard(study, columns, failed)


def _refuse_another_trace(name: str, description: str, study: Study, earlier: Sequence[Column]) -> None:
    """Refuse to add rows to an earlier column of this name if it keeps rows of another trace. Raises ConfigError."""
    for column in earlier:
        papers = sorted({row.system for row in column.rows} - study.targets.keys())
        if column.name == name and column.trace != description and papers:
            raise ConfigError(
                f"--trace: found {description} for the column {name!r}, whose rows of {', '.join(papers)} are of "
                f"{column.trace}; choose another --name, or leave out SYSTEM to make the whole column anew"
            )


def _without_path(trace: ColumnTrace, listed: Sequence[T]) -> list[T]:
    return [replace(result, reason=result.reason and trace.without_path(result.reason)) for result in listed]


def follows_from(study: Study) -> str:
    """Return the digest, 16 hex digits, of arithmetic, settings and form: all that sets a column except its trace."""
    overrides = {name: list(words) for name, words in study.overrides.items()}
    return key.combine(key.arithmetic(), key.settings(), overrides)


def add_earlier_columns(
    made: Scorecard, earlier: Sequence[Column], whole: Study
) -> tuple[list[Column], dict[str, list[str]]]:
    """Add to ``made`` the rows and columns that only the ``earlier`` scorecard has, and judge them again.

    Args:
        whole: all papers' targets, some of which ``made`` has.

    Returns:
        The scorecard, and by column the papers whose added rows come from other code or settings, which the page says.
    """
    now, columns = follows_from(made.study), {column.name: column for column in made.columns}
    for column in earlier:
        columns[column.name] = _with_earlier_rows(columns.get(column.name) or replace(column, rows=[]), column, whole)
    older = {
        column.name: list(dict.fromkeys(row.system for row in column.rows if row.made or column.follows_from != now))
        for column in columns.values()
    }
    first = [trace.name for trace in BUILT_IN]
    ordered = sorted(columns.values(), key=lambda column: [*first, column.name].index(column.name))
    return ordered, {name: papers for name, papers in older.items() if papers}


def _with_earlier_rows(column: Column, earlier: Column, whole: Study) -> Column:
    """Return ``column`` with the papers that only ``earlier`` has. Rows of other code or settings get their age."""
    new, rows = {row.system for row in column.rows}, {row.id: row for row in earlier.rows}
    old = {row.system for row in earlier.rows} - new
    is_same = earlier.follows_from == column.follows_from
    age = "" if is_same else f"{earlier.made or 'no date'}, code and settings {earlier.follows_from}"
    listed: list[Row] = []
    for system, targets in whole.in_layer(earlier.layer).items():
        listed += [row for row in column.rows if row.system == system]
        for target in targets if system in old else ():
            entry, row = whole.entry(target.id), rows.get(target.id)
            again = (
                rejudge(row, target, entry, entry.reason_in(column.name)) if row else not_made(system, target, entry)
            )
            listed.append(replace(again, made=again.made or age))
    return replace(
        column,
        rows=listed,
        readings=column.readings or earlier.readings,
        observations=column.observations or earlier.observations,
    )


def write(columns: Sequence[Column], study: Study, folder: Path, name: str) -> None:
    """Write ``name``.json, the pages and the figures of each system in ``folder``; ``study`` names form and inputs."""
    drawn: dict[str, dict[str, Figure | None]] = {
        system: {image_file(f"{name}-{part}"): figure for part, figure in parts.items()}
        for system, parts in figures(columns).items()
    }
    for system, listed in study.curves.items():
        for column in columns:
            if column.name in (MECHANISM, SYNTHETIC) and system in drawn:
                end = "-ground-curves" if column.layer == "ground" else "-curves"
                compared = compare(listed, {row.id: row for row in column.rows})
                drawn[system][image_file(f"{name}-{system}{end}")] = draw(compared)
    text, more = page.render(
        columns,
        study,
        name,
        {system: [image for image, figure in images.items() if figure is not None] for system, images in drawn.items()},
    )
    images = {image: figure for parts in drawn.values() for image, figure in parts.items()}
    write_page(folder, name, {"columns": [asdict(column) for column in columns]}, text, images, more)


def comparisons(columns: Sequence[Column]) -> dict[str, Comparison]:
    """Return the rows as --check compares them, by column and id."""
    return {
        f"{column.name}: {row.id}": Comparison(
            f"{row.what}: {number(row.paper)}",
            number(row.ours) + (f" ({row.reason})" if row.reason else ""),
            row.verdict == "within tolerance",
        )
        for column in columns
        for row in column.rows
    }


def read_comparisons(before: Path, study: Study) -> dict[str, Comparison]:
    """Return the rows of the study's systems in the columns `BUILT_IN` of the scorecard ``before`` (its JSON).

    Raises ConfigError: the file is missing, is no scorecard, or has no such column.
    """
    names, columns = [trace.name for trace in BUILT_IN], read_columns(before)
    built_in = [column for column in columns if column.name in names]
    if not built_in:
        present, expected = ", ".join(column.name for column in columns), " and ".join(names)
        raise ConfigError(f"{before}: found the columns {present}, expected {expected}; make it once without --check")
    return comparisons(
        [replace(column, rows=[row for row in column.rows if row.system in study.targets]) for column in built_in]
    )
