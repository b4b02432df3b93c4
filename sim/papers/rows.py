"""Typed rows of a published log or table: a CSV file, or a Parquet file in its place."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from mezzotint.files.validation import first_error
from mezzotint.sim.core.errors import ConfigError

Row = TypeVar("Row")

Cells = Mapping[str, Any]
"""The filled cells of a row by column."""

PARQUET = ".parquet"


def read_rows(path: Path, form: type[Row]) -> list[Row]:
    """Return the rows of ``path`` as the dataclass ``form``; other columns are ignored.

    Raises:
        ConfigError: the file cannot be read or has no rows, or a row is not of the form.
    """
    rows = [to_row(f"{path}: row {number}", cells, form) for number, cells in enumerate(read_cells(path), start=1)]
    if not rows:
        raise ConfigError(f"{path}: found no rows, expected a header and at least one row; name another file")
    return rows


def read_cells(path: Path) -> list[Cells]:
    """Return the filled cells of each row of a CSV file, or of the Parquet file of that name in its place.

    Raises ConfigError: the file cannot be read.
    """
    if not path.is_file() and path.with_suffix(PARQUET).is_file():
        path = path.with_suffix(PARQUET)
    rows: list[dict[str, Any]]
    try:
        if path.suffix == PARQUET:
            rows = pq.read_table(path).to_pylist()
        else:
            rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"{path}: cannot be read as a table ({reason}); name another file") from None
    return [_drop_empty(row) for row in rows]


def _drop_empty(row: Cells) -> Cells:
    plain = {name: " ".join(cell.split()) if isinstance(cell, str) else cell for name, cell in row.items() if name}
    return {name: cell for name, cell in plain.items() if cell not in ("", None)}


def to_row(where: str, cells: Cells, form: type[Row]) -> Row:
    """Return ``cells`` as ``form``. Raises ConfigError: one is wrong; ``where`` they are is for the message."""
    try:
        return TypeAdapter(form).validate_python(cells)
    except ValidationError as error:
        place = ", column" if error.errors()[0]["loc"] else ":"
        raise ConfigError(f"{where}{place} {first_error(error)}; correct it") from None


def measured(row: object, names: Sequence[str]) -> dict[str, float]:
    """Return the columns NAME_s of ``row`` by name, as far as they are known."""
    values = {name: getattr(row, f"{name}_s") for name in names}
    return {name: value for name, value in values.items() if value is not None}
