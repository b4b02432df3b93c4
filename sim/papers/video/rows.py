"""A folder of logged runs of Wan2.2 on Ascend NPUs (HpSuda/vllm-omni, benchmarks/diffusion, July 2026)."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, TypeAdapter, ValidationError

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.video.policies import Policy, policy_of

MEASURES = ("mean", "p50", "p95", "p99", "duration")
"""Statistics of a run: of its latencies, and the seconds from the first arrival to the last answer."""

Number = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Count = Annotated[int, Field(ge=1, le=10**6)]
Size = Literal["short", "medium", "long"]


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class ProfileRow:
    """Mean seconds of one size on one parallel degree; the degree is None in a row of what a scheduler believes.

    ``note`` says "compute" if the seconds are those of the worker alone, without the answer's way to the client.
    """

    size: Size
    width: Count
    height: Count
    frames: Count
    steps: Count
    e2e_mean_s: Positive
    usp_degree: Count | None = None
    text_encoder_s: Positive | None = None
    vae_decode_s: Positive | None = None
    note: str = ""


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class LogRow:
    """A request of a logged run.

    Attributes:
        queue: ``tail`` or ``normal``.
        wait_s: seconds in the dispatcher, before a group got it.
        queue_s: seconds in the group's own queue; None where ``served_s`` has them.
        gpu_s: seconds on the NPUs of the group, preemptions included.
        served_s: seconds in the group: on its NPUs, and while the video's file is written.
    """

    request: str
    size: Size
    queue: Literal["normal", "tail"]
    backend: Annotated[int, Field(ge=0)]
    arrival_s: Annotated[Number, Field(validation_alias="arrival_s_from_seed")]
    wait_s: Annotated[Number, Field(validation_alias=AliasChoices("central_wait_s", "dispatcher_wait_s"))]
    preemptions: Annotated[int, Field(ge=0)]
    e2e_s: Positive
    served_s: Annotated[Positive | None, Field(validation_alias=AliasChoices("compute_s", "backend_s"))] = None
    queue_s: Annotated[Number | None, Field(validation_alias="scheduler_wait_s")] = None
    gpu_s: Annotated[Positive | None, Field(validation_alias="scheduler_s")] = None


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class MeasuredRow:
    """Published statistics of a run; those that were not published are None."""

    topology: str
    num_requests: Count
    rate_rps: Positive
    policy: str
    duration_s: Positive | None = None
    mean_s: Positive | None = None
    p50_s: Positive | None = None
    p95_s: Positive | None = None
    p99_s: Positive | None = None
    preemptions: Annotated[int, Field(ge=0)] | None = None

    @property
    def measured(self) -> dict[str, float]:
        """The published statistics by MEASURES."""
        found = {name: getattr(self, f"{name}_s") for name in MEASURES}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run that was measured: its machine, workload, policy and results.

    Attributes:
        name: as the page shows it.
        groups, degree: worker groups, and NPUs of a group.
        requests: number of requests.
        rate_rps: requests a second.
        measured: statistics by MEASURES, as far as known.
        log: its requests; empty if only statistics were published.
    """

    name: str
    groups: int
    degree: int
    requests: int
    rate_rps: float
    policy: Policy
    measured: Mapping[str, float]
    preemptions: int | None = None
    log: Sequence[LogRow] = ()


@dataclass(frozen=True, slots=True)
class VideoRuns:
    """The content of a folder.

    Attributes:
        profile: rows of all parallel degrees.
        believed: what the scheduler of super_p95 believes.
        runs: logged runs, then those with statistics alone.
        skipped: files, and rows of statistics, that cannot be replayed, each with why.
    """

    profile: Sequence[ProfileRow]
    believed: Sequence[ProfileRow]
    runs: Sequence[LoggedRun]
    skipped: Sequence[str]


TOPOLOGY = re.compile(r"(\d+)x(?:usp)?(\d+)", re.IGNORECASE)

LOG_NAME = re.compile(rf"{TOPOLOGY.pattern}_n(\d+)_r(\d*\.?\d+)_(\w[\w.\-+=]*)\.csv", re.IGNORECASE)
"""File name of a log, such as 4xusp2_n50_r0.05_costdamped.csv: groups x degree, requests, requests a second, policy."""


def read_folder(folder: Path) -> VideoRuns:
    """Read the profiles, logs and published statistics of a folder.

    A file is a log by its name, and the profile or the statistics by its columns. A log, or a row of statistics, of
    which a value is missing or wrong, or whose policy is not known, is skipped.

    Raises:
        ConfigError: the folder or a file cannot be read, the profile is wrong, or there is no profile or run.
    """
    try:
        files = sorted(folder.glob("*.csv"))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read ({error.strerror}); name a folder of logged runs") from None
    profile: list[ProfileRow] = []
    logs: list[LoggedRun] = []
    statistics: list[LoggedRun] = []
    skipped: list[str] = []
    for file in files:
        if name := LOG_NAME.fullmatch(file.name):
            try:
                logs.append(_log(file, name))
            except ConfigError as error:
                skipped.append(_skipped(file, error))
            continue
        columns = {name for cells in _cells(file)[:1] for name in cells}
        if "usp_degree" in columns:
            profile += _rows(file, ProfileRow)
        elif "policy" in columns:
            for number, cells in enumerate(_cells(file), start=1):
                try:
                    statistics.append(_published(file, number, _row(file, number, cells, MeasuredRow)))
                except ConfigError as error:
                    skipped.append(_skipped(file, error))
        else:
            skipped.append(f"{file.name}: neither a log by its name nor a profile or statistics by its columns")
    degrees = [row for row in profile if row.usp_degree is not None]
    if not degrees or not (logs or statistics):
        lacks = "profile (columns usp_degree and e2e_mean_s)" if not degrees else "run that can be replayed"
        why = f" (skipped {skipped[0]})" if degrees and skipped else ""
        raise ConfigError(f"{folder}: found no {lacks} among {len(files)} CSV files{why}; name a folder of logged runs")
    believed = [row for row in profile if row.usp_degree is None]
    return VideoRuns(degrees, believed, [*logs, *statistics], skipped)


def _skipped(file: Path, error: ConfigError) -> str:
    """Return the words for what is skipped: the file's name, without its folder, and why."""
    return str(error).replace(str(file), file.name, 1)


def _known(words: str, where: str) -> Policy:
    policy = policy_of(words)
    if policy is None:
        raise ConfigError(f"{where}: found the policy {words[:80]!r}, which is none that is known here")
    return policy


def _log(file: Path, name: re.Match[str]) -> LoggedRun:
    """Return the run of a log. Raises ConfigError if a row is wrong or its policy not known."""
    policy = _known(name[5], str(file))
    rows = _rows(file, LogRow)
    if len(rows) != int(name[3]):
        raise ConfigError(f"{file}: found {len(rows)} requests, expected {name[3]} by its name; correct either")
    latency_s = np.array([row.e2e_s for row in rows])
    measured = statistics_of(latency_s, max(row.arrival_s + row.e2e_s for row in rows))
    preemptions = sum(row.preemptions for row in rows)
    groups, degree = int(name[1]), int(name[2])
    return LoggedRun(file.stem, groups, degree, len(rows), float(name[4]), policy, measured, preemptions, rows)


def statistics_of(latency_s: NDArray[np.float64], duration_s: float) -> dict[str, float]:
    """Return the statistics of a run by MEASURES; percentiles are interpolated linearly (type 7)."""
    levels = np.quantile(latency_s, [0.5, 0.95, 0.99]).tolist()
    return dict(zip(MEASURES, [float(latency_s.mean()), *levels, float(duration_s)], strict=True))


def _published(file: Path, number: int, row: MeasuredRow) -> LoggedRun:
    """Return the run of a row of published statistics. Raises ConfigError if its policy or topology is not known."""
    where = f"{file}: row {number}"
    policy, topology = _known(row.policy, where), TOPOLOGY.fullmatch(row.topology)
    if topology is None:
        raise ConfigError(f"{where}: found the topology {row.topology[:40]!r}, expected one such as 4xUSP2")
    title = f"{row.topology}, {row.num_requests} at {row.rate_rps:g}/s"
    groups, degree = int(topology[1]), int(topology[2])
    return LoggedRun(title, groups, degree, row.num_requests, row.rate_rps, policy, row.measured, row.preemptions)


Row = TypeVar("Row", ProfileRow, LogRow, MeasuredRow)


def _cells(file: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(f"{file}: cannot be read as a CSV ({reason}); name another folder") from None


def _rows(file: Path, kind: type[Row]) -> list[Row]:
    """Return the rows of ``file``; empty cells are absent."""
    return [_row(file, number, cells, kind) for number, cells in enumerate(_cells(file), start=1)]


def _row(file: Path, number: int, cells: Mapping[str, str], kind: type[Row]) -> Row:
    filled = {name: cell.strip() for name, cell in cells.items() if isinstance(cell, str) and cell.strip()}
    try:
        return TypeAdapter(kind).validate_python(filled)
    except ValidationError as error:
        first = error.errors()[0]
        column = ".".join(map(str, first["loc"]))
        found = "" if first["type"] == "missing" else f"found {str(first['input'])[:60]!r}: "
        raise ConfigError(f"{file}: row {number}, column {column}: {found}{first['msg']}; correct it") from None
