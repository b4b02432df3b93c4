"""Fabricated finished runs: a queue whose servers speed up with the cache, and its output files."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mezzotint.sim.metrics.recount import differences
from mezzotint.sim.report.runs import Run, load_runs

Fabricate = Callable[..., Path]


class Page(HTMLParser):
    """A page's text, its scripts, its tags and what it fetches."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cdata_elem == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


# system: (seconds a full image takes, hit rate, {K: share of hits}, share of steps saved)
SYSTEMS: dict[str, tuple[float, float | None, dict[str, float] | None, float | None]] = {
    "vanilla": (91.5, None, None, None),
    "pinecone": (91.5, 0.14, {"50": 1.0}, 0.14),
    "nirvana": (91.5, 0.78, {"5": 0.3, "10": 0.25, "15": 0.2, "20": 0.15, "25": 0.1}, 0.19),
    "modm-throughput": (55.0, 0.71, {"5": 0.12, "10": 0.2, "15": 0.2, "20": 0.18, "25": 0.2, "30": 0.1}, 0.55),
}


def queue(rate_rpm: float, service_s: float, saving: float, gpus: int, requests: int, seed: int) -> dict[str, Any]:
    """FCFS on `gpus` servers with Poisson arrivals: arrival, start and finish (s) of each request."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(60 / rate_rpm, requests))
    service = service_s * np.clip(rng.normal(1 - saving, 0.25 * min(1, 4 * saving), requests), 0.05, 1.0)
    free = np.zeros(gpus)
    start = np.empty(requests)
    for row in range(requests):
        worker = int(free.argmin())
        start[row] = max(arrival[row], free[worker])
        free[worker] = start[row] + service[row]
    return {"arrival_s": arrival, "start_s": start, "finish_s": start + service}


def spread(values: np.ndarray) -> dict[str, float]:
    """The summary's statistics of seconds."""
    return {"mean": float(values.mean()), "max": float(values.max())} | {
        f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 95, 99)
    }


def summary_of(system: str, times: dict[str, Any], *, seed: int, gpus: int, warmup: int) -> dict[str, Any]:
    """A complete schema-1 summary."""
    service_s, hit_rate, by_k, saving = SYSTEMS.get(system, SYSTEMS["nirvana"])
    kept = {name: values[warmup:] for name, values in times.items()}
    latency = kept["finish_s"] - kept["arrival_s"]
    span = kept["finish_s"].max() - kept["arrival_s"].min()
    busy = (kept["finish_s"] - kept["start_s"]).sum() / span / gpus
    count = len(latency)
    cache = {
        "hit_rate": hit_rate, "hit_share_by_k": by_k,
        "compute_saving": saving, "holes": 0, "evictions": 3, "source_age_s": {"p50": 80.0, "p90": 4000.0},
        "source_age_trace_s": {"p50": 150.0, "p90": 9000.0},
    } if hit_rate is not None else None  # fmt: skip
    trace = {"name": "synthetic", "source": "built in", "requests": len(times["arrival_s"]), "span_s": 1e4}
    late = {multiple: latency > multiple * 91.5 for multiple in (2, 4)}
    seconds = service_s * (1 - (saving or 0))
    images = count + int((times["finish_s"][:warmup] > kept["arrival_s"][0]).sum())
    return {
        "schema": 1,
        "system": system,
        "seed": seed,
        "trace": trace | {"digest": f"sha256:{'0f1e2d3c' * 8}"},
        "assumptions": [
            {"what": "text-to-image similarity", "value": "modelled: N(0.27, 0.03)", "source": "MoDM, figure 4"},
            {"what": "model switch time", "value": 12.5, "source": None},
        ],
        "requests": {"arrived": count, "completed": count, "discarded": 0, "failed": 0},
        "throughput_rpm": 60 * images / span,
        "load": {
            "offered_rpm": 60 * (count - 1) / float(np.ptp(kept["arrival_s"])),
            "served_rpm": 60 * images / span,
            "growth_per_hour": 0.0,
        }
        | {"verdict": "below", "note": None},
        "latency_s": spread(latency),
        "queue_s": spread(kept["start_s"] - kept["arrival_s"]),
        "slo": {f"{n}x": {"limit_s": n * 91.5, "violation_rate": float(late[n].mean())} for n in late},
        "cache": cache,
        "addons": None,
        "gpu": {
            **{"count": gpus, "busy_fraction": min(1.0, busy), "seconds": span * gpus},
            **{"switches": 0, "switch_s": 0.0},
        },
        "energy_j": {"per_image": 300 * seconds, "total": images * 300 * seconds},
        "cost_usd": {"per_image": 0.0004 * seconds, "total": images * 0.0004 * seconds},
        "quality": {"factor_mean": None, "below_alpha_share": None, "basis": None},
        "wall": {"simulate_s": 0.1, "cpu_s": 0.1, "requests_per_cpu_s": 1e4},
    }


def write_run(
    directory: Path,
    system: str = "nirvana",
    *,
    rate_rpm: float | None = 10.0,
    seed: int = 1,
    requests: int = 400,
    gpus: int = 16,
    warmup: int = 0,
    change: Callable[[dict[str, Any]], None] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a finished run into `directory`; `change` edits the summary, `config` replaces sections.

    A summary that is no longer that of the requests stands alone, as if their file had been removed.
    """
    service_s, _, _, saving = SYSTEMS.get(system, SYSTEMS["nirvana"])
    times = queue(rate_rpm or 10.0, service_s, saving or 0.0, gpus, requests, seed)
    summary = summary_of(system, times, seed=seed, gpus=gpus, warmup=warmup)
    if change is not None:
        change(summary)
    resolved: dict[str, Any] = {
        "system": {"name": system},
        "trace": {"_target_": "mezzotint.traces.sources.synthetic.Synthetic", "requests": requests},
        "arrivals": {"_target_": "mezzotint.traces.arrivals.poisson.Poisson", "rate_rpm": rate_rpm}
        if rate_rpm
        else {"_target_": "mezzotint.traces.arrivals.closed.Closed", "outstanding": 4},
        "cluster": {"count": gpus, "gpu": {"name": "mi210", "active_w": 300}},
        "seed": seed,
        "run": {"dir": str(directory)},
    }
    directory.mkdir(parents=True)
    (directory / "summary.json").write_text(json.dumps(summary))
    (directory / "config.yaml").write_text(yaml.safe_dump(resolved | (config or {})))
    outcome = pa.array(["completed"] * requests).dictionary_encode()
    table = pa.table(times | {"outcome": outcome})
    if change is None or not any(differences(summary, table)):
        pq.write_table(table, directory / "requests.parquet")
    clock = np.arange(0.0, times["finish_s"].max(), 60.0)
    waiting = [int(((times["arrival_s"] <= now) & (times["start_s"] > now)).sum()) for now in clock]
    serving = [int(((times["start_s"] <= now) & (times["finish_s"] > now)).sum()) for now in clock]
    stands = np.diff(clock, append=times["finish_s"].max())
    looked = {"time_s": clock, "seconds": stands, "queued": waiting, "busy": serving}
    pq.write_table(pa.table(looked), directory / "cluster.parquet")
    return directory


@pytest.fixture
def sweep(fabricate: Fabricate, tmp_path: Path) -> list[Run]:
    """Three systems at two rates, with two seeds each."""
    for system in ("vanilla", "nirvana", "modm-throughput"):
        for rate in (6.0, 16.0):
            for seed in (1, 2):
                fabricate(f"{system}-{rate}-{seed}", system, rate_rpm=rate, seed=seed, requests=200)
    return load_runs([tmp_path])


@pytest.fixture
def fabricate(tmp_path: Path) -> Fabricate:
    """`fabricate(name, system, ...)` writes a finished run into the test's folder."""

    def write(name: str, system: str = "nirvana", **changes: Any) -> Path:
        return write_run(tmp_path / name, system, **changes)

    return write
