"""The keys of summary.json: the kind of each number, its bounds, and the laws between them."""

import math
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from pydantic_core import CoreSchema, core_schema

from mezzotint.sim.core.slo import OWN

TOLERANCE = 1e-9
"""Relative error of a sum of many floats, which is no contradiction."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of number.

    Attributes:
        unit: what a bound on it is in: ``s``, ``%`` of a share, or nothing.
        low, high: its bounds.
        is_whole: True of a count.
        better: ``low`` if only an upper bound on it is a target, ``high`` if only a lower one; None: either.
    """

    unit: Literal["s", "%", ""] = ""
    low: float = 0.0
    high: float = math.inf
    is_whole: bool = False
    better: Literal["low", "high"] | None = None

    @property
    def schema(self) -> CoreSchema:
        """The schema that pydantic checks a number of this kind by; null is accepted."""
        if self.is_whole:
            return core_schema.nullable_schema(core_schema.int_schema(ge=int(self.low)))
        high = None if math.isinf(self.high) else self.high + TOLERANCE
        low = None if math.isinf(self.low) else self.low - TOLERANCE
        return core_schema.nullable_schema(core_schema.float_schema(allow_inf_nan=False, ge=low, le=high))


COUNT = Kind(is_whole=True)
LATENCY = Kind("s", better="low")
SECONDS = Kind("s")
SHARE = Kind("%", high=1.0)
FAIRNESS = Kind(high=1.0, better="high")
LATE = Kind("%", high=1.0, better="low")
SAVING = Kind("%", low=-math.inf, high=1.0)
RATIO = Kind("%")
AMOUNT = Kind()
PRICE = Kind(better="low")
RATE = Kind(better="high")
NUMBER = Kind(low=-math.inf)

_SPREAD = ("mean", "p50", "p90", "p95", "p99", "max")

KEYS: Mapping[str, Kind] = {
    "trace.requests": COUNT,
    "trace.span_s": SECONDS,
    "work.sizes.*": SHARE,
    "work.size_count": COUNT,
    **{f"work.steps.{name}": COUNT for name in ("min", "max")},
    **{f"requests.{name}": COUNT for name in ("arrived", "completed", "discarded", "failed")},
    "throughput_rpm": RATE,
    "throughput_until_last_arrival_rpm": RATE,
    "load.offered_rpm": AMOUNT,
    "load.served_rpm": RATE,
    "load.growth_per_hour": NUMBER,
    "state.preloaded": COUNT,
    **{f"state.{name}": SECONDS for name in ("warmup_s", "span_s")},
    "state.periods.*": AMOUNT,
    **{f"{group}.{name}": LATENCY for group in ("latency_s", "queue_s") for name in _SPREAD},
    "images_per_request": AMOUNT,
    "split.completed": COUNT,
    **{f"split.latency_s.{name}": LATENCY for name in _SPREAD},
    **{f"client.{name}": COUNT for name in ("requests", "answered", "retries", "hedges")},
    "client.tries_per_request": AMOUNT,
    **{f"client.{group}.{name}": LATENCY for group in ("latency_s", "held_back_s") for name in _SPREAD},
    "client.answered_rpm": RATE,
    "client.slo.*.violation_rate": LATE,
    "client.slo.*.goodput_rpm": RATE,
    "client.wasted_gpu_s": SECONDS,
    "client.wasted_usd": PRICE,
    **{f"sessions.{name}": COUNT for name in ("count", "refused")},
    **{
        f"sessions.{group}.{name}": LATENCY for group in ("first_chunk_s", "held_back_s", "stall_s") for name in _SPREAD
    },
    "sessions.without_stall": SHARE,
    "sessions.stalls_per_session": AMOUNT,
    "sessions.late_chunks": LATE,
    **{f"tenants.{name}": COUNT for name in ("count", "discarded_by_limit", "rows_left_out")},
    **{f"tenants.jain.{name}": FAIRNESS for name in ("gpu_s", "slowdown")},
    "slo.*.limit_s": SECONDS,
    "slo.*.violation_rate": LATE,
    "slo.*.goodput_rpm": RATE,
    "slo.*.requests": COUNT,
    **{f"cache.{name}": COUNT for name in ("lookups", "hits", "holes", "evictions", "stale")},
    "cache.hit_rate": SHARE,
    "cache.hit_share_by_k.*": SHARE,
    "cache.compute_saving": SAVING,
    **{f"cache.fallbacks.{name}": COUNT for name in ("database", "store")},
    **{f"cache.{age}.{name}": SECONDS for age in ("source_age_s", "source_age_trace_s") for name in ("p50", "p90")},
    **{f"cache.predictor.{name}": SHARE for name in ("precision", "recall")},
    **{f"cache.predictor.{name}": COUNT for name in ("predicted_misses", "wasted_searches", "retrainings")},
    **{f"cache.predictor.{name}": SECONDS for name in ("wasted_search_s", "retrain_s")},
    **{f"addons.loads_per_request.{name}": AMOUNT for name in ("controlnet", "lora")},
    "addons.stall_s.p95": LATENCY,
    "addons.stalled_share": LATE,
    "gpu.count": COUNT,
    "gpu.seconds": SECONDS,
    "gpu.busy_fraction": SHARE,
    "gpu.switches": COUNT,
    "gpu.switch_s": SECONDS,
    "gpu.batch_mean": AMOUNT,
    "gpu.step_saving": SAVING,
    "gpu.by_kind.*.count": COUNT,
    "gpu.by_kind.*.seconds": SECONDS,
    "gpu.by_kind.*.busy_fraction": SHARE,
    "gpu.by_kind.*.energy_j": AMOUNT,
    **{f"server.{name}": COUNT for name in ("starts", "compilations")},
    **{f"server.{name}": SECONDS for name in ("start_s", "compile_s")},
    "fleet.models.*.completed": COUNT,
    "fleet.models.*.hit_rate": SHARE,
    "fleet.models.*.replicas": AMOUNT,
    "fleet.models.*.gpu_s": SECONDS,
    "fleet.models.*.latency_s.*": LATENCY,
    "fleet.swaps.*.count": COUNT,
    "fleet.swaps.*.gpu_s": SECONDS,
    "fleet.swaps.*.busy_share": SHARE,
    "fleet.hit_rate": SHARE,
    "fleet.swap_busy_share": SHARE,
    **{f"stages.{name}": COUNT for name in ("attempts", "pauses", "moves", "degree_changes", "component_loads")},
    **{f"stages.{name}": SECONDS for name in ("gpu_s", "estimate_s")},
    "stages.components.*.gpus": COUNT,
    **{f"stages.components.*.{name}": SECONDS for name in ("gpu_s", "wait_s")},
    "stages.components.*.busy_fraction": SHARE,
    "stages.components.*.batch_mean": AMOUNT,
    **{f"cascade.{name}": COUNT for name in ("attempts", "escalated")},
    **{f"{group}.{name}": PRICE for group in ("energy_j", "cost_usd") for name in ("per_image", "total")},
    "cost_usd.by.*": PRICE,
    "quality.factor_mean": RATIO,
    "quality.below_alpha_share": LATE,
    "quality.published.*": NUMBER,
    **{f"wall.{name}": AMOUNT for name in ("simulate_s", "cpu_s", "requests_per_cpu_s")},
}
"""Every number of a summary by its dotted key; ``*`` stands for any name."""


def kind_of(key: str) -> Kind | None:
    """Return the kind of the number under a dotted key; None if no summary has one there."""
    for pattern, kind in KEYS.items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), key):
            return kind
    return None


def schema(required: Container[str], others: Mapping[str, CoreSchema]) -> CoreSchema:
    """Return what pydantic accepts as a summary: the numbers of `KEYS`, and ``others``; all of ``required``."""
    schemas = {key: kind.schema for key, kind in KEYS.items()} | dict(others)

    def below(prefix: str) -> CoreSchema:
        if prefix in schemas:
            return schemas[prefix]
        start = f"{prefix}." if prefix else ""
        names = dict.fromkeys(key[len(start) :].partition(".")[0] for key in schemas if key.startswith(start))
        if "*" in names:
            return core_schema.nullable_schema(core_schema.dict_schema(core_schema.str_schema(), below(f"{start}*")))
        fields = {
            name: core_schema.typed_dict_field(below(start + name), required=start + name in required) for name in names
        }
        group = core_schema.typed_dict_schema(fields)
        return core_schema.nullable_schema(group) if prefix else group

    return below("")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A number of a summary that others exclude: its key, what was found, and what was expected."""

    key: str
    found: float | None
    expected: str


def contradictions(summary: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Yield the numbers of ``summary`` that break a law between its keys; an absent key or a null breaks none."""
    at = partial(number_at, summary)
    arrived = at("requests", "arrived")
    ended = [at("requests", name) or 0.0 for name in ("completed", "discarded", "failed")]
    if arrived is not None and sum(ended) != arrived:
        expected = f"{sum(ended):g}, the sum of completed, discarded and failed"
        yield Contradiction("requests.arrived", arrived, expected)
    for group in (("latency_s",), ("queue_s",), ("cache", "source_age_s"), ("cache", "source_age_trace_s")):
        known = {name: value for name in _SPREAD if (value := at(*group, name)) is not None}
        order = [name for name in known if name != "mean"]
        for low, high in [*pairwise(order), *([("mean", "max")] if {"mean", "max"} <= known.keys() else [])]:
            if known[low] > known[high] * (1 + TOLERANCE):
                yield Contradiction(".".join((*group, low)), known[low], f"at most {known[high]:g}, the {high}")
    if arrived:
        lost = 1 - ended[0] / arrived
        for limit in summary["slo"] or ():
            late = at("slo", limit, "violation_rate")
            if limit != OWN and late is not None and late < lost - TOLERANCE:
                expected = f"at least {lost:g}, the share of the requests that were not completed"
                yield Contradiction(f"slo.{limit}.violation_rate", late, expected)
    hits, lookups, hit_rate = (at("cache", name) for name in ("hits", "lookups", "hit_rate"))
    if hits is not None and lookups and hit_rate is not None and abs(hits / lookups - hit_rate) > TOLERANCE:
        yield Contradiction("cache.hit_rate", hit_rate, f"{hits / lookups:g}, hits over lookups")
    shares = [share for share in (_below(summary, "cache", "hit_share_by_k")).values() if share is not None]
    if sum(shares) > 1 + TOLERANCE:
        yield Contradiction("cache.hit_share_by_k", sum(shares), "shares that sum to 1")
    parts, total = _below(summary, "cost_usd", "by"), at("cost_usd", "total")
    known_usd = [usd for usd in parts.values() if usd is not None]
    if total is not None and parts and abs(sum(known_usd) - total) > TOLERANCE * total:
        yield Contradiction("cost_usd.total", total, f"{sum(known_usd):g}, the sum of cost_usd.by")


def number_at(summary: Mapping[str, Any], *keys: str) -> float | None:
    """Return the finite number under the nested ``keys`` of a summary; None if there is none."""
    value: Any = summary
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _below(summary: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the mapping under the nested ``keys`` of a summary; empty if there is none."""
    found: Any = summary
    for key in keys:
        found = (found or {}).get(key)
    return found or {}
