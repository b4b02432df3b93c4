"""Results of a finished run in the keys of vLLM-Omni's diffusion benchmark, for comparison with a measured one."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.slo import OWN, parse_limit
from mezzotint.sim.report.compare import slo_multiples
from mezzotint.sim.report.runs import Run, load_runs, read_measured

STAGES = ("search_s", "fetch_s", "load_s", "denoise_s", "decode_s")
"""Columns of requests.parquet with the seconds of a stage; the queue stage ends when a GPU begins."""


def vllm_omni(dirs: Sequence[Path]) -> dict[str, Any]:
    """Return the results of the one run in ``dirs``, in seconds, with null for unknown ones.

    Raises:
        ConfigError: there is no run, or more than one.
    """
    runs = load_runs(dirs)
    if len(runs) > 1:
        raise ConfigError(f"--format vllm-omni: found {len(runs)} runs, expected one; name its directory")
    run = runs[0]
    rows = read_measured(run, ("arrival_s", "start_s", "finish_s", "outcome", *STAGES))
    done = rows[rows["outcome"] == "completed"]
    latency_s = done["finish_s"] - done["arrival_s"]
    duration_s = float(rows["finish_s"].max() - rows["arrival_s"].min()) if len(rows) else 0.0
    results: dict[str, Any] = {
        "duration": duration_s,
        "completed_requests": len(done),
        "failed_requests": len(rows) - len(done),
        "throughput_qps": len(done) / duration_s if duration_s > 0 else None,
        "latency_mean": _finite_or_none(latency_s.mean()),
        "latency_median": _finite_or_none(latency_s.median()),
        **{f"latency_p{share}": _finite_or_none(latency_s.quantile(share / 100)) for share in (50, 95, 99)},
        **{f"peak_memory_mb_{name}": None for name in ("max", "mean", "median")},
    }
    queue_s = done["start_s"] - done["arrival_s"] - done["search_s"].fillna(0.0)
    stages = {"queue": queue_s.clip(lower=0.0)} | {name.removesuffix("_s"): done[name].fillna(0.0) for name in STAGES}
    for key, share in (("mean", None), ("p50", 0.5), ("p99", 0.99)):
        results[f"stage_durations_{key}"] = {
            name: _finite_or_none(values.mean() if share is None else values.quantile(share))
            for name, values in stages.items()
        }
    names = (str(run.config[key]) for key in run.config if key.startswith("models.") and key.endswith(".name"))
    dataset = (run.summary["trace"] or {}).get("name")
    about = {"backend": "mezzotint", "model": next(names, None), "dataset": dataset, "task": "t2i"}
    return results | _slo(run, len(rows)) | about


def _slo(run: Run, arrived: int) -> dict[str, Any]:
    """Return the results for the requests' own deadlines, else the tightest multiple of the standalone latency, else
    the tightest limit in seconds."""
    names = slo_multiples([run])
    if not names:
        return {"slo_attainment_rate": None, "slo_met_success": None, "slo_scale": None}
    limit = None if names[0] == OWN else parse_limit(names[0])
    late = run.number("slo", names[0], "violation_rate")
    arrived = round(run.number("slo", OWN, "requests") or 0) if limit is None else arrived
    return {
        "slo_attainment_rate": None if late is None else 1 - late,
        "slo_met_success": None if late is None else round((1 - late) * arrived),
        "slo_scale": limit.value if limit is not None and limit.unit == "x" else None,
    }


def _finite_or_none(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
