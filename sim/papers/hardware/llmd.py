"""llm-d's routing benchmark: three H100 with a queue each behind a router, replayed with nothing fitted."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, PositiveInt
from pydantic.dataclasses import dataclass

from mezzotint.settings.ranges import Positive, Seconds
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.hardware.mlperf import SERVICE_TIME_CHANGES, base_config, run_config
from mezzotint.sim.papers.rows import measured
from mezzotint.sim.run.config.choices import choices

MEASURED = ("mean", "p95", "p99")
"""Statistics of latency in a routed run's report."""

DRAWS = 100
"""Seeds of random choices and ties, whose outcome was not recorded."""

CHANGED_DRAWS = 10
"""Seeds of the runs with changed service times."""

BAND = (0.05, 0.95)
"""Quantiles that bound the band: nine in ten draws."""


REPETITION = {"mean": 0.08, "p99": 0.076}
"""Largest relative difference between a run and its repetition with equal seeds on the same GPUs.

Means differ by 3 to 8 %. No simulator is nearer to a run than the run's own repetition. Source: llm-d's repeated runs,
zetxqx/llm-d, guides/diffusion-serving.
"""


@dataclass(frozen=True, slots=True)
class RoutedRun:
    """One run through a router of conf/router, with a queue at each GPU.

    Attributes:
        workload: a mix of vLLM-Omni (A, B or C), or the path of a trace with sizes and steps.
        models, gpu, gpus: what serves it; llm-d's choice by default.
    """

    workload: Annotated[str, AfterValidator(lambda name: name.upper() if len(name) == 1 else name)]
    rate_per_s: Positive
    routing: str
    mean_s: Seconds | None = None
    p95_s: Seconds | None = None
    p99_s: Seconds | None = None
    models: str = "qwen-image-vllm-omni"
    gpu: str = "h100"
    gpus: PositiveInt = 3


def replay_routing(row: RoutedRun, draws: int, *, with_sensitivity: bool = True) -> dict[str, Any]:
    """Replay a run with ``draws`` seeds, and return the measured and predicted seconds as JSON.

    Ties are random as in llm-d, so the prediction is the band of nine in ten draws.

    Args:
        with_sensitivity: also replay `CHANGED_DRAWS` seeds with changed service times.

    Raises:
        ConfigError: the mix or the router is unknown, or the profile lacks a size.
    """
    config, logged = routed_config(row), measured(row, MEASURED)

    def replay(draws: int, factor: float = 1.0) -> Any:
        """Return the seconds by draw and MEASURED; percentiles are interpolated as by the benchmark's client."""
        runs = (run_config({**config, "seed": seed}, factor)[1] for seed in range(1, draws + 1))
        return np.array([[run_s.mean(), *np.quantile(run_s, [0.95, 0.99])] for run_s in runs])

    drawn, few = replay(draws), min(draws, CHANGED_DRAWS)
    low, median, high = np.quantile(drawn, [BAND[0], 0.5, BAND[1]], axis=0).tolist()
    base = np.median(drawn[:few], axis=0)
    changed = {
        f"{share:+.0%}": (median * np.median(replay(few, 1 + share), axis=0) / base).tolist()
        for share in SERVICE_TIME_CHANGES
        if with_sensitivity
    }
    bands = {name: list(band) for name, *band in zip(MEASURED, low, high, strict=True)}
    return {
        "workload": row.workload,
        "rate_per_s": row.rate_per_s,
        "routing": row.routing,
        "measured_s": logged,
        "predicted_s": dict(zip(MEASURED, median, strict=True)),
        "draws": draws,
        "nine_in_ten_draws_s": bands,
        "outside": {name: outside(logged.get(name), *band) for name, band in bands.items()},
        "with_service_moved_s": {share: dict(zip(MEASURED, at, strict=True)) for share, at in changed.items()},
    }


def outside(measured_s: float | None, low_s: float, high_s: float) -> float | None:
    """Return the relative distance from the measured value to the nearer end of a band; None if not measured."""
    return min(max(measured_s, low_s), high_s) / measured_s - 1 if measured_s else None


def routed_config(row: RoutedRun) -> dict[str, Any]:
    """Return the configuration that replays ``row``. Raises ConfigError: its trace, router or cluster is unknown."""
    mix = f"vllm-omni-{row.workload.lower()}"
    trace = ("trace=file", f"trace.path='{row.workload}'") if Path(row.workload).is_file() else (f"trace={mix}",)
    chosen = [("router", row.routing), ("models", row.models), ("cluster", row.gpu)]
    for group, name in chosen if len(trace) > 1 else [("trace", mix), *chosen]:
        names = [choice.name for choice in choices(group)]
        if name not in names:
            raise ConfigError(
                f"{group}: found {name!r} among the measured runs; {suggest(name, names, f'mezzotint list {group}')}"
            )
    config = base_config((
        *(*trace, "shapes=trace", "arrivals=expovariate", f"arrivals.rate_rpm={60 * row.rate_per_s!r}"),
        *("scheduler=per-worker", f"router={row.routing}", f"cluster={row.gpu}", f"cluster.count={row.gpus}"),
        *(f"models={row.models}", "slo=[]", "sample_s=1e6", "quality=alpha"),
    ))  # fmt: skip
    ties = {"ties": "random"} if "ties" in config["router"] else {}
    return config | {"router": config["router"] | ties}
