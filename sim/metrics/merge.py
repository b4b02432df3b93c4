"""`mezzotint merge`: the summaries of the cells of one trace, joined to one."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc
import typer

from mezzotint.files.atomic import atomic_write
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.metrics.recount import COUNTED, made_in_window
from mezzotint.sim.metrics.request_columns import IMAGES
from mezzotint.sim.metrics.run_files import read_config, read_summary, read_table, run_folders
from mezzotint.sim.metrics.spread import ratio, spread
from mezzotint.sim.metrics.summary_keys import number_at

MERGED = "merged.json"

NOT_SEEN = "queues, caches and idle GPUs of one cell serve no other"

VERDICTS = ("below", "undecided", "overloaded")
"""Verdicts on the load, the best first: one cell that is overloaded is not made good by another."""


def merge(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder of the cells' sweep")],
) -> int:
    """Join the runs of all cells of a trace to one summary.

    Counts, seconds, energy and cost are sums over the cells. Percentiles are those of all requests together, read from
    the cells' requests.parquet; nothing is approximated. Writes FOLDER/merged.json.

    \b
      mezzotint run -m cells.count=8 'cells.number=range(0,8)' cluster.count=500 run.dir=day
      mezzotint merge day

    Raises:
        ConfigError: a cell is missing, was run twice, or belongs to another trace or system; a file is damaged.
    """
    folders = run_folders(folder)
    _check_complete(folder, {each: read_config(each) for each in folders})
    merged = join(folders)
    text = f"{json.dumps(merged, indent=2, allow_nan=False)}\n"
    with atomic_write(folder / MERGED, ConfigError) as temporary:
        temporary.write_text(text, encoding="utf-8")
    requests, cells = merged["requests"], merged["cells"]
    p95_s, slowest = merged["latency_s"]["p95"], cells["latency_p95_s"]["max"]
    latency = "no latency" if p95_s is None else f"p95 {p95_s:.4g} s ({slowest:.4g} s in the slowest cell)"
    print(
        f"{merged['system']}, {cells['count']} cells by {cells['by']}: {requests['completed']:,} of "
        f"{requests['arrived']:,} requests completed, {latency}; load {merged['load']['verdict']}; {NOT_SEEN} -> "
        f"{folder / MERGED}"
    )
    return 0


def _check_complete(folder: Path, configs: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raise ConfigError unless ``configs`` are those of all cells of one run, each once."""
    numbers: dict[int, Path] = {}
    first: tuple[Path, Any] | None = None
    for run, config in configs.items():
        cells = dict(config.get("cells") or {})
        number = cells.pop("number", 0)
        rest = {key: value for key, value in config.items() if key != "run"} | {"cells": cells}
        first = first or (run, rest)
        if rest != first[1]:
            key = next(key for key in rest.keys() | first[1].keys() if rest.get(key) != first[1].get(key))
            raise ConfigError(f"{run}: has another {key} than {first[0]}; merge the cells of one run alone")
        if number in numbers:
            raise ConfigError(f"{run}: holds cell {number}, as {numbers[number]} does; leave one out")
        numbers[number] = run
    if first is None:
        raise ConfigError(f"{folder}: holds no finished run; run the cells with -m and run.dir={folder}")
    count = first[1]["cells"].get("count", 1)
    if missing := sorted(set(range(count)) - set(numbers)):
        some = ", ".join(map(str, missing[:5]))
        raise ConfigError(
            f"{folder}: lacks {len(missing)} of {count} cells ({some}); add -m 'cells.number=range(0,{count})'"
        )


def join(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the summary of the cells in ``folders``, with keys of summary.json; null if a key does not apply.

    The time from the first measured arrival to the last end is that of all cells; each cell's GPUs count from its own.
    """
    summaries = [read_summary(folder) for folder in folders]
    latencies, starts, ends, completed, images = [], [], [], 0, 0
    for folder, summary in zip(folders, summaries, strict=True):
        table = read_table(folder / REQUESTS, COUNTED, [IMAGES])
        warmup = len(table) - summary["requests"]["arrived"]
        arrival_s, finish_s = (table[name].to_numpy()[warmup:] for name in COUNTED[:2])
        latencies.append((finish_s - arrival_s)[pc.equal(table["outcome"], "completed").to_numpy()[warmup:]])
        starts.append(arrival_s[0])
        ends.append(finish_s.max())
        made = made_in_window(table, warmup)
        completed, images = completed + made[0], images + made[1]

    def total(*key: str) -> float | None:
        return _total([number_at(summary, *key) for summary in summaries])

    def mean(weight: tuple[str, ...], *key: str) -> float | None:
        return _mean([(number_at(each, *key), number_at(each, *weight)) for each in summaries])

    arrived = ("requests", "arrived")
    requests = {name: total("requests", name) for name in summaries[0]["requests"]}
    hits, lookups = total("cache", "hits"), total("cache", "lookups")
    verdicts = [summary["load"]["verdict"] for summary in summaries]
    sizes = np.array([summary["requests"]["arrived"] for summary in summaries])
    p95_s = [value for summary in summaries if (value := number_at(summary, "latency_s", "p95")) is not None]
    by = (read_config(folders[0]).get("cells") or {}).get("by")
    return {
        "system": summaries[0]["system"],
        "seed": summaries[0]["seed"],
        "cells": {
            "count": len(folders),
            "by": by,
            "requests": {"min": int(sizes.min()), "max": int(sizes.max())},
            "latency_p95_s": {"min": min(p95_s, default=None), "max": max(p95_s, default=None)},
            "overloaded": verdicts.count("overloaded"),
            "not_seen": NOT_SEEN,
        },
        "requests": requests,
        "throughput_rpm": ratio(60 * completed, max(ends) - min(starts)),
        "load": {
            "offered_rpm": total("load", "offered_rpm"),
            "served_rpm": total("load", "served_rpm"),
            "verdict": max(verdicts, key=VERDICTS.index),
        },
        "latency_s": spread(np.concatenate(latencies)),
        "slo": {
            limit: {"violation_rate": mean(arrived, "slo", limit, "violation_rate")} for limit in summaries[0]["slo"]
        },
        "cache": {
            "lookups": lookups,
            "hits": hits,
            "hit_rate": None if hits is None or not lookups else hits / lookups,
        },
        "gpu": {
            "count": total("gpu", "count"),
            "seconds": total("gpu", "seconds"),
            "busy_fraction": mean(("gpu", "seconds"), "gpu", "busy_fraction"),
        },
        **{
            key: {"total": amount, "per_image": None if amount is None else ratio(amount, images)}
            for key in ("energy_j", "cost_usd")
            for amount in (total(key, "total"),)
        },
    }


def _total(values: Sequence[float | None]) -> float | None:
    """Return the sum; None if a cell lacks its value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return sum(known) if all(isinstance(value, int) for value in known) else math.fsum(known)


def _mean(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Return the mean of (value, weight); None if a cell lacks one."""
    weights = _total([weight for _, weight in pairs])
    weighted = _total([None if value is None or weight is None else value * weight for value, weight in pairs])
    return ratio(weighted, weights) if weighted is not None and weights is not None else None
