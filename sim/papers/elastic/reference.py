"""Reference tables of a folder: workloads, costs, policies, and when every request started and finished."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint.sim.core.errors import ConfigError

Row = Mapping[str, str]

PARQUET = ".parquet"
"""Suffix of a table that is kept as Parquet instead of CSV."""

TOKEN_PIXELS = 16
"""Pixels of a side of the image for each token of a side of the latent."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one workload in the order of arrival; ``rows`` as in workload.csv, times in milliseconds."""

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class StepCost:
    """Milliseconds of the stages of a size class on some GPUs; ``stages_ms`` are those besides the steps, by name."""

    size_class: str
    gpus: int
    step_ms: float
    stages_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reference:
    """A folder of reference tables.

    Attributes:
        costs: of every size class and degree, without the other stages.
        stages_ms: size class -> milliseconds of the other stages by name; empty without stages.csv.
        sides: size class -> pixels of a side of its images.
        agreement: policy -> how exactly its tables can be expected to agree, in the folder's words.
        workloads: by name.
    """

    folder: Path
    costs: Sequence[StepCost]
    stages_ms: Mapping[str, Mapping[str, float]]
    sides: Mapping[str, int]
    agreement: Mapping[str, str]
    workloads: Mapping[str, Workload]

    def table(self, workload: str, policy: str) -> dict[str, Row] | None:
        """Return the table of a policy by request; None if the folder has none."""
        path = self.folder / workload / f"{policy}.csv"
        if not (path.is_file() or path.with_suffix(PARQUET).is_file()):
            return None
        return {row["request_id"]: row for row in read_rows(path)}


def read(folder: Path) -> Reference:
    """Read cost.csv, policies.csv, stages.csv if there is one, and every workload. Raises ConfigError."""
    cost_rows = read_rows(folder / "cost.csv", "size_class", "gpus", "step_ms")
    stages_ms: dict[str, dict[str, float]] = {}
    if (folder / "stages.csv").is_file():
        for row in read_rows(folder / "stages.csv", "stage", "size_class", "ms"):
            stages_ms.setdefault(row["size_class"], {})[row["stage"]] = number(row, "ms", folder / "stages.csv")
    policies = read_rows(folder / "policies.csv", "policy", "agreement")
    workloads = sorted({path.parent for end in (".csv", PARQUET) for path in folder.glob(f"*/workload{end}")})
    if not workloads:
        raise ConfigError(f"{folder}: found no WORKLOAD/workload.csv in it; name the folder of the reference tables")
    return Reference(
        folder,
        [
            StepCost(row["size_class"], int(row["gpus"]), number(row, "step_ms", folder / "cost.csv"), {})
            for row in cost_rows
        ],
        stages_ms,
        sides(cost_rows),
        {row["policy"]: row["agreement"] for row in policies},
        {inner.name: Workload(inner.name, workload_rows(inner / "workload.csv")) for inner in workloads},
    )


def published(folder: Path) -> tuple[list[StepCost], list[Row], dict[str, Workload]]:
    """Return costs, printed rows and workloads of the folder's ``published``; nothing if there is none."""
    inner = folder / "published"
    if not (inner / "rows.csv").is_file():
        return [], [], {}
    path = inner / "cost.csv"
    costs = []
    for row in read_rows(path, "size_class", "gpus", "step_ms"):
        others = {name.removesuffix("_ms"): number(row, name, path) for name in row if name.endswith("_ms")}
        costs.append(StepCost(row["size_class"], int(row["gpus"]), others.pop("step"), others))
    rows = read_rows(inner / "rows.csv", "workload", "policy", "rebuilt")
    names = dict.fromkeys(row["workload"] for row in rows)
    return costs, rows, {name: Workload(name, workload_rows(inner / f"workload_{name}.csv")) for name in names}


def sides(cost_rows: Sequence[Row]) -> dict[str, int]:
    """Return the pixels of a side by size class, from its tokens; without tokens 512, 1024, ..."""
    classes = dict.fromkeys(row["size_class"] for row in cost_rows)
    tokens = {row["size_class"]: int(row["tokens"]) for row in cost_rows if row.get("tokens")}
    return {
        name: TOKEN_PIXELS * isqrt(tokens[name]) if name in tokens else 512 * place
        for place, name in enumerate(classes, 1)
    }


def workload_rows(path: Path) -> list[Row]:
    """Return the rows of a workload. Raises ConfigError if a column is absent."""
    return read_rows(path, "request_id", "arrival_ms", "size_class", "steps", "deadline_ms")


def read_rows(path: Path, *needed: str) -> list[Row]:
    """Return the rows of a CSV file, or of the Parquet file in its place, as the CSV would have them.

    Raises:
        ConfigError: it cannot be read or lacks a column.
    """
    if not path.is_file() and path.with_suffix(PARQUET).is_file():
        path = path.with_suffix(PARQUET)
    try:
        rows = _parquet_rows(path) if path.suffix == PARQUET else _csv_rows(path)
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); name the folder of the reference tables") from None
    for name in _absent(rows, needed):
        raise ConfigError(f"{path}: found no column {name} or no row; expected the columns {', '.join(needed)}")
    return rows


def _csv_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _parquet_rows(path: Path) -> list[Row]:
    """Return the rows of a Parquet file as text; the text of a float is the shortest that gives it back exactly."""
    rows = pq.read_table(path).to_pylist()
    return [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]


def _absent(rows: Sequence[Row], needed: Sequence[str]) -> Iterator[str]:
    for name in needed:
        if not rows or rows[0].get(name) is None:
            yield name


def number(row: Row, name: str, path: Path) -> float:
    """Return a cell as a number. Raises ConfigError if it is none."""
    try:
        return float(row[name])
    except ValueError:
        raise ConfigError(f"{path}: {name}: found {row[name]!r}, expected a number; correct the file") from None
