"""A finished run in the keys of the results of vLLM-Omni's diffusion benchmark, to be laid beside a measured one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.slo import parse_limit
from sim.study.compare import slo_multiples
from sim.study.runs import ReportError, Run, load_runs, whole_table

STAGES = ("search_s", "fetch_s", "load_s", "denoise_s", "decode_s")
"""Columns of requests.parquet that are seconds of a stage; queueing is the time before the first of a GPU."""


def vllm_omni(dirs: Sequence[Path]) -> dict[str, Any]:
    """The results of the one run in ``dirs``; seconds, and null where nothing is known of it.

    Raises:
        ReportError: no run, several of them, or one without its requests.
    """
    runs = load_runs(dirs)
    if len(runs) > 1:
        raise ReportError(f"--format vllm-omni: found {len(runs)} runs, expected one; name its directory")
    (run,) = runs
    return _results(run)


def _results(run: Run) -> dict[str, Any]:
    path = run.path / "requests.parquet"
    columns = whole_table(path, ("arrival_s", "start_s", "finish_s", "outcome", *STAGES))
    if columns is None:
        raise ReportError(f"{path}: is missing, and the results are about its requests; make the run again")
    rows = columns.to_pandas()
    arrived = run.number("requests", "arrived")
    if arrived is not None and 0 < arrived < len(rows):  # the warm-up is left out, as the summary leaves it out
        rows = rows.sort_values("arrival_s", kind="stable").tail(int(arrived))
    done = rows[rows["outcome"] == "completed"]
    latency_s = (done["finish_s"] - done["arrival_s"]).to_numpy(float)
    duration_s = float(rows["finish_s"].max() - rows["arrival_s"].min()) if len(rows) else 0.0
    found: dict[str, Any] = {
        "duration": duration_s,
        "completed_requests": len(done),
        "failed_requests": len(rows) - len(done),
        "throughput_qps": len(done) / duration_s if duration_s > 0 else None,
        "latency_mean": _of(latency_s, np.mean),
        "latency_median": _of(latency_s, np.median),
        **{f"latency_p{share}": _at(latency_s, share) for share in (50, 95, 99)},
        **{f"peak_memory_mb_{name}": None for name in ("max", "mean", "median")},
    }
    queue_s = done["start_s"] - done["arrival_s"] - done["search_s"].fillna(0.0)
    stages = {"queue": queue_s.clip(lower=0.0)} | {name.removesuffix("_s"): done[name].fillna(0.0) for name in STAGES}
    for key, share in (("mean", None), ("p50", 50), ("p99", 99)):
        found[f"stage_durations_{key}"] = {
            name: _of(values.to_numpy(float), np.mean) if share is None else _at(values.to_numpy(float), share)
            for name, values in stages.items()
        }
    return found | _slo(run, len(rows)) | _about(run)


def _slo(run: Run, arrived: int) -> dict[str, Any]:
    """Of the tightest multiple of the standalone latency; without one, of the tightest limit in seconds."""
    names = slo_multiples([run])
    if not names:
        return {"slo_attainment_rate": None, "slo_met_success": None, "slo_scale": None}
    limit = parse_limit(names[0])
    late = run.number("slo", names[0], "violation_rate")
    return {
        "slo_attainment_rate": None if late is None else 1 - late,
        "slo_met_success": None if late is None else round((1 - late) * arrived),
        "slo_scale": limit.value if limit.unit == "x" else None,
    }


def _about(run: Run) -> dict[str, Any]:
    model = next(
        (str(value) for key, value in run.config.items() if key.startswith("models.") and key.endswith(".name")), None
    )
    return {"backend": "mezzotint", "model": model, "dataset": (run.summary["trace"] or {}).get("name"), "task": "t2i"}


def _of(values: Any, statistic: Any) -> float | None:
    return float(statistic(values)) if len(values) else None


def _at(values: Any, percentile: int) -> float | None:
    return float(np.percentile(values, percentile)) if len(values) else None
