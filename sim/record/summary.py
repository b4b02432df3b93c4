"""The summary of a run: summary.json, schema 1.

All rates and times are over the measured window, which begins with the arrival of the first request after the
warm-up and ends when the last request ends. README's "What the numbers mean" defines every key.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Work, whole
from sim.engine import Engine, Wall
from sim.record.columns import (
    COMPLETED,
    DISCARDED,
    EMPTY,
    FAILED,
    FORGONE_MATCH,
    HIT,
    LOOKUPS,
    MISS,
    NO_DATABASE,
    NO_STORE,
    PREDICTED_MISS,
    STALE,
)
from sim.record.cost import Service, cost
from sim.record.quality import Judgement
from sim.request import MISSING
from traces.schema import Trace

SCHEMA = 1

PREDICTED = [
    "precision",
    "recall",
    "predicted_misses",
    "wasted_searches",
    "wasted_search_s",
    "retrainings",
    "retrain_s",
]
"""Keys of ``cache.predictor``."""

Reals = NDArray[np.float64]


def summarise(
    engine: Engine,
    trace: Trace,
    wall: Wall,
    *,
    system: str,
    slo: Sequence[float],
    warmup: int,
    services: Mapping[str, Service],
    judged: Judgement | None,
) -> dict[str, Any]:
    """Everything that summary.json holds of a finished run, as plain Python values; null where it does not apply.

    Args:
        engine: the engine after ``run``.
        trace: what was replayed.
        wall: the time that simulating took.
        system: the system's name.
        slo: latency limits, as multiples of the large model's standalone latency.
        warmup: requests at the head of the run that are left out.
        services: what the system pays for beside the GPUs, by name.
        judged: the quality of images that were not made; None where a live backend made them.
    """
    view = Window(engine, warmup)
    busy_s, energy_j = view.gpu()
    gpu_s = len(engine.workers) * view.span_s
    idle_w = engine.gpu.idle_w
    energy_j = None if energy_j is None or idle_w is None else energy_j + idle_w * (gpu_s - busy_s)
    completed = int(view.completed.sum())
    if engine.gpu.active_w is not None:
        engine.assume("GPU power, at work and idle [W]", [engine.gpu.active_w, engine.gpu.idle_w], engine.gpu.source)
    cost_usd = cost(engine, services, view.span_s, completed)
    limits = view.standalone_s()
    return {
        "schema": SCHEMA,
        "system": system,
        "seed": engine.seed,
        "trace": {
            "name": trace.name,
            "source": trace.source,
            "requests": len(trace),
            "span_s": trace.span_s,
            "digest": trace.digest,
        },
        "assumptions": [
            {"what": said.what, "value": said.value, "source": said.source} for said in engine.assumptions()
        ],
        "requests": {
            "arrived": len(view.outcome),
            "completed": completed,
            "discarded": int((view.outcome == DISCARDED).sum()),
            "failed": int((view.outcome == FAILED).sum()),
        },
        "throughput_rpm": _ratio(60 * view.completions(), view.span_s),
        "latency_s": spread(view.latency_s[view.completed]),
        "queue_s": spread(view.queue_s[view.completed]),
        "slo": {f"{multiple:g}x": view.violations(multiple * limits) for multiple in slo},
        "cache": view.cache(),
        "addons": {
            "loads_per_request": {"controlnet": None, "lora": None},
            "stall_s": {"p95": None},
            "stalled_share": None,
        },
        "gpu": {
            "count": len(engine.workers),
            "busy_fraction": _ratio(busy_s, gpu_s),
            "seconds": gpu_s,
            "switches": int(view.column("switched").sum()),
            "switch_s": float(view.column("load_s").sum()),
        },
        "energy_j": {"per_image": None if energy_j is None else _ratio(energy_j, completed), "total": energy_j},
        "cost_usd": cost_usd,
        "quality": view.quality() if judged is None else judged.summary(view.images),
        "wall": {
            "simulate_s": wall.simulate_s,
            "cpu_s": wall.cpu_s,
            "requests_per_cpu_s": _ratio(engine.rows, wall.cpu_s),
        },
    }


class Window:
    """The requests after the warm-up, and the time from the first one's arrival to the last end."""

    def __init__(self, engine: Engine, warmup: int) -> None:
        self._engine = engine
        self._warmup = warmup
        self.outcome = engine.columns["outcome"][warmup:]
        self.completed = self.outcome == COMPLETED
        self.images = np.concatenate([np.zeros(warmup, bool), self.completed])
        arrival_s, finish_s = self.column("arrival_s"), self.column("finish_s")
        self.start_s = float(arrival_s[0])
        self.end_s = float(finish_s.max())
        self.span_s = self.end_s - self.start_s
        self.latency_s = finish_s - arrival_s
        self.queue_s = np.maximum(self.column("start_s") - arrival_s - self.column("search_s"), 0.0)

    def column(self, name: str) -> NDArray[Any]:
        """A column of the measured requests."""
        return self._engine.columns[name][self._warmup :]

    def completions(self) -> int:
        """Images that were finished inside the window, whoever asked for them."""
        columns = self._engine.columns
        done = columns["outcome"] == COMPLETED
        finish_s = columns["finish_s"]
        return int((done & (finish_s >= self.start_s) & (finish_s <= self.end_s)).sum())

    def gpu(self) -> tuple[float, float | None]:
        """Seconds that GPUs worked inside the window, and the joules of that work, None where power is unknown."""
        columns = self._engine.columns
        on_gpu = columns["worker"] != MISSING
        start_s, finish_s = columns["start_s"][on_gpu], columns["finish_s"][on_gpu]
        inside = np.clip(finish_s, self.start_s, self.end_s) - np.clip(start_s, self.start_s, self.end_s)
        share = np.divide(inside, finish_s - start_s, out=np.zeros_like(inside), where=finish_s > start_s)
        energy_j = float((share * columns["energy_j"][on_gpu]).sum())
        return float(inside.sum()), None if np.isnan(energy_j) else energy_j

    def standalone_s(self) -> Reals:
        """Seconds of each measured request in full on the large model, alone on a GPU."""
        return self._in_full()[1]

    def violations(self, limit_s: Reals) -> dict[str, float | None]:
        """The limit (its mean, where sizes differ) and the share of requests that took longer or were not served."""
        # A sum of step times may exceed the limit that it equals by a rounding error.
        late = ~self.completed | (self.latency_s > limit_s * (1 + 1e-9))
        return {"limit_s": float(limit_s.mean()), "violation_rate": float(late.mean())}

    def cache(self) -> dict[str, Any]:
        """Hits and what they saved. ``compute_saving`` alone applies without a cache too."""
        saving = (
            1 - self.column("denoise_s").sum() / self._in_full()[0][self.completed].sum()
            if self.completed.any()
            else None
        )
        said: dict[str, Any] = dict.fromkeys(("lookups", "hits", "hit_rate", "hit_share_by_k"))
        said |= {"compute_saving": None if saving is None else float(saving)}
        said |= dict.fromkeys(("holes", "evictions", "stale"))
        said["fallbacks"] = {"database": None, "store": None}
        said["source_age_s"] = {"p50": None, "p90": None}
        said["predictor"] = dict.fromkeys(PREDICTED)
        if not self._engine.columns["lookup"].any():
            return said
        came_to = np.bincount(self.column("lookup"), minlength=len(LOOKUPS)).tolist()
        lookups, hits = sum(came_to[1:]), came_to[HIT]
        hit = self.column("source") != MISSING
        ks, counts = np.unique(self.column("k")[hit], return_counts=True)
        ages = self.column("source_age_s")[hit]
        said |= {
            "lookups": lookups,
            "hits": hits,
            "hit_rate": _ratio(hits, lookups),
            "hit_share_by_k": {str(k): int(n) / hits for k, n in zip(ks, counts, strict=True)},
            "holes": int(self.column("hole").sum()),
            "evictions": int(self.column("evictions").sum()),
            "stale": came_to[STALE],
            "fallbacks": {"database": came_to[NO_DATABASE], "store": came_to[NO_STORE]},
            "predictor": self.predictor(came_to),
        }
        if hits:
            said["source_age_s"] = {
                "p50": float(np.percentile(ages, 50)),
                "p90": float(np.percentile(ages, 90)),
            }
        return said

    def predictor(self, came_to: Sequence[int]) -> dict[str, Any]:
        """How often the match predictor was right, and what searching in vain cost; ``came_to`` counts LOOKUPS."""
        columns = self._engine.columns
        matched = came_to[HIT] + came_to[EMPTY] + came_to[STALE] + came_to[NO_STORE]
        said = dict.fromkeys(PREDICTED) | {
            "wasted_searches": came_to[MISS],
            "wasted_search_s": float(self.column("wasted_s").sum()),
        }
        if not columns.predicting:
            return said
        begun_s = np.frombuffer(columns.trained_at_s)
        inside = (begun_s >= self.start_s) & (begun_s <= self.end_s)
        return said | {
            "precision": _ratio(matched, matched + came_to[MISS]),
            "recall": _ratio(matched, matched + came_to[FORGONE_MATCH]),
            "predicted_misses": came_to[PREDICTED_MISS] + came_to[FORGONE_MATCH],
            "retrainings": int(inside.sum()),
            "retrain_s": float(np.frombuffer(columns.training_s)[inside].sum()),
        }

    def quality(self) -> dict[str, Any]:
        """The mean quality factor of the images it was measured on, and the share of them below alpha."""
        engine = self._engine
        factor = self.column("quality")
        factor = factor[~np.isnan(factor)]
        if engine.backend.quality_basis is None or not len(factor):
            return dict.fromkeys(("factor_mean", "below_alpha_share", "basis", "published"))
        below = None if engine.alpha is None else float((factor < engine.alpha).mean())
        return {
            "factor_mean": float(factor.mean()),
            "below_alpha_share": below,
            "basis": engine.backend.quality_basis,
            "published": None,
        }

    def _in_full(self) -> tuple[Reals, Reals]:
        """Denoising seconds, and all seconds, of each measured request in full on the large model."""
        engine = self._engine
        large = engine.model("large")
        if engine.native:
            cost = whole(engine.backend, Work(large.name, large.width, large.height, large.steps))
            count = len(self.outcome)
            return np.full(count, cost.denoise_s), np.full(count, cost.denoise_s + cost.other_s)
        asked = np.stack([np.array(column)[: engine.rows][self._warmup :] for column in engine.shapes])
        shapes, which = np.unique(asked, axis=1, return_inverse=True)
        costs = [whole(engine.backend, Work(large.name, int(w), int(h), int(n))) for w, h, n in shapes.T]
        denoise_s = np.array([cost.denoise_s for cost in costs])
        other_s = np.array([cost.other_s for cost in costs])
        return denoise_s[which], (denoise_s + other_s)[which]


def spread(seconds: Reals) -> dict[str, float | None]:
    """Mean, percentiles (linear interpolation) and maximum; null where there is nothing to describe."""
    if not len(seconds):
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    p50, p90, p95, p99 = (float(p) for p in np.percentile(seconds, (50, 90, 95, 99)))
    return {
        "mean": float(seconds.mean()),
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "max": float(seconds.max()),
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole and math.isfinite(whole) else None
