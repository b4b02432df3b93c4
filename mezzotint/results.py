"""Results of simulations as pandas frames."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import CLUSTER, REQUESTS
from mezzotint.sim.metrics.header import Header, header, run_line
from mezzotint.sim.metrics.run_files import read_config, read_summary, run_folders
from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.run.config.points import points_of

if TYPE_CHECKING:
    import pandas as pd

    from mezzotint.plots import Plots

METRICS = {
    "throughput_rpm": ("throughput_rpm",),
    "latency_mean_s": ("latency_s", "mean"),
    "latency_p50_s": ("latency_s", "p50"),
    "latency_p95_s": ("latency_s", "p95"),
    "latency_p99_s": ("latency_s", "p99"),
    "hit_rate": ("cache", "hit_rate"),
    "compute_saving": ("cache", "compute_saving"),
    "gpu_busy_fraction": ("gpu", "busy_fraction"),
    "energy_j_per_image": ("energy_j", "per_image"),
    "cost_usd_per_image": ("cost_usd", "per_image"),
    "quality_factor": ("quality", "factor_mean"),
}
"""Columns of ``Sweep.metrics`` and where summary.json has them."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder; of a run without one, a temporary folder that goes with this object.
        choices: of a point of a sweep, its overrides by group or key, such as ``{"eviction": "lru"}``; else empty.
    """

    folder: Path
    choices: Mapping[str, Any] = field(default_factory=dict, compare=False)
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
    def requests(self) -> "pd.DataFrame":
        """One row per request: the columns of requests.parquet (times in s, energy in J)."""
        return _read_parquet(self.folder / REQUESTS)

    @cached_property
    def time_series(self) -> "pd.DataFrame":
        """One row per sample of the cluster: the columns of cluster.parquet."""
        return _read_parquet(self.folder / CLUSTER)

    @property
    def plot(self) -> "Plots":
        """Figures of this run."""
        from mezzotint.plots import Plots

        return Plots([self])

    @cached_property
    def header(self) -> Header:
        """The facts that decide how the result may be read: work, times, traffic, state and load."""
        return header(self.summary, self.config)

    def __repr__(self) -> str:
        try:
            return run_line(self.summary, self.config, folder=str(self.folder))
        except ConfigError:  # its files are gone or damaged: summary says which
            return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        import pandas as pd

        facts = pd.DataFrame(self.header.rows).to_html(header=False, index=False)
        html: str = Sweep((self,)).table.T.to_html(header=False)
        return f"<p>{escape(repr(self))}</p>\n{facts}\n{html}"


@dataclass(frozen=True)
class Sweep(Sequence[Run]):
    """The finished runs of a sweep, in the order of its points."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, folder: Path, temporary: "TemporaryDirectory[str] | None" = None) -> "Sweep":
        """Find the runs below ``folder``. Raises ConfigError if there is none."""
        folders, choices = run_folders(folder), _choices(folder)
        if not folders:
            raise ConfigError(f"{folder}: holds no run; name a run folder or a sweep's folder")
        return cls(tuple(Run(each, choices.get(each.name, {}), temporary) for each in folders))

    def where(self, **choices: str | float) -> "Sweep":
        """Select the runs with these choices, by group or by the last part of a dotted key: ``capacity=1500``.

        Raises ConfigError if no run has them.
        """
        found = tuple(run for run in self.runs if all(_has(run, name, value) for name, value in choices.items()))
        if not found:
            asked = ", ".join(f"{name}={value}" for name, value in choices.items())
            known = ", ".join(dict.fromkeys(key for run in self.runs for key in run.choices))
            raise ConfigError(f"where: found no run with {asked}, expected choices of {known or 'a sweep'}")
        return Sweep(found)

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row per run: the choices that differ between the runs, the work, whose times, the load, the results.

        ``verdict`` says whether the run serves what is offered (summary.json, ``load``), and ``over_*`` is the share of
        requests over the first limit. Latencies are in s, rates a minute. What no run has is left out; ``metrics`` has
        every number.
        """
        import pandas as pd

        rows = [self._row(run) for run in self.runs]
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def _row(self, run: Run) -> dict[str, Any]:
        summary = run.summary
        limit = next(iter(summary["slo"] or ()), None)
        numbers = {
            "offered_rpm": ("load", "offered_rpm"),
            "served_rpm": ("load", "served_rpm"),
            "p95_s": ("latency_s", "p95"),
            **({f"over_{limit}": ("slo", limit, "violation_rate")} if limit else {}),
            "usd_per_image": ("cost_usd", "per_image"),
        }
        return {
            **({"system": summary["system"]} if "system" not in self._differing else {}),
            **{key: run.choices.get(key) for key in self._differing},
            "work": run.header.work,
            "basis": " + ".join(dict.fromkeys(model["basis"] for model in summary["models"])),
            "verdict": summary["load"]["verdict"],
            **{name: number_at(summary, *keys) for name, keys in numbers.items()},
        }

    @cached_property
    def _differing(self) -> list[str]:
        """The keys of choices that differ between the runs."""
        keys = dict.fromkeys(key for run in self.runs for key in run.choices)
        return [key for key in keys if len({run.choices.get(key) for run in self.runs}) > 1]

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """One row per run: system, series, load, the choices that differ between the runs, the metrics of METRICS."""
        import pandas as pd

        from mezzotint.sim.report.runs import load_runs

        differing = [key for key in self._differing if key != "system"]
        loaded = {run.path.resolve(): run for run in load_runs([run.folder for run in self.runs])}
        rows = []
        for each in self.runs:
            run = loaded[each.folder.resolve()]
            metrics = {name: run.number(*keys) for name, keys in METRICS.items()}
            limits = {f"over_{name}": run.number("slo", name, "violation_rate") for name in run.summary["slo"] or ()}
            choices = {key: each.choices.get(key) for key in differing}
            named = {"system": run.system, "series": run.series, "load": run.load.label}
            rows.append({**named, **choices, **metrics, **limits})
        return pd.DataFrame(rows)

    @property
    def plot(self) -> "Plots":
        """Figures that compare the runs."""
        from mezzotint.plots import Plots

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


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_parquet(path)


def _has(run: Run, name: str, value: str | float) -> bool:
    chosen = (run.choices[key] for key in run.choices if name in (key, key.rpartition(".")[2]))
    return any(each == _number_or_text(str(value)) for each in chosen)


def _choices(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the overrides of each point of the sweep in ``folder``, by the name of its run folder.

    Empty of a folder that no sweep has made, or whose experiment or groups are gone.
    """
    every = points_of(folder)
    pairs = ((word.lstrip("+~").partition("=") for word in point) for point in every)
    return {str(number): {key: _number_or_text(value) for key, _, value in point} for number, point in enumerate(pairs)}


def _number_or_text(value: str) -> str | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
