"""A folder of logged runs of Wan2.2 on Ascend NPUs (HpSuda/vllm-omni, benchmarks/diffusion, July 2026)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic.dataclasses
from numpy.typing import NDArray
from pydantic import AliasChoices, Field

from mezzotint.settings.ranges import Count, Positive, Seconds, SomeSeconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.rows import Cells, measured, read_cells, read_rows, to_row

MEASURES = ("mean", "p50", "p95", "p99", "duration")
"""Statistics of a run: of its latencies, and the seconds from the first arrival to the last answer."""

Size = Literal["short", "medium", "long"]
NonNegative = Annotated[int, Field(ge=0)]


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
    e2e_mean_s: SomeSeconds
    usp_degree: Count | None = None
    text_encoder_s: SomeSeconds | None = None
    vae_decode_s: SomeSeconds | None = None
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
    backend: NonNegative
    arrival_s: Annotated[Seconds, Field(validation_alias="arrival_s_from_seed")]
    wait_s: Annotated[Seconds, Field(validation_alias=AliasChoices("central_wait_s", "dispatcher_wait_s"))]
    preemptions: NonNegative
    e2e_s: SomeSeconds
    served_s: Annotated[SomeSeconds | None, Field(validation_alias=AliasChoices("compute_s", "backend_s"))] = None
    queue_s: Annotated[Seconds | None, Field(validation_alias="scheduler_wait_s")] = None
    gpu_s: Annotated[SomeSeconds | None, Field(validation_alias="scheduler_s")] = None


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class MeasuredRow:
    """Published statistics of a run; those that were not published are None."""

    topology: str
    num_requests: Count
    rate_rps: Positive
    policy: str
    duration_s: SomeSeconds | None = None
    mean_s: SomeSeconds | None = None
    p50_s: SomeSeconds | None = None
    p95_s: SomeSeconds | None = None
    p99_s: SomeSeconds | None = None
    preemptions: NonNegative | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the overrides of a run, and the estimates that its scheduler had.

    Attributes:
        name: in words.
        estimates: ``scheduler`` for those of super_p95's own scheduler, ``calibrated`` for later ones near the true
            seconds.
    """

    name: str
    overrides: tuple[str, ...]
    estimates: Literal["scheduler", "calibrated"]


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
        believed: seconds that the scheduler of super_p95 believes, by size.
        runs: logged runs, then those with statistics alone.
        skipped: files, and rows of statistics, that cannot be replayed, each with why.
    """

    profile: Sequence[ProfileRow]
    believed: Mapping[str, float]
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
        ConfigError: a file cannot be read, the profile is wrong, or there is no profile or run.
    """
    profile: list[ProfileRow] = []
    runs: list[LoggedRun] = []
    skipped: list[str] = []
    files = sorted(folder.glob("*.csv"), key=lambda file: (not LOG_NAME.fullmatch(file.name), file.name))
    for file in files:
        calls: list[Callable[[], LoggedRun]] = []
        if name := LOG_NAME.fullmatch(file.name):
            calls = [partial(_log, file, name)]
        else:
            cells = read_cells(file)
            columns = {column for row in cells for column in row}
            if "usp_degree" in columns:
                profile += read_rows(file, ProfileRow)
            elif "policy" in columns:
                calls = [partial(_published, file, number, row) for number, row in enumerate(cells, start=1)]
            else:
                skipped.append(f"{file.name}: neither a log by its name nor a profile or statistics by its columns")
        for call in calls:
            try:
                runs.append(call())
            except ConfigError as error:
                skipped.append(str(error).replace(str(file), file.name, 1))
    degrees = [row for row in profile if row.usp_degree is not None]
    if not degrees or not runs:
        lacks = "profile (columns usp_degree and e2e_mean_s)" if not degrees else "run that can be replayed"
        why = f" (skipped {skipped[0]})" if degrees and skipped else ""
        raise ConfigError(f"{folder}: found no {lacks} among {len(files)} CSV files{why}; name a folder of logged runs")
    believed = {row.size: row.e2e_mean_s for row in profile if row.usp_degree is None}
    return VideoRuns(degrees, believed, runs, skipped)


def _log(file: Path, name: re.Match[str]) -> LoggedRun:
    """Return the run of a log. Raises ConfigError if a row is wrong or its policy not known."""
    policy, rows = policy_of(name[5], str(file)), read_rows(file, LogRow)
    if len(rows) != int(name[3]):
        raise ConfigError(f"{file}: found {len(rows)} requests, expected {name[3]} by its name; correct either")
    latency_s = np.array([row.e2e_s for row in rows])
    statistics = statistics_of(latency_s, max(row.arrival_s + row.e2e_s for row in rows))
    preemptions = sum(row.preemptions for row in rows)
    machine = int(name[1]), int(name[2])
    return LoggedRun(file.stem, *machine, len(rows), float(name[4]), policy, statistics, preemptions, rows)


def statistics_of(latency_s: NDArray[np.float64], duration_s: float) -> dict[str, float]:
    """Return the statistics of a run by MEASURES; percentiles are interpolated linearly (type 7)."""
    levels = np.quantile(latency_s, [0.5, 0.95, 0.99]).tolist()
    return dict(zip(MEASURES, [float(latency_s.mean()), *levels, float(duration_s)], strict=True))


def _published(file: Path, number: int, cells: Cells) -> LoggedRun:
    """Return the run of a row of published statistics. Raises ConfigError if its policy or topology is not known."""
    row, where = to_row(file, number, cells, MeasuredRow), f"{file}: row {number}"
    policy, topology = policy_of(row.policy, where), TOPOLOGY.fullmatch(row.topology)
    if topology is None:
        raise ConfigError(f"{where}: found the topology {row.topology[:40]!r}, expected one such as 4xUSP2")
    title = f"{row.topology}, {row.num_requests} at {row.rate_rps:g}/s"
    machine, statistics = (int(topology[1]), int(topology[2])), measured(row, MEASURES)
    return LoggedRun(title, *machine, row.num_requests, row.rate_rps, policy, statistics, row.preemptions)


BETA = r"beta(\d*[.p]\d+|\d+)"

PLACE = r"(?:tails?)?(spread|pack|sink)"

GATE = r"tailgate|gated?|protecteddrain"

WORD = re.compile(rf"centralpull|maxrisk|(?:cost)?damped(?:risk)?|{BETA}|{PLACE}|{GATE}|queueband|(?:idle)?backfill")
"""A word of a central pull's name, of letters and digits alone."""

BETAS = {"damped": 0.5, "gate": 0.85, "drain": 0.85, "centralpull": 1.0}
"""Beta of a central pull whose name has none."""

BAND = "{_target_: mezzotint.sim.scheduling.group_policies.central_pull.QueueBand, beta: 0.625}"

EXTRAS = {
    "queueband": ("queue band", f"group_policy.band={BAND}"),
    "backfill": ("backfill", "group_policy.backfill=true"),
}
"""Further words of a name: as the page has them, and as an override."""


def policy_of(words: str, where: str) -> Policy:
    """Return the policy that ``words`` name.

    ``super_p95``, or ``original``; or central pull, named by one of ``max risk``, ``cost-damped``, ``beta=0.85``,
    ``tail gate`` and ``protected drain``, with ``spread``, ``pack`` or ``sink``, ``queue band`` and ``backfill``.
    Nothing else may be in the name but a remark in brackets. Letters and digits alone count: ``tailgate`` is ``tail
    gate``. A tail gate without a beta is the published one: beta 0.85, packed.

    Raises:
        ConfigError: the policy is none of these; ``where`` it was found is for the message.
    """
    plain, _, remark = words.casefold().partition("(")
    letters = re.sub(r"[^a-z0-9.]", "", plain)
    if letters in ("superp95", "original"):
        return Policy("super_p95", ("system=super-p95",), "scheduler")
    is_gate, is_max_risk = re.search(GATE, letters) is not None, "maxrisk" in letters
    stated = [*map(_share, re.findall(BETA, letters)), *([1.0] if is_max_risk else [])]
    betas = set(stated or [beta for word, beta in BETAS.items() if word in letters][:1])
    places = set(re.findall(PLACE, letters)) or {"pack" if is_gate else "spread"}
    if WORD.sub("", letters) or len(betas) != 1 or len(places) != 1:
        raise ConfigError(f"{where}: found the policy {words[:80]!r}, which is none that is known here")
    (beta,), (place,) = betas, places
    extras = [extra for word, extra in EXTRAS.items() if word in letters]
    titles = [f"central pull, beta {beta:g}, tails {place}", *(["gate"] if is_gate else [])]
    titles += [title for title, _ in extras]
    system = "tail-gate" if is_gate else "central-pull"
    overrides = (f"system={system}", f"group_policy.beta={beta!r}", f"group_policy.tails={place}")
    is_early = is_max_risk or "estimator" in remark
    return Policy(
        ", ".join(titles), (*overrides, *(word for _, word in extras)), "scheduler" if is_early else "calibrated"
    )


def _share(digits: str) -> float:
    """Return 0.85 for ``0.85``, ``0p85``, ``.85`` and ``085``."""
    if "." in digits or "p" in digits:
        return float(digits.replace("p", "."))
    return float(digits) if digits in ("0", "1") else float(f"0.{digits.removeprefix('0')}")
