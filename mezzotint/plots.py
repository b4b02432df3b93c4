"""Figures of results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mezzotint.arguments import as_path
from mezzotint.files.atomic import atomic_write
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.figures.palette import series_styles
from mezzotint.sim.report.interactive import Chart, Spec, picture, png, svg
from mezzotint.sim.report.runs import Run as ReportRun
from mezzotint.sim.report.runs import load_runs


class Finished(Protocol):
    """A finished run. It is held, since a temporary folder goes with its run."""

    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True)
class Figure:
    """A figure of the report. A notebook shows it below the cell.

    Attributes:
        spec: its Vega-Lite specification, with the data.
    """

    spec: Spec

    def save(self, path: str | Path) -> None:
        """Write the figure to ``path``, as SVG or PNG by its suffix. Raises ConfigError for another suffix."""
        path = as_path("path", path)
        draw = {".svg": svg, ".png": png}.get(path.suffix)
        if draw is None:
            raise ConfigError(f"{path}: found the suffix '{path.suffix}', expected .svg or .png")
        with atomic_write(path, ConfigError) as temporary:
            temporary.write_bytes(draw(self.spec))

    def svg(self) -> bytes:
        """Return the figure as SVG."""
        return svg(self.spec)

    def _repr_svg_(self) -> str:
        return self.svg().decode()


@dataclass(frozen=True)
class Plots:
    """The report's figures of some runs.

    Raises ConfigError if the runs have nothing to draw, such as hits without a cache.
    """

    runs: Sequence[Finished]

    def cost(self) -> Figure:
        """Share of requests within each latency limit (%) against the cost of an image (US$)."""
        return self._draw(charts.cost)

    def latency(self) -> Figure:
        """Cumulative share of requests against latency (s)."""
        return self._draw(charts.latency)

    def slo(self) -> Figure:
        """Share of requests over each latency limit (%)."""
        return self._draw(charts.slo)

    def hits(self) -> Figure:
        """Share of cache lookups by skipped steps K (%)."""
        return self._draw(charts.hits)

    def throughput(self) -> Figure:
        """Completed requests per minute."""
        return self._draw(charts.throughput)

    def over_time(self) -> Figure:
        """Queue length and busy GPUs over simulated time."""
        return self._draw(charts.over_time)

    def beliefs(self) -> Figure:
        """Seconds that the scheduler believed a request to take against those that it took."""
        return self._draw(charts.beliefs)

    def _draw(self, draw: Callable[[Sequence[ReportRun]], list[Chart]]) -> Figure:
        runs = load_runs([run.folder for run in self.runs])
        panels = draw(runs)
        if not panels:
            raise ConfigError(f"plot.{draw.__name__}: these runs have nothing to draw; mezzotint report says why")
        return Figure(picture(panels, series_styles(runs)))
