"""Finding and reading finished runs: `summary.json`, and the columns a figure asks for."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from conf.document import DocumentError, parse
from conf.printable import printable
from sim.study.identity import (
    FlatConfig,
    Load,
    Scalar,
    Setting,
    families,
    flatten,
    load_of,
    natural,
    seeds_of,
    series_labels,
)
from sim.study.served import Served, Work, served

Floats = NDArray[np.float64]

_SCHEMA = 1
_PERCENTILES = ("mean", "p50", "p99")
# What a report reads; a key that does not apply must be null, so a key that is absent is a broken file.
_NUMBERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("requests", ("arrived", "completed", "discarded", "failed")),
    ("latency_s", _PERCENTILES),
    ("queue_s", _PERCENTILES),
    ("cache", ("hit_rate", "compute_saving")),
    ("gpu", ("count", "busy_fraction")),
    ("energy_j", ("per_image",)),
    ("cost_usd", ("per_image",)),
)
_SHARES = frozenset({"hit_rate", "busy_fraction", "violation_rate"})
_TOP = ("system", "seed", "trace", "assumptions", "throughput_rpm", "slo")


class ReportError(ValueError):
    """Runs that cannot be reported on; the message names the file and says what to do."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run.

    `name` is its directory as the user would write it, `series` what it is called (its system, and what else tells it
    apart from the other runs loaded with it), `config` the resolved configuration by dotted key. Where the runs vary
    one number, `setting` is that number and `family` the series without it: the curve that the run is a point of.
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

    @property
    def replica(self) -> tuple[Scalar, ...]:
        """Every seed of the run; runs of one series and load that agree in it are reruns of one simulation."""
        return seeds_of(self.config, self.seed)

    @property
    def models(self) -> tuple[Served, ...]:
        """The models that it served with, the reference model first."""
        return served(self.summary, self.config)

    @property
    def work(self) -> Work | None:
        """The images that it makes, by its reference model; None where nothing tells."""
        models = self.models
        return models[0].work if models else None

    @property
    def backlog_grows(self) -> bool:
        """Whether more came than was served for as long as requests came; runs of earlier versions do not tell."""
        backlog = self.summary.get("backlog")
        return isinstance(backlog, Mapping) and backlog.get("grows") is True

    @property
    def seed(self) -> int | None:
        """The run's seed, None where the summary does not tell."""
        seed = self.summary["seed"]
        return seed if isinstance(seed, int) else None

    def number(self, *keys: str) -> float | None:
        """The number in the summary under `keys`; None where it, or anything on the way to it, is null."""
        value: Any = self.summary
        for key in keys:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)


def load_runs(dirs: Sequence[Path]) -> list[Run]:
    """Every finished run in or below `dirs`, each once, ordered by series, load, seed and name.

    Raises:
        ReportError: a directory that is missing or holds no run, or a run that cannot be read.
    """
    if not dirs:
        raise ReportError("no directory was given; name a run directory or a folder of runs")
    found: dict[Path, tuple[Path, str]] = {}
    for directory in dirs:
        for path in _find(directory):
            inner = path.relative_to(directory).as_posix()
            base = directory.name or directory.resolve().name
            found.setdefault(path.resolve(), (path, printable(base if inner == "." else f"{base}/{inner}")))
    places = list(found.values())
    # Quiet where standard error is no terminal, and where the runs are read before a bar would be seen.
    bar = tqdm(places, desc="runs", unit="run", disable=None, delay=0.5, leave=False)
    summaries = [_summary(path / "summary.json") for path, _ in bar]
    configs = [_config(path, summary) for (path, _), summary in zip(places, summaries, strict=True)]
    systems = [
        printable(str(summary["system"] or config.get("system.name") or path.name))
        for (path, _), summary, config in zip(places, summaries, configs, strict=True)
    ]
    labels, curves = series_labels(systems, configs), families(systems, configs)
    runs = [
        Run(path, name, summary, config, system, label, load_of(config), *curve)
        for (path, name), summary, config, system, label, curve in zip(
            places, summaries, configs, systems, labels, curves, strict=True
        )
    ]
    return sorted(
        runs, key=lambda run: (natural(run.series), run.load.order, run.seed is None, run.seed or 0, run.name)
    )


MOST_S = 1e12
"""What a time of a finished run is below: 30,000 years. No queue is as long either."""


def latency_quantiles(run: Run, probabilities: Floats) -> Floats | None:
    """Quantiles (s) of arrival-to-finish time over the completed requests of the measured window.

    Warm-up requests are left out as the summary leaves them out: the last `requests.arrived` arrivals count.
    None without a requests.parquet or without one completed request.
    """
    table = whole_table(run.path / "requests.parquet", ("arrival_s", "finish_s", "outcome"))
    if table is None:
        return None
    arrival = _floats(table, "arrival_s")
    with np.errstate(over="ignore"):
        latency = _floats(table, "finish_s") - arrival
    keep = np.asarray(pc.equal(table["outcome"].cast(pa.string()), "completed").fill_null(False))
    keep &= np.abs(latency) < MOST_S
    arrived = run.number("requests", "arrived")
    if arrived is not None and 0 < arrived < len(arrival):
        keep &= arrival >= np.partition(arrival, -int(arrived))[-int(arrived)]
    return np.quantile(latency[keep], probabilities) if keep.any() else None


def time_series(run: Run, column: str, points: int) -> tuple[Floats, Floats] | None:
    """Time (s) and a column of cluster.parquet, its mean over each of up to `points` equal spans; None if absent.

    A row counts for as long as it stands: a pause, however long, is one row.
    """
    table = table_of(run.path / "cluster.parquet", ("time_s", "seconds", column))
    if table is None or not {"time_s", column} <= set(table.column_names):
        return None
    time, value = _floats(table, "time_s"), _floats(table, column)
    stands = _floats(table, "seconds") if "seconds" in table.column_names else np.diff(time, append=time[-1:])
    known = (np.abs(value) < MOST_S) & (np.abs(time) + np.abs(stands) < MOST_S)  # NaN is not below either
    time, value, stands = time[known], value[known], stands[known]
    if not len(time):
        return None
    order = np.argsort(time, kind="stable")
    time, value, stands = time[order], value[order], stands[order]
    if len(time) <= points or time[-1] == time[0]:
        return time, value
    edges = np.linspace(time[0], time[-1] + stands[-1], points + 1)
    elapsed, area = (_inside(time, stands, edges, rate) for rate in (np.ones(len(time)), value))
    filled = elapsed > 0
    return ((edges[1:] + edges[:-1]) / 2)[filled], area[filled] / elapsed[filled]


def _inside(time: Floats, stands: Floats, edges: Floats, rate: Floats) -> Floats:
    """The integral, between each two `edges`, of what is `rate` from each `time` on for as long as it `stands`."""
    corners = np.column_stack([time, time + stands]).ravel()
    integral = np.column_stack([np.zeros(len(time)), rate * stands]).ravel().cumsum()
    return np.diff(np.interp(edges, corners, integral))


def _find(directory: Path) -> Iterator[Path]:
    """Run directories in or below `directory`; what is hidden is a run that is still being written."""
    if not directory.exists():
        raise ReportError(f"{directory}: no such directory; give the run.dir of a run, or a folder of runs")
    if not directory.is_dir():
        raise ReportError(f"{directory}: is a file; give the run directory that holds it")
    none = True
    for here, below, files in os.walk(directory):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if "summary.json" in files:
            below.clear()
            none = False
            yield Path(here)
    if none:
        raise ReportError(
            f"{directory}: holds no finished run (no summary.json in it or below it); "
            "make one with `mezzotint run run.dir=PATH`, or wait until the run has ended"
        )


def _summary(path: Path) -> Mapping[str, Any]:
    def whole(digits: str) -> int:
        try:
            float(number := int(digits))
        except (ValueError, OverflowError) as error:
            raise ReportError(
                f"{path}: has a number of {len(digits)} digits, too large to be one of a run; {_again(path)}"
            ) from error
        return number

    try:
        summary = json.loads(path.read_text(encoding="utf-8"), parse_int=whole)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: is not valid JSON ({error}); {_again(path)}") from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if not isinstance(summary, Mapping):
        raise _wrong(path, "the top level", summary, "an object")
    if "schema" not in summary:
        raise _missing(path, "schema")
    if summary["schema"] != _SCHEMA or isinstance(summary["schema"], bool):
        raise ReportError(
            f"{path}: key 'schema' is {summary['schema']!r}, this version reads {_SCHEMA}; "
            "report it with the version of mezzotint that wrote it, or run it again with this one"
        )
    for key in _TOP:
        if key not in summary:
            raise _missing(path, key)
    for section, keys in _NUMBERS:
        _check_numbers(path, summary, section, section, keys)
    if isinstance(summary["cache"], Mapping):
        _check_numbers(path, summary["cache"], "cache.hit_share_by_k", "hit_share_by_k", ())
    for multiple in _section(path, summary, "slo", "slo") or {}:
        _check_numbers(path, summary["slo"], f"slo.{multiple}", multiple, ("limit_s", "violation_rate"))
    _number(path, "throughput_rpm", summary["throughput_rpm"])
    _section(path, summary, "trace", "trace")
    assumptions = summary["assumptions"]
    if assumptions is not None and not (
        isinstance(assumptions, list) and all(isinstance(row, Mapping) for row in assumptions)
    ):
        raise _wrong(path, "key 'assumptions'", assumptions, "a list of {what, value, source}")
    return summary


def _check_numbers(path: Path, tree: Mapping[str, Any], name: str, key: str, required: Sequence[str]) -> None:
    section = _section(path, tree, name, key)
    if section is None:
        return
    for inner in required or section:
        if inner not in section:
            raise _missing(path, f"{name}.{inner}")
        _number(path, f"{name}.{inner}", section[inner])


def _section(path: Path, tree: Mapping[str, Any], name: str, key: str) -> Mapping[str, Any] | None:
    if key not in tree:
        raise _missing(path, name)
    section = tree[key]
    if section is not None and not isinstance(section, Mapping):
        raise _wrong(path, f"key '{name}'", section, "an object or null")
    return section


def _number(path: Path, name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, f"key '{name}'", value, "a number or null")
    share = name.rsplit(".", 1)[-1] in _SHARES or name.startswith("cache.hit_share_by_k.")
    if share and not -1e-9 <= value <= 1 + 1e-9 and math.isfinite(value):
        raise _wrong(path, f"key '{name}'", value, "a share from 0 to 1")


def _missing(path: Path, key: str) -> ReportError:
    return ReportError(f"{path}: key '{key}' is missing from what should be a whole summary; {_again(path)}")


def _wrong(path: Path, where: str, found: object, expected: str) -> ReportError:
    return ReportError(f"{path}: {where} is {str(found)[:60]!r}, expected {expected}; {_again(path)}")


def _again(path: Path) -> str:
    return f"run it again, or remove {path.parent}"


def _config(path: Path, summary: Mapping[str, Any]) -> FlatConfig:
    """The resolved configuration; of a trace in a file its digest too, since files of one name may differ."""
    config = flatten(_yaml(path / "config.yaml") or {})
    digest = (summary["trace"] or {}).get("digest")
    if config.get("trace.path") and isinstance(digest, str):
        config["trace.digest"] = digest.removeprefix("sha256:")[:12]
    return config


def _yaml(path: Path) -> Any:
    """The mapping in `path`, None if there is no such file."""
    if not path.is_file():
        return None
    try:
        tree = parse(path.read_bytes())
    except DocumentError as error:
        raise ReportError(f"{path}: is not valid YAML ({error}); {_again(path)}") from error
    if tree is not None and not isinstance(tree, Mapping):
        raise _wrong(path, "the top level", tree, "a mapping")
    return tree


def table_of(path: Path, columns: Sequence[str]) -> pa.Table | None:
    """Those of ``columns`` that a run's Parquet file has; None where there is no file.

    Raises ReportError where it cannot be read, or a column is there twice or holds no numbers (outcome: words).
    """
    if not path.is_file():
        return None
    try:
        with pa.OSFile(str(path)) as source:  # opened here: Arrow takes a path with a colon for a URI
            schema = pq.read_schema(source)
        present = [column for column in columns if column in schema.names]
        for column in present:
            kind = schema.field(schema.get_all_field_indices(column)[0]).type
            if len(schema.get_all_field_indices(column)) > 1:
                raise ReportError(f"{path}: column '{column}' is there twice; {_again(path)}")
            if column != "outcome" and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise ReportError(f"{path}: column '{column}': found {kind}, expected numbers; {_again(path)}")
        with (
            pa.OSFile(str(path)) as source,
            pq.ParquetFile(source, read_dictionary=[name for name in present if name == "outcome"]) as file,
        ):
            return file.read(columns=present)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of damaged names of columns
        detail = " ".join(str(error).split())
        raise ReportError(f"{path}: is not a readable Parquet file ({detail}); {_again(path)}") from error


def whole_table(path: Path, columns: Sequence[str]) -> pa.Table | None:
    """As ``table_of``, but each of ``columns`` has to be there: raises ReportError, too, for the first that is not."""
    table = table_of(path, columns)
    missing = [] if table is None else [column for column in columns if column not in table.column_names]
    if missing:
        raise ReportError(f"{path}: column '{missing[0]}' is missing; {_again(path)}")
    return table


def _floats(table: pa.Table, column: str) -> Floats:
    return np.asarray(table[column].to_numpy(zero_copy_only=False), dtype=np.float64)
