"""A study under `mezzotint reproduce`: it runs, compares with what others published, and writes a page.

A study is a module: its inputs (a file in conf/data), what it runs and measures, its rows for --check, its figures, and
a template of the page beside it. `Study` does the rest. The content of the JSON file decides the page and the figures,
so that both can be made again from it.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from mezzotint.figures.page import render
from mezzotint.files.document import DocumentError, parse, parse_json
from mezzotint.files.validation import first_error
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.pages import image_file, write_page
from mezzotint.sim.run.config.options import RunsOn as RunsOn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Quick = Annotated[bool, typer.Option("--quick", help="small traces or a part of them, seconds; CI compares this form")]

Check = Annotated[
    bool,
    typer.Option("--check", help="write nothing, compare with DIR; status 1 if a row is no longer within tolerance"),
]

Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="worker processes")]

Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="folder to write to")]

Work = Annotated[Path, typer.Option(metavar="DIR", help="folder of the finished runs")]

Traces = Annotated[list[Path], typer.Option("--trace", metavar="FILE", help="Parquet file of a trace; may be repeated")]

Names = Annotated[
    list[str], typer.Option("--name", metavar="NAME", help="name of each --trace, in order [default: of the file]")
]

Encoders = Annotated[
    list[str],
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="another encoder: adds a column of NIRVANA's rows for each --trace; may be repeated",
    ),
]

RESULTS = Path("results")
RUNS = Path("results/runs/scorecard")

DATA = Path(str(resources.files("mezzotint.conf"))) / "data"
"""Folder of the inputs of studies."""

LOST = 1
"""Exit status of --check if a row is no longer within tolerance."""

Results = Mapping[str, Any]
"""The content of a study's JSON file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of a study.

    Attributes:
        expected: the measured or required value and its tolerance, in words.
        ours: the simulated value, in words.
        within_tolerance: True if ``ours`` is within the tolerance of ``expected``.
    """

    expected: str
    ours: str
    within_tolerance: bool


Comparisons = Mapping[str, Comparison]
"""Rows by name."""


def read_committed(path: Path, compare: Callable[[Results], Comparisons]) -> Comparisons:
    """Return the rows of the JSON file ``path``. Raises ConfigError: the file is missing, or not of this study."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return compare(parse_json(text))
    except (ValueError, LookupError, TypeError, AttributeError):
        wrong = "found no results of this study and version; make it again without --check"
        raise ConfigError(f"{path}: {wrong}") from None


def unreadable(path: Path, error: OSError) -> ConfigError:
    """Return the error of a --check that has nothing to compare with."""
    return ConfigError(
        f"{path}: cannot be read ({error.strerror}), and --check compares with it; name the results folder of a clone "
        "with -o, or make it once without --check"
    )


def row_lines(rows: Comparisons) -> Iterator[str]:
    """Yield each row in words."""
    for name, row in rows.items():
        yield f"{name}: expected {row.expected}, found {row.ours}{'' if row.within_tolerance else ', outside'}"


def lost_rows(before: Comparisons, now: Comparisons) -> list[str]:
    """Return a line for each row that was within tolerance ``before`` and is not ``now``."""
    lines = []
    for name, was in before.items():
        row = now.get(name)
        if was.within_tolerance and row is None:
            lines.append(f"{name}: was within tolerance, and the row is missing now")
        elif was.within_tolerance and row is not None and not row.within_tolerance:
            lines.append(
                f"{name}: no longer within tolerance: expected {row.expected}, found {row.ours}, before {was.ours}"
            )
    return lines


def report_lost(before: Comparisons, now: Comparisons) -> int:
    """Print each lost row on standard error, and return the exit status of --check."""
    lost = lost_rows(before, now)
    for line in lost:
        print(f"mezzotint: {line}", file=sys.stderr)
    count = sum(row.within_tolerance for row in now.values())
    print(f"{count} of {len(now)} rows within tolerance, {len(lost)} lost")
    return LOST if lost else 0


@dataclass(frozen=True, slots=True)
class Study:
    """One study.

    Attributes:
        name: the name of its files, and of its template NAME.md.jinja.
        comparisons: returns the rows of the JSON file's content, as --check compares them.
        draw: returns its figures by the end of their file names, such as "" or "-routing"; None removes an earlier one.
        values: returns what the template needs beside ``facts`` (the content) and ``images`` (names of the figures).
        lines: returns what the command prints; None prints the rows.
        parts: returns the names of the parts that files of the user's may add, such as the day of a --trace.
    """

    name: str
    comparisons: Callable[[Results], Comparisons]
    draw: "Callable[[Results], Mapping[str, Figure | None]]" = lambda _: {}
    values: Callable[[Results], Mapping[str, Any]] = lambda _: {}
    lines: Callable[[Results], Iterable[str]] | None = None
    parts: Callable[[Results], Iterable[str]] = lambda _: ()

    def write(self, facts: Results, folder: Path, stem: str = "") -> None:
        """Write the page, the JSON file of ``facts`` and the figures; ``stem`` names them, by default the study does.

        Raises:
            ConfigError: a file cannot be written.
        """
        stem = stem or self.name
        figures = {image_file(stem + end): figure for end, figure in self.draw(facts).items()}
        values = self.values(facts)
        text = render(__package__, f"{self.name}.md.jinja", facts=facts, images=[*figures], **values)
        write_page(folder, stem, facts, text, figures)

    def refuse_loss(self, folder: Path, made: Iterable[str], *, quick: bool = False) -> None:
        """Refuse, before the work, to write in ``folder`` over a study with other ``parts`` than ``made``.

        Raises:
            ConfigError: there are such parts.
        """
        path = folder / f"{self.name}{'-quick' * quick}.json"
        try:
            before = {*self.parts(parse_json(path.read_bytes()))}
        except (OSError, ValueError, LookupError, TypeError):  # there is none, or it is of another version
            return
        if lost := sorted(before.difference(made)):
            more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
            raise ConfigError(
                f"{path}: has {', '.join(lost[:3])}{more}, which this command does not make; give their file too, name "
                "another folder with -o, or remove the page's files first"
            )

    def reproduce(
        self, measure: Callable[[], Results], output: Path, *, check: bool = False, quick: bool = False
    ) -> int:
        """Measure, write the study in ``output``, and print the lines; with ``check`` compare with its JSON file there.

        Returns:
            The exit status: 0, or LOST if a row is no longer within tolerance.

        Raises:
            ConfigError: the measurement failed, or a file cannot be read or written.
        """
        stem = f"{self.name}-quick" if quick else self.name
        before = read_committed(output / f"{stem}.json", self.comparisons) if check else {}
        facts: Results = json.loads(json.dumps(measure()))  # as read from the file
        if not check:
            self.write(facts, output, stem)  # before a reader such as head closes standard output
        print(*(self.lines(facts) if self.lines else row_lines(self.comparisons(facts))), sep="\n")
        return report_lost(before, self.comparisons(facts)) if check else 0


def read_data(path: Path, form: Any) -> Any:
    """Read a YAML file as the type ``form``. Raises ConfigError: unreadable, no YAML, or of another type."""
    try:
        return TypeAdapter(form).validate_python(parse(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); put the file there") from None
    except DocumentError as error:
        raise ConfigError(f"{path}: is not valid YAML ({error}); correct the file") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_error(error)}; correct the file") from None


def committed(oracle: str, what: str, source: str) -> Path:
    """Print the ``source`` of the folder ``oracle`` of the clone that this code runs from, and return the folder.

    Args:
        what: what the folder holds, for the error.

    Raises:
        ConfigError: this code runs from no clone.
    """
    folder = Path(__file__).resolve().parents[2] / oracle
    if not folder.is_dir():
        raise ConfigError(
            f"DIR: found none, and {oracle} is in a clone of the repository alone; name a folder of {what}, or run "
            "this in a clone"
        )
    print(f"{oracle}: {source}")
    return folder
