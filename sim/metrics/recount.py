"""Compare the summary of a run with its requests, from which most of it can be counted again."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.core.slo import OWN, is_late
from mezzotint.sim.metrics.request_columns import IMAGES
from mezzotint.sim.metrics.spread import spread
from mezzotint.sim.metrics.summary_keys import Contradiction, number_at

COUNTED = ("arrival_s", "finish_s", "outcome")
"""Columns of requests.parquet that are read."""

ROUNDING = 1e-6
"""Relative difference of two sums of the same numbers, which is no contradiction."""

TOLD = f"as {REQUESTS} has it"


def differences(summary: Mapping[str, Any], requests: pa.Table) -> Iterator[Contradiction]:
    """Yield the numbers of ``summary`` that are not those of ``requests``: counts, latencies, rates and late requests.

    Args:
        requests: `COUNTED` columns of requests.parquet, and `IMAGES` if it is there. The warm-up is at its head.
    """
    arrived = int(number_at(summary, "requests", "arrived") or 0)
    if not 0 < arrived <= len(requests):
        if arrived:
            yield Contradiction("requests.arrived", arrived, f"at most {len(requests)}, {TOLD}")
        return
    with np.errstate(all="ignore"):  # a damaged file may hold any number
        for key, value in _recount(summary, requests, len(requests) - arrived).items():
            found = number_at(summary, *key)
            if found is not None and value is not None and not abs(found - value) <= ROUNDING * abs(value):
                yield Contradiction(".".join(key), found, f"{value:.9g}, {TOLD}")


def made_in_window(requests: pa.Table, warmup: int) -> tuple[int, int]:
    """Return the requests, and their images, that were completed after the first arrival behind the ``warmup``."""
    arrival_s, finish_s = (requests[name].cast(pa.float64(), safe=False).to_numpy() for name in COUNTED[:2])
    is_done = pc.equal(requests["outcome"], "completed").to_numpy()
    in_window = is_done & ((finish_s > arrival_s[warmup]) | (np.arange(len(is_done)) >= warmup))
    completed = images = int(in_window.sum())
    if IMAGES in requests.column_names:
        images = int(requests[IMAGES].cast(pa.float64(), safe=False).to_numpy()[in_window].sum())
    return completed, images


def _recount(summary: Mapping[str, Any], requests: pa.Table, warmup: int) -> dict[tuple[str, ...], float | None]:
    """Return numbers of the summary by key, counted again."""
    at = partial(number_at, summary)
    arrival_s, finish_s = (requests[name].cast(pa.float64(), safe=False).to_numpy() for name in COUNTED[:2])
    outcomes = {name: pc.equal(requests["outcome"], name).to_numpy() for name in ("completed", "discarded", "failed")}
    is_done = outcomes["completed"]
    latency_s, start_s = (finish_s - arrival_s)[warmup:], arrival_s[warmup]
    span_s = finish_s[warmup:].max() - start_s
    completed, images = made_in_window(requests, warmup)
    found: dict[tuple[str, ...], float | None] = {
        ("requests", name): float(each[warmup:].sum()) for name, each in outcomes.items()
    }
    found |= {("latency_s", name): value for name, value in spread(latency_s[is_done[warmup:]]).items()}
    found["throughput_rpm",] = 60 * completed / span_s if span_s > 0 else None
    for group in ("energy_j", "cost_usd"):
        total = at(group, "total")
        found[group, "per_image"] = total / images if total is not None and images else None
    models: list[Mapping[str, Any]] = summary.get("models") or [{}]
    is_sampled = number_at(summary, "images_per_request") is not None
    is_uniform = all(model.get("width") is not None for model in models) and not is_sampled
    offered_s = float(arrival_s.max()) - start_s
    offered = 60 * float((arrival_s > start_s).sum()) / offered_s if offered_s > 0 else None
    found["load", "offered_rpm"] = offered
    for name in summary["slo"] or ():
        limit_s = at("slo", name, "limit_s")
        if (
            limit_s is not None and name != OWN and (is_uniform or re.fullmatch(r"[\d.e+]+s", name))
        ):  # else it is a mean of limits
            late = ~is_done[warmup:] | is_late(latency_s, limit_s)
            found["slo", name, "violation_rate"] = rate = float(late.mean())
            found["slo", name, "goodput_rpm"] = None if offered is None else (1 - rate) * offered
    return found
