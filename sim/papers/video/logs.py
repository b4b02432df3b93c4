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
from pydantic import AliasChoices, BeforeValidator, Field, StringConstraints

from mezzotint.settings.ranges import Count, Positive, Seconds, SomeSeconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.rows import Cells, measured, read_cells, read_rows, to_row

MEASURES = ("mean", "p50", "p95", "p99", "duration")
"""Statistics of a run: of its latencies, and the seconds from the first arrival to the last answer."""

NonNegative = Annotated[int, Field(ge=0)]
Size = Annotated[str, StringConstraints(pattern="^(short|medium|long)$")]

TOPOLOGY = r"(?i)^\d+x(usp)?\d+$"

LOG_NAME = re.compile(
    r"(?P<topology>\d+x(?:usp)?\d+)_n(?P<num_requests>\d+)_r(?P<rate_rps>\d*\.?\d+)_(?P<policy>\w[\w.\-+=]*)\.csv",
    re.IGNORECASE,
)
"""File name of a log, such as 4xusp2_n50_r0.05_costdamped.csv: groups x degree, requests, requests a second, policy."""


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


CENTRAL_PULL = re.compile(
    r"(?P<pull>centralpull)?(?P<risk>maxrisk)?(?P<damped>(?:cost)?damped(?:risk)?)?(?:beta(?P<beta>\d*[.p]\d+|\d+))?"
    r"(?:(?:tails?)?(?P<tails>spread|pack|sink))?(?P<gate>tailgate|gated?|protecteddrain)?"
    r"(?P<band>queueband)?(?P<backfill>(?:idle)?backfill)?"
)
"""Words of a central pull's name, of letters and digits alone."""

BETAS = {"risk": 1.0, "damped": 0.5, "gate": 0.85, "pull": 1.0}
"""Beta by the first of these words that a name has, if it states none."""

BAND = "{_target_: mezzotint.sim.scheduling.group_policies.central_pull.QueueBand, beta: 0.625}"


def policy_of(words: str) -> Policy:
    """Return the policy that ``words`` name.

    ``super_p95``, or ``original``; or central pull, named by one of ``max risk``, ``cost-damped``, ``beta=0.85``,
    ``tail gate`` and ``protected drain``, with ``spread``, ``pack`` or ``sink``, ``queue band`` and ``backfill``, in
    the order of CENTRAL_PULL. Nothing else may be in the name but a remark in brackets. Letters and digits alone count:
    ``tailgate`` is ``tail gate``. A tail gate without a beta is the published one: beta 0.85, packed.

    Raises:
        ValueError: the policy is none of these.
    """
    plain, _, remark = words.casefold().partition("(")
    letters = re.sub(r"[^a-z0-9.]", "", plain)
    if letters in ("superp95", "original"):
        return Policy("super_p95", ("system=super-p95",), "scheduler")
    match = CENTRAL_PULL.fullmatch(letters)
    named = {word: text for word, text in match.groupdict().items() if text} if match else {}
    betas = [beta for word, beta in BETAS.items() if word in named]
    if {"risk", "beta"} <= set(named) or not (betas or "beta" in named):
        raise ValueError("expected a policy that is known here")
    beta = _share(named["beta"]) if "beta" in named else betas[0]
    tails = named.get("tails", "pack" if "gate" in named else "spread")
    titles = {"gate": "gate", "band": "queue band", "backfill": "backfill"}
    name = [f"central pull, beta {beta:g}, tails {tails}", *(title for word, title in titles.items() if word in named)]
    overrides = [f"system={'tail-gate' if 'gate' in named else 'central-pull'}", f"group_policy.beta={beta!r}"]
    overrides += [f"group_policy.tails={tails}"]
    overrides += [f"group_policy.band={BAND}"] if "band" in named else []
    overrides += ["group_policy.backfill=true"] if "backfill" in named else []
    is_early = "estimator" in remark or "risk" in named
    return Policy(", ".join(name), tuple(overrides), "scheduler" if is_early else "calibrated")


def _share(digits: str) -> float:
    """Return 0.85 for ``0.85``, ``0p85``, ``.85`` and ``085``."""
    if "." in digits or "p" in digits:
        return float(digits.replace("p", "."))
    return float(digits) if digits in ("0", "1") else float(f"0.{digits.removeprefix('0')}")


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run that was measured: a row of published statistics, or a log.

    Attributes:
        topology: worker groups x NPUs of a group, such as 4xUSP2.
        preemptions, duration_s, mean_s and others: None if not published.
        log: its requests; empty if only statistics were published.
        file: name of its log, if any.
    """

    topology: Annotated[str, StringConstraints(pattern=TOPOLOGY)]
    num_requests: Count
    rate_rps: Positive
    policy: Annotated[Policy, BeforeValidator(policy_of)]
    duration_s: SomeSeconds | None = None
    mean_s: SomeSeconds | None = None
    p50_s: SomeSeconds | None = None
    p95_s: SomeSeconds | None = None
    p99_s: SomeSeconds | None = None
    preemptions: NonNegative | None = None
    log: Sequence[LogRow] = ()
    file: str = ""

    @property
    def name(self) -> str:
        """The name of the page."""
        return self.file or f"{self.topology}, {self.num_requests} at {self.rate_rps:g}/s"

    @property
    def groups(self) -> int:
        """Worker groups."""
        return int(re.findall(r"\d+", self.topology)[0])

    @property
    def degree(self) -> int:
        """NPUs of a group."""
        return int(re.findall(r"\d+", self.topology)[1])

    @property
    def measured(self) -> dict[str, float]:
        """Statistics by MEASURES, as far as known."""
        return measured(self, MEASURES)


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
            calls = [partial(_log, file, name.groupdict())]
        else:
            cells = read_cells(file)
            columns = {column for row in cells for column in row}
            if "usp_degree" in columns:
                profile += read_rows(file, ProfileRow)
            elif "policy" in columns:
                calls = [
                    partial(to_row, f"{file}: row {number}", row, LoggedRun)
                    for number, row in enumerate(cells, start=1)
                ]
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


def _log(file: Path, named: Cells) -> LoggedRun:
    """Return the run of a log with what its file name says. Raises ConfigError if a row is wrong or the name is."""
    rows = read_rows(file, LogRow)
    if len(rows) != int(named["num_requests"]):
        raise ConfigError(f"{file}: found {len(rows)} requests, expected {named['num_requests']} by its name")
    latency_s, end_s = np.array([row.e2e_s for row in rows]), max(row.arrival_s + row.e2e_s for row in rows)
    statistics = {f"{name}_s": value for name, value in statistics_of(latency_s, end_s).items()}
    log = {"log": rows, "file": file.stem, "preemptions": sum(row.preemptions for row in rows)}
    return to_row(f"{file}: its name", {**named, **statistics, **log}, LoggedRun)


def statistics_of(latency_s: NDArray[np.float64], duration_s: float) -> dict[str, float]:
    """Return the statistics of a run by MEASURES; percentiles are interpolated linearly (type 7)."""
    levels = np.quantile(latency_s, [0.5, 0.95, 0.99]).tolist()
    return dict(zip(MEASURES, [float(latency_s.mean()), *levels, float(duration_s)], strict=True))
