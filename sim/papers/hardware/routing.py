"""Replay of llm-d's routing benchmark: three H100 with a queue each behind a router, nothing fitted."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.hardware.replay import SERVICE_TIME_CHANGES, base_config, run_config
from mezzotint.sim.papers.hardware.rows import MEASURED, RoutedRun
from mezzotint.sim.run.config.choices import choices

DRAWS = 100
"""Seeds of random choices and ties, whose outcome was not recorded."""

CHANGED_DRAWS = 10
"""Seeds of the runs with changed service times."""

BAND = (0.05, 0.95)
"""Quantiles that bound the band: nine in ten draws."""


def replay_routing(row: RoutedRun, draws: int, *, with_sensitivity: bool = True) -> dict[str, Any]:
    """Replay a run with ``draws`` seeds, and return the measured and predicted seconds as JSON.

    Ties are random as in llm-d, so the prediction is the band of nine in ten draws.

    Args:
        with_sensitivity: also replay `CHANGED_DRAWS` seeds with changed service times.

    Raises:
        ConfigError: the mix or the router is unknown, or the profile lacks a size.
    """
    config = _config(row)
    if "ties" in config["router"]:
        config["router"] = config["router"] | {"ties": "random"}
    found = np.array([_measures(config, seed) for seed in range(1, draws + 1)])
    low, median, high = np.quantile(found, [BAND[0], 0.5, BAND[1]], axis=0).tolist()
    seeds = range(1, min(draws, CHANGED_DRAWS) + 1)
    base = np.median(found[: len(seeds)], axis=0)
    shifted = {
        f"{share:+.0%}": median * np.median([_measures(config, seed, 1 + share) for seed in seeds], axis=0) / base
        for share in SERVICE_TIME_CHANGES
        if with_sensitivity
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
    """Return the relative distance from the measured value to the nearer end of a band; None if not measured."""
    return min(max(measured_s, low_s), high_s) / measured_s - 1 if measured_s else None


def _config(row: RoutedRun) -> dict[str, Any]:
    mix = f"vllm-omni-{row.workload.lower()}"
    for group, name in (("trace", mix), ("router", row.routing)):
        names = [choice.name for choice in choices(group)]
        if name not in names:
            raise ConfigError(f"{group}: found {name!r} among the measured runs, expected one of {', '.join(names)}")
    return base_config((
        *(f"trace={mix}", "shapes=trace", "arrivals=expovariate", f"arrivals.rate_rpm={60 * row.rate_per_s!r}"),
        *("scheduler=per-worker", f"router={row.routing}", "cluster=h100", "cluster.count=3"),
        *("models=qwen-image-vllm-omni", "slo=[]", "sample_s=1e6", "quality=alpha"),
    ))  # fmt: skip


def _measures(config: Mapping[str, Any], seed: int, factor: float = 1.0) -> list[float]:
    """Return the seconds of one replay by MEASURED; percentiles are interpolated as by the benchmark's client."""
    _, latencies_s = run_config({**config, "seed": seed}, factor)
    return [float(latencies_s.mean()), *np.quantile(latencies_s, [0.95, 0.99]).tolist()]
