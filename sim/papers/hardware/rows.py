"""Measurements on real machines: MLPerf's server submissions and llm-d's routing benchmark."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasChoices, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from mezzotint.sim.core.errors import ConfigError

MEASURES = ("mean", "p50", "p90", "p95", "p97", "p99", "p999", "min", "max")
"""Statistics of latency in a submission's log."""

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p999": 0.999}

SCORED = ("p50", "p90", "p99", "p999", "max")
"""Predicted measures of a submission; the mean is fitted."""

MEASURED = ("mean", "p95", "p99")
"""Statistics of latency in a routed run's report."""

File = Path | Traversable
Number = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(ge=1e-9, le=1e12)]
Count = Annotated[int, Field(ge=1, le=10**9)]


@dataclass(frozen=True, slots=True)
class Submission:
    """One run of MLPerf Inference's SDXL server scenario: its settings and its log.

    Attributes:
        offline_images_per_s: of the same system, all GPUs together, in full batches; None if unknown.
        schedule_rng_seed, target_qps, min_query_count, min_duration_s: of the load generator (traces/arrivals).
        max_batch, batch_timeout_s: of the server; also read from the former columns batch_most and batch_limit_s.
        scheduled_qps: rate that the generator issued.
        measured: seconds by MEASURES, as far as the log has them; always with the mean.
    """

    round: str
    division: str
    submitter: str
    system: str
    accelerator: str
    gpus: Annotated[int, Field(ge=1, le=100_000)]
    max_batch: Annotated[int, Field(ge=1, le=4096, validation_alias=AliasChoices("max_batch", "batch_most"))]
    batch_timeout_s: Annotated[Number, Field(validation_alias=AliasChoices("batch_timeout_s", "batch_limit_s"))]
    schedule_rng_seed: Annotated[int, Field(ge=0, le=2**64 - 1)]
    target_qps: Positive
    min_query_count: Count
    min_duration_s: Number
    mean_s: Positive
    measured: Mapping[str, Number]
    offline_images_per_s: Number | None = None
    scheduled_qps: Number | None = None
    repo: str = ""
    commit: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        """Round, division, submitter and system, as MLCommons wants them cited."""
        return f"{self.round}, {self.division}, {self.submitter}, {self.system}"

    @property
    def source(self) -> str:
        """Repository, commit and path of the log."""
        return ", ".join((self.repo, self.commit, self.path)).strip(", ")


@dataclass(frozen=True, slots=True)
class RoutedRun:
    """One run of a vLLM-Omni mix (A, B or C) through a router of conf/router, with a queue at each GPU.

    ``measured`` has seconds by MEASURED, as far as known.
    """

    workload: Annotated[str, StringConstraints(to_upper=True)]
    rate_per_s: Positive
    routing: str
    measured: Mapping[str, Number]


Row = TypeVar("Row", Submission, RoutedRun)


def packaged_file(name: str) -> Traversable:
    """Return a file of conf/data."""
    return resources.files("mezzotint.conf") / "data" / name


def submissions(file: File) -> list[Submission]:
    """Read a CSV with the columns of conf/data/mlperf-sdxl-server.csv; other columns are ignored.

    Raises ConfigError, naming file, row and column: unreadable file, missing column or value out of range.
    """
    return list(_rows(file, Submission, MEASURES))


def routed(file: File) -> list[RoutedRun]:
    """Read a CSV with the columns of conf/data/llmd-routing.csv; raises as ``submissions`` does."""
    return list(_rows(file, RoutedRun, MEASURED))


def _rows(file: File, kind: type[Row], measures: Sequence[str]) -> Iterator[Row]:
    try:
        found = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"{file}: cannot be read as a CSV ({reason}); name another file") from None
    if not found:
        raise ConfigError(f"{file}: found no rows, expected a header and at least one run; name another file")
    adapter = TypeAdapter(kind)
    for number, cells in enumerate(found, start=1):
        filled = {
            name: " ".join(cell.split()) for name, cell in cells.items() if isinstance(cell, str) and cell.strip()
        }
        measured = {name: filled[f"{name}_s"] for name in measures if f"{name}_s" in filled}
        try:
            yield adapter.validate_python(filled | {"measured": measured})
        except ValidationError as error:
            first = error.errors()[0]
            column = f"{first['loc'][1]}_s" if first["loc"][0] == "measured" else first["loc"][0]
            wrong = f"found {str(first['input'])[:60]!r}: {first['msg'][0].lower()}{first['msg'][1:]}; correct it"
            message = "missing; add it" if first["type"] == "missing" else wrong
            raise ConfigError(f"{file}: row {number}, column {column}: {message}") from None
