"""Reader of finished runs: their summaries, labels and the columns that figures need."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.files.printable import printable
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import CLUSTER, REQUESTS, SUMMARY
from mezzotint.sim.metrics.header import Header, header, is_overloaded
from mezzotint.sim.metrics.run_files import read_columns, read_config, read_summary
from mezzotint.sim.metrics.served import ServedModel, served_models
from mezzotint.sim.metrics.summary_keys import number_at
from mezzotint.sim.report.labels import FlatConfig, Load, Scalar, Setting, flatten, labels, load_of, natural, seeds_of

Floats = NDArray[np.float64]

MAX_S = 1e12
"""Bound of every plausible time (30,000 years) and queue length of a run."""


MAX_FOLDERS = 20_000
"""Bound of the folders without a run among which runs are searched for; reading their names takes a second."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run.

    Attributes:
        name: its folder as the user would write it.
        config: the resolved configuration by dotted key; ``tree`` as it is saved.
        series: its system, with the settings that distinguish it from the other loaded runs.
        setting: the number that the runs vary, if they vary one.
        family: the series without `setting`: the curve that the run is a point of.
    """

    path: Path
    name: str
    summary: Mapping[str, Any]
    config: FlatConfig
    system: str
    series: str
    load: Load
    family: str = ""
    setting: Setting | None = None
    tree: Mapping[str, Any] = field(default_factory=dict)

    @property
    def header(self) -> Header:
        """The facts that decide how the result may be read: work, times, traffic, state and load."""
        return header(self.summary, self.tree)

    @property
    def replica(self) -> tuple[Scalar, ...]:
        """All seeds of the run; equal ones in one series and load mean reruns of one simulation."""
        return seeds_of(self.config, self.seed)

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """The run's models, the reference model first."""
        return served_models(self.summary)

    @property
    def gpu_kinds(self) -> list[str]:
        """The names of the run's kinds of GPU."""
        named = re.compile(r"cluster\.(gpu\.name|pools\.\d+\.gpu(\.name)?)")
        return list(dict.fromkeys(str(value) for key, value in self.config.items() if named.fullmatch(key) and value))

    @property
    def load_verdict(self) -> str | None:
        """Whether the system served what was offered: below, overloaded or undecided; None if the summary lacks it."""
        verdict: str | None = (self.summary["load"] or {}).get("verdict")
        return verdict

    @property
    def is_overloaded(self) -> bool:
        """True if the system served less than was offered."""
        return is_overloaded(self.summary)

    @property
    def seed(self) -> int | None:
        """The run's seed; None if the summary lacks it."""
        seed = self.summary["seed"]
        return seed if isinstance(seed, int) else None

    def number(self, *keys: str) -> float | None:
        """Return the number in the summary under `keys`; None if there is none."""
        return number_at(self.summary, *keys)


def load_runs(dirs: Sequence[Path]) -> list[Run]:
    """Return every finished run in or below `dirs` once, ordered by series, load, seed and name.

    Raises:
        ConfigError: a directory is missing or holds no run, or a run cannot be read.
    """
    names: dict[Path, tuple[Path, str]] = {}
    for directory in dirs:
        for path in _find(directory):
            inner = path.relative_to(directory).as_posix()
            base = directory.name or directory.resolve().name
            names.setdefault(path.resolve(), (path, printable(base if inner == "." else f"{base}/{inner}")))
    runs = []
    # hidden if standard error is no terminal, or if reading ends before a bar would be seen
    for path, name in tqdm(names.values(), desc="runs", unit="run", disable=None, delay=0.5, leave=False):
        summary = read_summary(path)
        tree = read_config(path)
        config = _config(tree, summary)
        system = printable(str(summary["system"] or config.get("system.name") or path.name))
        runs.append(Run(path, name, summary, config, system, system, load_of(config), tree=tree))
    named = labels([run.system for run in runs], [run.config for run in runs])
    runs = [
        replace(run, series=series, family=family, setting=setting)
        for run, (series, family, setting) in zip(runs, named, strict=True)
    ]
    return sorted(
        runs, key=lambda run: (natural(run.series), run.load.order, run.seed is None, run.seed or 0, run.name)
    )


def latency_quantiles(run: Run, probabilities: Floats) -> Floats | None:
    """Return quantiles (s) of arrival-to-finish time over the completed requests of the measured window.

    None without a requests.parquet or a completed request.
    """
    if not (run.path / REQUESTS).is_file():
        return None
    rows = read_measured(run, ("arrival_s", "finish_s", "outcome"))
    with np.errstate(over="ignore"):
        latency = (rows.finish_s - rows.arrival_s)[rows.outcome == "completed"].to_numpy(float)
    latency = latency[np.abs(latency) < MAX_S]
    return np.quantile(latency, probabilities) if len(latency) else None


def read_measured(run: Run, columns: Sequence[str], optional: Sequence[str] = ()) -> pd.DataFrame:
    """Return columns of the requests after the warm-up, by arrival: the last `requests.arrived` rows.

    Args:
        optional: further columns, where the file has them.
    """
    rows = read_columns(run.path / REQUESTS, columns, optional)
    arrived = run.number("requests", "arrived")
    if arrived is None or not 0 < arrived < len(rows):
        return rows
    return rows.sort_values("arrival_s", kind="stable").tail(int(arrived))


def time_series(run: Run, column: str, points: int) -> tuple[Floats, Floats] | None:
    """Return the times (s) and means of a column of cluster.parquet over up to `points` equal spans; None if absent.

    A row is weighted by its duration: a pause, however long, is one row.
    """
    if not (run.path / CLUSTER).is_file():
        return None
    rows = read_columns(run.path / CLUSTER, (), ("time_s", "seconds", column))
    if not {"time_s", column} <= set(rows):
        return None
    rows = rows.sort_values("time_s", kind="stable")
    time, value = rows.time_s.to_numpy(), rows[column].to_numpy()
    held_s = rows.seconds.to_numpy() if "seconds" in rows else np.diff(time, append=time[-1:])
    known = (np.abs(value) < MAX_S) & (np.abs(time) + np.abs(held_s) < MAX_S)  # False for NaN
    time, value, held_s = time[known], value[known], held_s[known]
    if not len(time):
        return None
    if len(time) <= points or time[-1] == time[0]:
        return time, value
    edges = np.linspace(time[0], time[-1] + held_s[-1], points + 1)
    elapsed, area = (_inside(time, held_s, edges, rate) for rate in (np.ones(len(time)), value))
    filled = elapsed > 0
    return ((edges[1:] + edges[:-1]) / 2)[filled], area[filled] / elapsed[filled]


def _inside(time: Floats, held_s: Floats, edges: Floats, rate: Floats) -> Floats:
    """Integrate, between each two `edges`, the function that is `rate` from each `time` on for `held_s`."""
    corners = np.column_stack([time, time + held_s]).ravel()
    integral = np.column_stack([np.zeros(len(time)), rate * held_s]).ravel().cumsum()
    return np.diff(np.interp(edges, corners, integral))


def _find(directory: Path) -> Iterator[Path]:
    """Yield run folders in or below `directory`, without hidden ones: runs that are still being written.

    Raises ConfigError where there is none, or where MAX_FOLDERS hold none: the search would take minutes.
    """
    if not directory.exists():
        raise ConfigError(f"{directory}: no such directory; give the run.dir of a run, or a folder of runs")
    if not directory.is_dir():
        raise ConfigError(f"{directory}: found a file, expected a run directory; give the directory that holds it")
    has_run, others = False, 0
    walked = tqdm(os.walk(directory), desc="look for runs", unit="folder", disable=None, delay=0.5, leave=False)
    for here, below, files in walked:
        below[:] = sorted(name for name in below if not name.startswith("."))
        if SUMMARY in files:
            below.clear()
            has_run = True
            yield Path(here)
        elif (others := others + 1) > MAX_FOLDERS:
            raise ConfigError(
                f"{directory}: holds more than {MAX_FOLDERS:,} folders without a run; give the run directories, or the "
                "folder that holds nothing else"
            )
    if not has_run:
        remedy = "make one with `mezzotint run run.dir=PATH`, or wait until the run has ended"
        raise ConfigError(f"{directory}: holds no finished run (no summary.json in it or below it); {remedy}")


def _config(tree: Mapping[str, Any], summary: Mapping[str, Any]) -> FlatConfig:
    """Return the resolved configuration, with the digest of a trace file, since files of one name may differ."""
    config = flatten(tree)
    digest = (summary["trace"] or {}).get("digest")
    if config.get("trace.path") and isinstance(digest, str):
        config["trace.digest"] = digest.removeprefix("sha256:")[:12]
    return config
