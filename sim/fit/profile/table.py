"""`mezzotint calibrate table`: profiles of one's own step times, from one table for many models and kinds of GPUs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import pyarrow as pa
from annotated_types import Gt, Le
from pydantic import ValidationError
from pydantic.dataclasses import dataclass
from typer import Argument, Option

from mezzotint.backends.base import BackendError
from mezzotint.backends.cells import wrong_cell
from mezzotint.backends.patched import MAX_S
from mezzotint.backends.profile import Profile, check_replaced, file_name, read, write
from mezzotint.files.atomic import output_folder
from mezzotint.files.validation import first_error
from mezzotint.settings.ranges import Count
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.rows import to_row
from mezzotint.traces.formats.cells import pointed
from mezzotint.traces.formats.opening import open_table
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin

Stage = Literal["step", "text_encode", "vae_encode", "vae_decode"]

Time = Annotated[float, Gt(0), Le(MAX_S)]

STATED = ("software", "version", "date", "dtype")
"""Columns with one value for each model and kind of GPU."""

SECONDS = ("step_s", "total_s")
"""Columns whose text may have a decimal comma."""

MAX_SPREAD = 1.5
"""Ratio of repeated times above which their range is stated: the first of a shape may have compiled it."""

ENCODED = ("text_encode", "vae_decode")
"""Stages of every request besides its steps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time.

    Attributes:
        steps: of the request, for ``total_s`` of a whole one.
        degree: GPUs that ran the step together.
        stage: what was timed; a step, or with ``total_s`` a whole request.
        step_s: seconds of one step of the whole batch.
        total_s: seconds of the whole request, or of the stage, of the whole batch.
    """

    model: str
    gpu: str
    width: Count | None = None
    height: Count | None = None
    frames: Count = 1
    steps: Count | None = None
    batch: Count = 1
    degree: Count = 1
    stage: Stage = "step"
    step_s: Time | None = None
    total_s: Time | None = None
    software: str | None = None
    version: str | None = None
    date: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if (self.step_s is None) == (self.total_s is None):
            raise ValueError("expected step_s or total_s, one of the two")
        if self.stage == "step" and self.step_s is None and self.steps is None:
            raise ValueError("expected steps beside total_s, to divide it by")
        if self.stage != "step" and self.total_s is None:
            raise ValueError(f"expected total_s, the seconds of {self.stage}")
        if self.stage != "step" and self.degree > 1:
            raise ValueError(f"expected no degree beside the stage {self.stage}; only steps on several GPUs are known")
        if self.stage != "text_encode" and (self.width is None or self.height is None):
            raise ValueError("expected width and height")

    @property
    def cell(self) -> tuple[str, dict[str, Any]]:
        """The list of a profile that the row belongs to, and the keys of its point."""
        if self.stage == "text_encode":
            return self.stage, {"batch": self.batch}
        keys = {"width": self.width, "height": self.height, "frames": self.frames, "batch": self.batch}
        return ("gang_step", {"gpus": self.degree} | keys) if self.degree > 1 else (self.stage, keys)

    @property
    def seconds(self) -> float:
        """Seconds of the point: a whole request's are divided by its steps."""
        if self.stage != "step":
            return float(self.total_s or 0.0)
        return self.step_s if self.step_s is not None else float(self.total_s or 0.0) / float(self.steps or 1)


def table(
    path: Annotated[Path, Argument(metavar="TABLE", help="CSV, Parquet, Arrow or JSON records, a time in each row")],
    output: Annotated[Path, Option("-o", "--output", metavar="FOLDER", help="folder of the profiles")],
    source: Annotated[
        str | None, Option(help="who measured the times, and how", show_default="the name of the table")
    ] = None,
) -> None:
    """Make profiles of your own step times, one for each model and GPU of a table. Repeated rows count by their mean.

    \b
    Columns: model, gpu, width, height, and step_s (seconds of a step of the whole batch) or total_s (of the whole
    request, with steps). Optional: frames, batch, degree (GPUs that work together), stage (step, text_encode,
    vae_encode or vae_decode, whose seconds are total_s), software, version, date, dtype.

    Raises:
        ConfigError, TraceError: the table cannot be read, or a row cannot be used.
    """
    rows = read_rows(path)
    made = [profile_of(path, cells, source) for cells in by_profile(rows)]
    files = [output / _file_name(path, profile) for profile in made]
    output_folder(output, ConfigError)
    for file, profile in zip(files, made, strict=True):
        check_replaced(file)
        _refuse_loss(path, profile, file)
    for profile, file in zip(made, files, strict=True):
        write(profile, file)
    for file, profile in zip(files, made, strict=True):
        print(f"{file}: {profile.notes}")


def _file_name(path: Path, profile: Profile) -> str:
    try:
        return file_name(profile.gpu, profile.model)
    except BackendError as error:
        raise ConfigError(f"{path}: columns gpu and model: {error}") from None


def _refuse_loss(path: Path, profile: Profile, file: Path) -> None:
    """Refuse to replace a profile that has times of other sizes, batches or stages. Raises ConfigError."""
    lost = sorted(_points(read(file)) - _points(profile)) if file.exists() else []
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise ConfigError(
            f"{path}: found no row of {lost[0]}{more}, which {file} has; put all rows into one table, or name another "
            "folder with -o"
        )


def _points(profile: Profile) -> set[str]:
    """Return the points of all stages of a profile, in words."""
    keys = {"component", "gpus", "width", "height", "frames", "batch"}
    return {
        " ".join([name, *(f"{key}={value}" for key, value in point.model_dump(include=keys).items())])
        for name, points in profile
        if isinstance(points, list)
        for point in points
    }


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table. Raises ConfigError naming the row and the column, or TraceError."""
    cells, _ = open_table(path, Limits())
    known = list(Row.__dataclass_fields__)
    names = {name: name.strip().lower() for name in cells.column_names}
    for name, plain in names.items():
        if plain not in known:
            raise ConfigError(f"{path}: found the column {name!r}; {suggest(plain, known)}; rename it or take it out")
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise ConfigError(f"{path}: found the column {twice[0]} twice, expected it once; take one out")
    cells = cells.rename_columns([names[name] for name in cells.column_names])
    for place, column in enumerate(cells.schema):
        if column.name in SECONDS and column.type == pa.string():
            plain = pointed(cells.column(place), Origin(str(path)), column.name)
            cells = cells.set_column(place, column, plain)
    rows = []
    for number, content in enumerate(cells.to_pylist(), 1):
        filled = {
            name: value.strip() if isinstance(value, str) else value
            for name, value in content.items()
            if value is not None and str(value).strip()
        }
        if filled:
            rows.append(to_row(f"{path}: row {number}", filled, Row))
    if not rows:
        raise ConfigError(f"{path}: found no rows, expected a header and a time in each row; name another file")
    return rows


def by_profile(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of each model and kind of GPU, in their order."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.gpu), []).append(row)
    return list(groups.values())


def profile_of(path: Path, rows: Sequence[Row], source: str | None) -> Profile:
    """Return the profile of the ``rows`` of one model and kind of GPU. Raises ConfigError."""
    first = rows[0]
    where = f"{path}: {first.model} on {first.gpu}"
    points: dict[str, dict[str, tuple[dict[str, Any], list[float]]]] = {}
    for row in rows:
        name, keys = row.cell
        points.setdefault(name, {}).setdefault(str(keys), (keys, []))[1].append(row.seconds)
    lists = {
        name: [keys | {"seconds": float(f"{fmean(seconds):.6g}")} for keys, seconds in cells.values()]
        for name, cells in points.items()
    }
    if not lists.get("step"):
        raise ConfigError(f"{where}: found no step on one GPU, expected one; add a row without stage and degree")
    content: dict[str, Any] = {name: _only(where, name, rows) for name in STATED}
    whole = any(row.stage == "step" and row.total_s is not None for row in rows)
    content |= {"schema": 1, "model": first.model, "gpu": first.gpu, "basis": "measured", "step": [], **lists}
    content |= {
        "source": source or f"{path.name}, {len(rows)} row{'s' * (len(rows) > 1)}",
        "notes": "; ".join([_notes(lists, whole), *_spreads(points)]),
    }
    try:
        profile = Profile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_error(error)}; correct the table") from None
    if wrong := wrong_cell(profile):
        raise ConfigError(f"{where}: {wrong}")
    return profile


def _only(where: str, name: str, rows: Sequence[Row]) -> str | None:
    """Return the one value of a column of all ``rows``. Raises ConfigError if there are several."""
    values = {getattr(row, name) for row in rows} - {None}
    if len(values) > 1:
        raise ConfigError(f"{where}: {name}: found {', '.join(sorted(values))}, expected one value; name two models")
    return next(iter(values), None)


def _spreads(points: Mapping[str, Mapping[str, tuple[dict[str, Any], list[float]]]]) -> Iterator[str]:
    """Yield the ranges of repeated times that differ much, in words."""
    for name, cells in points.items():
        for keys, seconds in cells.values():
            if max(seconds) > MAX_SPREAD * min(seconds):
                of = " ".join(f"{key}={value}" for key, value in keys.items())
                yield f"{name} {of} is the mean of {min(seconds):g} to {max(seconds):g} s"


def _notes(lists: dict[str, Any], whole: bool) -> str:
    absent = [stage for stage in ENCODED if stage not in lists]
    if not absent:
        return "every stage has its own time"
    if whole:
        return f"no times of {' and '.join(absent)}: they are inside the step where whole requests were timed, else 0 s"
    return f"no times of {' and '.join(absent)}: counted as 0 s; add rows with that stage, or time whole requests"
