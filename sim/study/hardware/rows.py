"""What was measured on real machines: MLPerf's server submissions, and llm-d's routing benchmark."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sim.errors import ConfigError

MEASURES = ("mean", "p50", "p90", "p95", "p97", "p99", "p999", "min", "max")
"""Of a submission's latencies, as its log has them."""

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p999": 0.999}

MEASURED = ("mean", "p95", "p99")
"""Of a routed run's latencies, as its report has them."""

File = Path | Traversable


@dataclass(frozen=True, slots=True)
class Submission:
    """One run of MLPerf Inference's SDXL server scenario: what was set, and what its log says.

    Attributes:
        name: round, division, submitter and system, as they must be cited.
        offline_images_per_s: of the same system, all GPUs together, in batches that are full; None where not known.
        seed, target_qps, least_requests, least_s: of the load generator; see traces.arrivals.loadgen.
        scheduled_qps: what the generator issued.
        measured: seconds by MEASURES; what the log does not say is absent, the mean is always there.
    """

    name: str
    accelerator: str
    gpus: int
    precision: str
    software: str
    batch_most: int
    batch_limit_s: float
    offline_images_per_s: float | None
    seed: int
    target_qps: float
    least_requests: int
    least_s: float
    scheduled_qps: float | None
    measured: Mapping[str, float]
    source: str


@dataclass(frozen=True, slots=True)
class Routed:
    """One run of a mix through a router on several GPUs, a queue each.

    Attributes:
        workload: the mix: A, B or C of vLLM-Omni.
        rate_per_s: requests per second.
        routing: the router, as conf/router spells it.
        measured: seconds by MEASURED; what is not known is absent.
    """

    workload: str
    rate_per_s: float
    routing: str
    measured: Mapping[str, float]


def shipped(name: str) -> Traversable:
    """A file of conf/data."""
    return resources.files("conf") / "data" / name


def submissions(file: File) -> list[Submission]:
    """The rows of a CSV with the columns of conf/data/mlperf-sdxl-server.csv; others are passed over.

    Raises:
        ConfigError: the file cannot be read; a column is missing; a cell is no number, or one that cannot be. The
            message names the file, the row and the column.
    """
    return [_submission(row) for row in _rows(file)]


def routed(file: File) -> list[Routed]:
    """The rows of a CSV with the columns of conf/data/llmd-routing.csv; others are passed over.

    Raises ConfigError as ``submissions`` does.
    """
    return [_routed(row) for row in _rows(file)]


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a file, which says where it is when something is wrong with it."""

    file: File
    number: int
    cells: Mapping[str, str | None]

    def text(self, column: str) -> str:
        found = self.cells.get(column)
        if found is None or not found.strip():
            raise ConfigError(f"{self.file}: row {self.number}, column {column}: missing; add it")
        return " ".join(found.split())

    def number_of(self, column: str, least: float = 0.0) -> float:
        said = self.text(column)
        try:
            value = float(said)
        except ValueError:
            value = math.nan
        if not least <= value <= 1e12:
            raise ConfigError(
                f"{self.file}: row {self.number}, column {column}: found {said[:60]!r}, expected a number, "
                f"{least:g} or more; correct it"
            )
        return value

    def count(self, column: str, least: int = 1, most: int = 10**9) -> int:
        said = self.text(column)
        if not (said.isascii() and said.isdigit() and least <= int(said[:30]) <= most):
            raise ConfigError(
                f"{self.file}: row {self.number}, column {column}: found {said[:60]!r}, expected a whole number, "
                f"{least:,} to {most:,}; correct it"
            )
        return int(said)

    def optional(self, column: str) -> float | None:
        found = self.cells.get(column)
        return None if found is None or not found.strip() else self.number_of(column)


def _submission(row: _Row) -> Submission:
    measured = {name: row.optional(f"{name}_s") for name in MEASURES}
    row.number_of("mean_s", 1e-9)
    cited = [row.text(column) for column in ("round", "division", "submitter", "system")]
    return Submission(
        name=", ".join(cited),
        accelerator=row.text("accelerator"),
        gpus=row.count("gpus", most=100_000),
        precision=row.cells.get("precision") or "",
        software=row.cells.get("software") or "",
        batch_most=row.count("batch_most", most=4096),
        batch_limit_s=row.number_of("batch_limit_s"),
        offline_images_per_s=row.optional("offline_images_per_s") or None,
        seed=row.count("schedule_rng_seed", 0, 2**64 - 1),
        target_qps=row.number_of("target_qps", 1e-9),
        least_requests=row.count("min_query_count"),
        least_s=row.number_of("min_duration_s"),
        scheduled_qps=row.optional("scheduled_qps"),
        measured={name: value for name, value in measured.items() if value is not None},
        source=", ".join(row.cells.get(column) or "" for column in ("repo", "commit", "path")).strip(", "),
    )


def _routed(row: _Row) -> Routed:
    measured = {name: row.optional(f"{name}_s") for name in MEASURED}
    return Routed(
        workload=row.text("workload").upper(),
        rate_per_s=row.number_of("rate_per_s", 1e-9),
        routing=row.text("routing"),
        measured={name: value for name, value in measured.items() if value is not None},
    )


def _rows(file: File) -> Sequence[_Row]:
    try:
        found = list(_read(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"{file}: cannot be read as a CSV ({reason}); name another file") from None
    if not found:
        raise ConfigError(f"{file}: found no rows, expected a header and at least one run; name another file")
    return found


def _read(file: File) -> Iterator[_Row]:
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    for number, cells in enumerate(csv.DictReader(lines, strict=True), start=1):
        yield _Row(file, number, {key: value for key, value in cells.items() if isinstance(value, str)})
