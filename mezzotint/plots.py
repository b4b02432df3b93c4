"""Figures of results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
from matplotlib.figure import Figure

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.figures import panels as figures
from mezzotint.sim.report.figures.over_time import over_time
from mezzotint.sim.report.runs import Run as ReportRun
from mezzotint.sim.report.runs import load_runs


class Finished(Protocol):
    """A finished run. It is held, since a temporary folder goes with its run."""

    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True)
class Plots:
    """The report's figures of some runs. Each method returns a matplotlib figure at ``rcParams["figure.dpi"]``.

    A notebook shows it below the cell after ``%matplotlib inline``.

    Raises ConfigError if the runs have nothing to draw, such as hits without a cache.
    """

    runs: Sequence[Finished]

    def latency(self) -> Figure:
        """Cumulative share of requests against latency (s)."""
        return self._drawn("latency", figures.latency_distribution)

    def slo(self) -> Figure:
        """Share of requests over each latency limit (%)."""
        return self._drawn("slo", figures.slo_violations)

    def hits(self) -> Figure:
        """Share of requests by skipped steps K (%)."""
        return self._drawn("hits", figures.hit_share)

    def throughput(self) -> Figure:
        """Completed requests per minute."""
        return self._drawn("throughput", figures.throughput)

    def over_time(self) -> Figure:
        """Queue length and busy GPUs over simulated time."""
        return self._drawn("over_time", over_time)

    def _drawn(self, name: str, draw: Callable[[Sequence[ReportRun]], Figure | None]) -> Figure:
        figure = draw(load_runs([run.folder for run in self.runs]))
        if figure is None:
            raise ConfigError(f"plot.{name}: these runs have nothing to draw; mezzotint report says why")
        figure.set_dpi(mpl.rcParams["figure.dpi"])
        return figure
