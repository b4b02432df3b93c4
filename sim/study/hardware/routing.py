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
"""Seeds: of a choice at random, and of ties that are broken at random. How they fell was not recorded."""

BAND = (0.05, 0.95)
"""Of the draws: nine in ten lie between."""

NEAR = 0.04
"""How near mean and p99 have to be to what was measured, as a share of it."""

MODEL = "qwen-image-vllm-omni"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A routed run beside its replays.

    Attributes:
        draws: how many seeds.
        plain_s: the prediction by MEASURED: with ties to the first GPU; of the random router, the median of the draws.
        low_s, high_s: between which nine in ten of the draws lie.
        near: share of the draws whose mean and p99 are both within NEAR of the measured ones; None without them.
        moved_s: by the share by which the service time was moved, the prediction.
    """

    row: Routed
    draws: int
    plain_s: Mapping[str, float]
    low_s: Mapping[str, float]
    high_s: Mapping[str, float]
    near: float | None
    moved_s: Mapping[float, Mapping[str, float]]

    def error(self, measure: str) -> float | None:
        """The prediction over what was measured, less one; None where it was not measured."""
        measured = self.row.measured.get(measure)
        return None if not measured else self.plain_s[measure] / measured - 1

    def within(self, measure: str) -> bool | None:
        """Whether what was measured lies in the band; None where it was not measured."""
        measured = self.row.measured.get(measure)
        return None if measured is None else self.low_s[measure] <= measured <= self.high_s[measure]


def replayed(row: Routed, draws: int = DRAWS, *, moved: bool = True) -> Replayed:
    """Replay a run once for each seed.

    Args:
        row: the run.
        draws: seeds.
        moved: with the sensitivity to the service time; of the random router on some of the seeds.

    Raises:
        ConfigError: the mix or the router is none of ours, or the profile does not know a size.
    """
    config = _config(row)
    at_random = config if "ties" not in config["router"] else config | {"router": config["router"] | {"ties": "random"}}
    found = np.array([_measures(at_random, seed) for seed in range(1, draws + 1)])
    low, middle, high = np.quantile(found, [BAND[0], 0.5, BAND[1]], axis=0)
    some = range(1, 11 if at_random is config else 2)
    base = np.median([_measures(config, seed) for seed in some], axis=0)
    plain = middle if at_random is config else base
    shifted = {
        share: plain * np.median([_measures(config, seed, 1 + share) for seed in some], axis=0) / base
        for share in MOVED
        if moved
    }
    return Replayed(
        row,
        draws,
        _named(plain),
        _named(low),
        _named(high),
        _near(row, found),
        {share: _named(at) for share, at in shifted.items()},
    )


def _near(row: Routed, found: Floats) -> float | None:
    if not {"mean", "p99"} <= row.measured.keys():
        return None
    columns = [found[:, MEASURED.index(name)] / row.measured[name] - 1 for name in ("mean", "p99")]
    return float((np.abs(columns) <= NEAR).all(axis=0).mean())


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
