"""llm-d's routing benchmark replayed: a mix on three H100, each with its queue, behind a router. Nothing is fitted."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.core.errors import ConfigError
from sim.papers.hardware.replay import MOVED, base_config, served
from sim.papers.hardware.rows import MEASURED, PerWorkerQueues
from sim.run.config.choices import choices

DRAWS = 100
"""Seeds of the choices and ties that are random: which GPU they took was not recorded."""

MOVED_DRAWS = 10
"""Seeds on which the service time is moved."""

BAND = (0.05, 0.95)
"""Quantiles of the draws between which the band lies: nine in ten draws."""


def replayed(row: PerWorkerQueues, draws: int, *, moved: bool = True) -> dict[str, Any]:
    """Replay a run once for each of ``draws`` seeds, and return it beside its replays as JSON has it.

    Ties are random as llm-d's are, so the prediction is the band that most draws lie in. With ``moved`` the sensitivity
    to the service time is measured on MOVED_DRAWS of the seeds. Raises ConfigError where the mix or the router is none
    of ours, or the profile does not know a size.
    """
    config = _config(row)
    if "ties" in config["router"]:
        config["router"] = config["router"] | {"ties": "random"}
    found = np.array([_measures(config, seed) for seed in range(1, draws + 1)])
    low, median, high = np.quantile(found, [BAND[0], 0.5, BAND[1]], axis=0).tolist()
    some = range(1, min(draws, MOVED_DRAWS) + 1)
    base = np.median(found[: len(some)], axis=0)
    shifted = {
        f"{share:+.0%}": median * np.median([_measures(config, seed, 1 + share) for seed in some], axis=0) / base
        for share in MOVED
        if moved
    }
    bands = dict(zip(MEASURED, zip(low, high, strict=True), strict=True))
    return {
        "workload": row.workload,
        "rate_per_s": row.rate_per_s,
        "routing": row.routing,
        "measured_s": dict(row.measured),
        "predicted_s": dict(zip(MEASURED, median, strict=True)),
        "draws": draws,
        "nine_in_ten_draws_s": {name: list(band) for name, band in bands.items()},
        "outside": {name: outside(row.measured.get(name), *band) for name, band in bands.items()},
        "with_service_moved_s": {share: dict(zip(MEASURED, at.tolist(), strict=True)) for share, at in shifted.items()},
    }


def outside(measured_s: float | None, low_s: float, high_s: float) -> float | None:
    """Return how far the nearer end of a band is above the measured value, relative to that; None if not measured."""
    return min(max(measured_s, low_s), high_s) / measured_s - 1 if measured_s else None


def _config(row: PerWorkerQueues) -> dict[str, Any]:
    mix = f"vllm-omni-{row.workload.lower()}"
    for group, name in (("trace", mix), ("router", row.routing)):
        known = [choice.name for choice in choices(group)]
        if name not in known:
            raise ConfigError(f"{group}: found {name!r} among the measured runs, expected one of {', '.join(known)}")
    return base_config((
        *(f"trace={mix}", "shapes=trace", "arrivals=expovariate", f"arrivals.rate_rpm={60 * row.rate_per_s!r}"),
        *("scheduler=per-worker", f"router={row.routing}", "cluster=h100", "cluster.count=3"),
        *("models=qwen-image-vllm-omni", "slo=[]", "sample_s=1e6", "quality=alpha"),
    ))  # fmt: skip


def _measures(config: Mapping[str, Any], seed: int, factor: float = 1.0) -> list[float]:
    """Seconds by MEASURED of one replay; percentiles interpolated linearly, as the benchmark's client does."""
    _, latencies_s = served({**config, "seed": seed}, factor)
    return [float(latencies_s.mean()), *np.quantile(latencies_s, [0.95, 0.99]).tolist()]
