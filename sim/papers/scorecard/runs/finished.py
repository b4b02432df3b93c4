"""Finished runs that measures read."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import CLUSTER, REQUESTS
from mezzotint.sim.core.streams import stream
from mezzotint.sim.metrics.run_files import read_summary, read_table
from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.papers.scorecard.runs.points import Config, Point
from mezzotint.sim.run.config.build import build
from mezzotint.traces.sources import Source
from mezzotint.traces.table.trace import Trace


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
        return source.load(stream(self.config["seed"], "trace"))


@dataclass(frozen=True, slots=True)
class Runs:
    """Points with their outcome: a finished run, or the error that it ended with."""

    outcomes: tuple[tuple[Point, Finished | str], ...]

    def __iter__(self) -> Iterator[Finished]:
        """Iterate over the runs. Raises Unmeasured, naming the command, if there is none or one of them failed."""
        if not self.outcomes:
            raise Unmeasured("not simulated yet")
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

    def mean(self, *keys: str) -> float:
        """Return the mean over the runs of the number under ``keys`` of their summaries."""
        return mean([run.number(*keys) for run in self])


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def read_finished(point: Point, config: Config, folder: Path) -> Finished | None:
    """Read the run in ``folder``; return None if it is missing or unfinished."""
    try:
        return Finished(point, config, folder, read_summary(folder))
    except ConfigError:
        return None
