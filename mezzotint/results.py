"""Results of simulations as pandas frames and matplotlib figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, overload

import pandas as pd
from matplotlib.figure import Figure

from sim.core.errors import ConfigError
from sim.core.run_folder import CLUSTER, REQUESTS
from sim.metrics.run_files import read_config, read_summary, run_folders
from sim.report.figures import panels as figures
from sim.report.figures.over_time import over_time
from sim.report.runs import Run as ReportRun
from sim.report.runs import load_runs
from sim.report.tables import QUALITY

METRICS = {
    "throughput_rpm": ("throughput_rpm",),
    "latency_mean_s": ("latency_s", "mean"),
    "latency_p50_s": ("latency_s", "p50"),
    "latency_p95_s": ("latency_s", "p95"),
    "latency_p99_s": ("latency_s", "p99"),
    "hit_rate": ("cache", "hit_rate"),
    "gpu_busy_fraction": ("gpu", "busy_fraction"),
    "energy_j_per_image": ("energy_j", "per_image"),
    "cost_usd_per_image": ("cost_usd", "per_image"),
    "quality_factor": QUALITY,
}
"""Columns of ``Sweep.table`` and where summary.json has them."""


@dataclass(frozen=True)
class Plots:
    """The report's figures of some runs. Each method returns a matplotlib figure.

    Raises ConfigError if the runs have nothing to draw, such as hits without a cache.
    """

    runs: Sequence["Run"]

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
        return figure


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder; of a run without one, a temporary folder that goes with this object.
    """

    folder: Path
    _temporary: "TemporaryDirectory[str] | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json. Raises ConfigError if it is missing or damaged."""
        return read_summary(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration of the run."""
        return read_config(self.folder)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request: the columns of requests.parquet (times in s, energy in J)."""
        return pd.read_parquet(self.folder / REQUESTS)

    @cached_property
    def time_series(self) -> pd.DataFrame:
        """One row per sample of the cluster: the columns of cluster.parquet."""
        return pd.read_parquet(self.folder / CLUSTER)

    @property
    def plot(self) -> Plots:
        """Figures of this run."""
        return Plots([self])

    def _repr_html_(self) -> str:
        html: str = Sweep((self,)).table.T.to_html(header=False)
        return f"<p>{escape(str(self.folder))}</p>\n{html}"


@dataclass(frozen=True)
class Sweep(Sequence[Run]):
    """The finished runs of a sweep, in the order of its points."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, folder: Path, temporary: "TemporaryDirectory[str] | None" = None) -> "Sweep":
        """Find the runs below ``folder``. Raises ConfigError if there is none."""
        folders = run_folders(folder)
        if not folders:
            raise ConfigError(f"{folder}: holds no run; name a run folder or a sweep's folder")
        return cls(tuple(Run(each, temporary) for each in folders))

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per run: its series, its load (requests per minute), and the metrics of METRICS."""
        loaded = {run.path.resolve(): run for run in load_runs([run.folder for run in self.runs])}
        rows = []
        for run in (loaded[each.folder.resolve()] for each in self.runs):
            metrics = {name: run.number(*keys) for name, keys in METRICS.items()}
            limits = {f"over_{name}": run.number("slo", name, "violation_rate") for name in run.summary["slo"] or ()}
            rows.append({"system": run.system, "series": run.series, "load": run.load.label, **metrics, **limits})
        return pd.DataFrame(rows)

    @property
    def plot(self) -> Plots:
        """Figures that compare the runs."""
        return Plots(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Run, ...]: ...

    def __getitem__(self, index: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def _repr_html_(self) -> str:
        html: str = self.table.to_html(index=False)
        return html
