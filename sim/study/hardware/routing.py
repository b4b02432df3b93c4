"""llm-d's routing benchmark replayed: a mix on three H100, each with its queue, behind a router. Nothing is fitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.config.choices import choices
from sim.config.settings import check
from sim.errors import ConfigError
from sim.run import assemble
from sim.study.hardware.replay import MOVED, Floats, base_config
from sim.study.hardware.rows import MEASURED, Routed

GPUS = 3
"""Of the benchmark."""

DRAWS = 100
"""Seeds of the choices and ties that are random: which GPU they took was not recorded."""

MOVED_DRAWS = 10
"""Seeds on which the service time is moved."""

BAND = (0.05, 0.95)
"""Quantiles of the draws between which the band lies: nine in ten draws."""

MODEL = "qwen-image-vllm-omni"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A routed run beside its replays, whose ties are random as llm-d's are.

    Attributes:
        draws: number of seeds.
        median_s: median of the draws, by MEASURED.
        low_s, high_s: ends of the band, by MEASURED. The band is the prediction.
        moved_s: the median by the share by which the service time was moved.
    """

    row: Routed
    draws: int
    median_s: Mapping[str, float]
    low_s: Mapping[str, float]
    high_s: Mapping[str, float]
    moved_s: Mapping[float, Mapping[str, float]]

    def outside(self, measure: str) -> float | None:
        """Return how far the nearer end of the band is from the measured value, relative to the measured value.

        Positive where the whole band lies above the measured value, 0 inside the band, None where nothing was measured.
        """
        measured = self.row.measured.get(measure)
        if not measured:
            return None
        return float(np.clip(measured, self.low_s[measure], self.high_s[measure])) / measured - 1


def replayed(row: Routed, draws: int, *, moved: bool = True) -> Replayed:
    """Replay a run once for each seed.

    Args:
        row: the run.
        draws: number of seeds.
        moved: with the sensitivity to the service time, on MOVED_DRAWS of the seeds.

    Raises:
        ConfigError: the mix or the router is none of ours, or the profile does not know a size.
    """
    config = _config(row)
    if "ties" in config["router"]:
        config["router"] = config["router"] | {"ties": "random"}
    found = np.array([_measures(config, seed) for seed in range(1, draws + 1)])
    low, median, high = np.quantile(found, [BAND[0], 0.5, BAND[1]], axis=0)
    some = range(1, min(draws, MOVED_DRAWS) + 1)
    base = np.median(found[: len(some)], axis=0)
    shifted = {
        share: median * np.median([_measures(config, seed, 1 + share) for seed in some], axis=0) / base
        for share in MOVED
        if moved
    }
    return Replayed(
        row, draws, _named(median), _named(low), _named(high), {share: _named(at) for share, at in shifted.items()}
    )


def _config(row: Routed) -> dict[str, Any]:
    mix = f"vllm-omni-{row.workload.lower()}"
    for group, name in (("trace", mix), ("router", row.routing)):
        known = [choice.name for choice in choices(group)]
        if name not in known:
            raise ConfigError(f"{group}: found {name!r} among the measured runs, expected one of {', '.join(known)}")
    return base_config((
        *(f"trace={mix}", "shapes=trace", "arrivals=expovariate", f"arrivals.rate_rpm={60 * row.rate_per_s!r}"),
        *("scheduler=routed", f"router={row.routing}", "cluster=h100", f"cluster.count={GPUS}", f"models={MODEL}"),
        *("slo=[]", "sample_s=1e6", "quality=alpha"),
    ))  # fmt: skip


def _measures(config: Mapping[str, Any], seed: int, factor: float = 1.0) -> list[float]:
    """Seconds by MEASURED of one replay; percentiles interpolated linearly, as the benchmark's client does."""
    backend = {**config["backend"], "service_factor": factor}
    run = assemble(check({**config, "seed": seed, "backend": backend}))
    run.engine.run()
    facts = run.engine.record.facts
    latencies_s = np.asarray(facts["finish_s"], np.float64) - np.asarray(facts["arrival_s"], np.float64)
    return [float(latencies_s.mean()), *np.quantile(latencies_s, [0.95, 0.99]).tolist()]


def _named(values: Floats) -> dict[str, float]:
    return dict(zip(MEASURED, values.tolist(), strict=True))
