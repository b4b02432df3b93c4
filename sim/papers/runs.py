"""Runs of studies: the points of an experiment, each run once in a folder named after the digest of its settings."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from tqdm import tqdm

from mezzotint.sim.core.errors import REFUSED, ConfigError
from mezzotint.sim.core.run_folder import CLUSTER, REQUESTS, check_place
from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.metrics.run_files import read_summary, read_table
from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.papers.study import RESULTS, RUNS, Check, Jobs, Output, Quick, Results, RunsOn, Study, Work
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.compose import OURS, compose_resolved
from mezzotint.sim.run.config.points import points as points_of
from mezzotint.sim.run.pool import Launcher, run_calls
from mezzotint.sim.run.run_key import digest
from mezzotint.sim.run.shared_trace import shared_trace
from mezzotint.sim.run.simulate import simulate, write
from mezzotint.traces.sources import Source
from mezzotint.traces.table.trace import Trace

Config = dict[str, Any]

UNCOMPOSABLE = (ConfigError, HydraException, OmegaConfBaseException)
"""What composing raises if a choice does not exist or does not go with another."""

NOT_YET = "not simulated yet"
"""Reason of a measure without runs."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of an experiment of conf/experiment.

    Attributes:
        choices: settings of this run from the experiment's sweep, by group or key, as written.
        overrides: all overrides that make this run, ``choices`` among them.
    """

    experiment: str
    choices: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that makes this run alone."""
        return " ".join(["mezzotint run", *self.overrides])


def sweep(experiment: str, overrides: Sequence[str] = ()) -> list[Point]:
    """Return the points of ``experiment``, every combination of its sweep in order.

    ``overrides`` apply to all points and replace what the sweep sets. An experiment that does not compose is one point,
    which fails when it is run.
    """
    chosen = [f"experiment={experiment}", *overrides]
    try:
        jobs = [[word.split("=", 1) for word in job] for job in points_of(chosen, OURS).overrides]
    except UNCOMPOSABLE:
        return [Point(experiment, {}, tuple(chosen))]
    given = [word.partition("=")[0] for word in chosen]
    fixed = {key for key in given if all(f"{key}={dict(job)[key]}" in chosen for job in jobs)}
    return [
        Point(
            experiment,
            {key: value for key, value in job if key not in fixed},
            tuple("=".join(pair) for pair in sorted(job, key=lambda pair: pair[0] not in given)),
        )
        for job in jobs
    ]


def compose_part(part: str, experiment: str, overrides: Sequence[str] = ()) -> Config:
    """Return the settings of ``part`` of ``experiment``, such as its trace; empty if it does not compose."""
    try:
        settings: Config = compose_point(Point(experiment, {}, (f"experiment={experiment}", *overrides)))[part]
    except UNCOMPOSABLE:
        return {}
    return settings


def with_hits(point: Point, hits: Mapping[str, Sequence[str]]) -> Point:
    """Return ``point`` with the overrides in ``hits`` that declare the hits of its system.

    A point that declares hits itself, or does not compose, is returned unchanged.
    """
    groups = tuple(word for word in point.overrides if "." not in word.partition("=")[0])
    try:
        system, has_hits = _system(tuple(word for word in groups if not word.startswith("seed=")))
    except UNCOMPOSABLE:
        return point
    return replace(point, overrides=(*point.overrides, *(() if has_hits else hits.get(system, ()))))


@cache
def _system(groups: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name of the system of these choices of groups, and True if they declare hits."""
    config = compose_resolved([*groups, "run.dir=unnamed"])
    return str(config["system"]["name"]), bool(config.get("hits"))


def compose_point(point: Point) -> Config:
    """Return the resolved configuration of one point, without its run folder, which no result depends on.

    Raises HydraException, OmegaConfBaseException: a choice does not exist or does not go with another.
    """
    return compose_resolved([*point.overrides, "run.dir=unnamed"])


def to_override(values: Mapping[str, object]) -> str:
    """Return ``values`` as the value of an override: ``{name: value, name: value}``."""
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"


class Unmeasured(Exception):
    """A measure has no value; the message is the reason that the scorecard prints."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One finished run: its point, its configuration, its directory and its summary."""

    point: Point
    config: Config
    folder: Path
    summary: Mapping[str, Any]

    def number(self, *keys: str) -> float:
        """Return the number under ``keys`` of the summary. Raises Unmeasured if it is missing or null."""
        value = number_at(self.summary, *keys)
        if value is None:
            raise Unmeasured(f"the summary of {self.summary['system']} has no {'.'.join(keys)}")
        return value

    def requests(self, *columns: str) -> pa.Table:
        """Read columns of requests.parquet, a row per served request in the order of the trace."""
        return read_table(self.folder / REQUESTS, columns)

    def cluster(self, *columns: str) -> pa.Table:
        """Read columns of cluster.parquet, a row per sample in the order of time."""
        return read_table(self.folder / CLUSTER, columns)

    def trace(self) -> Trace:
        """Load the replayed trace again; its first ``preload`` rows were not served."""
        source: Source = build(self.config["trace"], "trace", Source)
        return source.load(stream(self.config["seed"], TRACE))


@dataclass(frozen=True, slots=True)
class Runs:
    """Points with their outcome: a finished run, or the error that it ended with."""

    outcomes: tuple[tuple[Point, Finished | str], ...]

    def __iter__(self) -> Iterator[Finished]:
        """Iterate over the runs. Raises Unmeasured, naming the command, if there is none or one of them failed."""
        if not self.outcomes:
            raise Unmeasured(NOT_YET)
        for point, outcome in self.outcomes:
            if isinstance(outcome, str):
                raise Unmeasured(f"not simulated: {outcome} ({point.command})")
            yield outcome

    def finished(self) -> list[Finished]:
        """Return the runs that finished."""
        return [run for _, run in self.outcomes if isinstance(run, Finished)]

    def of_study(self, name: str) -> list[Finished]:
        """Return the runs of the study ``reproduce NAME``.

        Raises ConfigError: one failed; its command is printed to standard error first.
        """
        if failed := self.failed():
            point, error = failed[0]
            print(f"mezzotint: {point.command}: {error}", file=sys.stderr)
            raise ConfigError(f"reproduce {name}: a run failed: {error}")
        return self.finished()

    def failed(self) -> list[tuple[Point, str]]:
        """Return the points that failed, and their errors."""
        return [(point, run) for point, run in self.outcomes if isinstance(run, str)]

    def of(self, experiments: Sequence[str]) -> "Runs":
        """Select the runs of ``experiments``."""
        return Runs(tuple((point, run) for point, run in self.outcomes if point.experiment in experiments))

    def where(self, **choices: str | int) -> "Runs":
        """Select the runs with these choices, by group or by the last part of a dotted key.

        An experiment that does not compose is selected too, since its choices are unknown.
        """
        wanted = {key: str(value) for key, value in choices.items()}
        return Runs(
            tuple(
                (point, run)
                for point, run in self.outcomes
                if not point.choices
                or wanted.items() <= {key.rpartition(".")[2]: choice for key, choice in point.choices.items()}.items()
            )
        )

    def by_seed(self) -> "list[Runs]":
        """Return the runs of each swept seed, or all together if none is; runs without one belong to every seed."""
        seeds = dict.fromkeys(point.choices["seed"] for point, _ in self.outcomes if "seed" in point.choices)
        return [
            Runs(tuple((point, run) for point, run in self.outcomes if point.choices.get("seed", seed) == seed))
            for seed in seeds
        ] or [self]

    def mean(self, *keys: str) -> float:
        """Return the mean over the runs of the number under ``keys`` of their summaries."""
        return mean([run.number(*keys) for run in self])


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def finish(points: Sequence[Point], work: Path, jobs: int = 1, launcher: Launcher = "joblib") -> Runs:
    """Run the unfinished points, and return the outcomes of all.

    A point's folder is ``work/DIGEST``, so points of equal configuration share one run, and an interrupted call does
    not repeat finished runs. The outcome of a point that fails is its error.
    ``jobs`` is the number of processes of ``launcher``.

    Raises ConfigError: ``work`` cannot be written.
    """
    check_place(work)
    planned: list[tuple[Point, Path, Config | str]] = []
    for point in points:
        try:
            config = compose_point(point)
            planned.append((point, work / digest(config), config))
        except UNCOMPOSABLE as error:
            planned.append((point, work, _line(error)))

    def outcome(point: Point, folder: Path, config: Config | str) -> Finished | str | None:
        try:
            return config if isinstance(config, str) else Finished(point, config, folder, read_summary(folder))
        except ConfigError:  # missing or unfinished
            return None

    unfinished = {plan[1]: plan[2] for plan in planned if not isinstance(plan[2], str) and outcome(*plan) is None}
    errors: dict[Path, str | None] = {}
    with tqdm(total=len(unfinished), unit="run", desc="scorecard", disable=None if unfinished else True) as bar:
        for batch in _batches(unfinished):
            for folder, failure in run_calls([partial(_run, *run) for run in batch], jobs, launcher):
                bar.update()
                errors[folder] = failure
    return Runs(tuple((plan[0], outcome(*plan) or errors[plan[1]] or "") for plan in planned))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the runs of ``study`` are made: in full or ``quick``, by ``jobs`` processes of ``launcher``, in ``work``."""

    study: str
    quick: bool
    jobs: int
    launcher: Launcher
    work: Path

    def finish(self, points: Sequence[Point]) -> list[Finished]:
        """Run the unfinished points, and return all. Raises ConfigError: one failed, or ``work`` cannot be written."""
        return finish(points, self.work, self.jobs, self.launcher).of_study(self.study)


def command_of(study: Study) -> Callable[[Callable[[RunOptions], Results]], Callable[..., int]]:
    """Make a function that measures ``study`` the command that reproduces it; its docstring is the help."""

    def decorate(measure: Callable[[RunOptions], Results]) -> Callable[..., int]:
        def compare(
            quick: Quick = False,
            check: Check = False,
            jobs: Jobs = 1,
            launcher: RunsOn = "joblib",
            output: Output = RESULTS,
            work: Work = RUNS,
        ) -> int:
            options = RunOptions(study.name, quick, jobs, launcher, work)
            return study.reproduce(lambda: measure(options), output, check=check, quick=quick)

        compare.__doc__ = measure.__doc__
        return compare

    return decorate


def _run(folder: Path, config: Config) -> tuple[Path, str | None]:
    """Run one point, and return its folder and its error, if any."""
    try:
        write(simulate(config, trace=shared_trace(config)), folder)
    except REFUSED as error:
        return folder, _line(error)
    return folder, None


def _batches(unfinished: Mapping[Path, Config]) -> list[list[tuple[Path, Config]]]:
    """Put one run of each trace, encoder and similarity first: it computes the similarities that the others read."""
    first: dict[str, Path] = {}
    for folder, config in unfinished.items():
        parts = [config["trace"], config["seed"], config["encoder"], config["search"], config.get("similarity")]
        first.setdefault(json.dumps(parts, sort_keys=True), folder)
    leading = list(first.values())
    return [
        [run for run in unfinished.items() if run[0] in leading],
        [run for run in unfinished.items() if run[0] not in leading],
    ]


def _line(error: Exception) -> str:
    return " ".join(str(error).split("Available options")[0].split()) or type(error).__name__
