"""Everything that a run writes down while it runs; what is made of it afterwards reads only this."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conf.assumption import Assumption
from sim.core.errors import SimulationError
from sim.metrics.request_columns import RequestColumns
from sim.metrics.usage_log import UsageLog

BATCH_MEAN, STEP_SHARE = "batch_mean", "step_share_s"
"""Facts of executors that serve several requests at once: with how many a request shared its steps, and its share of
the GPU's seconds in them. Where none is declared, every request had its steps to itself."""

TRAININGS = "match predictor trainings"
"""The log of a match predictor that trains: when each training began, and how long it takes."""

LOADS = {"controlnet": "loads of ControlNets", "lora": "loads of LoRAs"}
"""Logs of the add-ons that came, by their kind."""

SERIES = ("time_s", "seconds", "ended", "lookups", "hits", "fallbacks")
"""Columns of cluster.parquet that are worked out, and so are no gauges."""


@dataclass(slots=True)
class Log:
    """Something that happens again and again: when it began, and how many seconds it took."""

    at_s: "array[float]" = field(default_factory=lambda: array("d"))
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, at_s: float, seconds: float) -> None:
        """It began at ``at_s``."""
        self.at_s.append(at_s)
        self.seconds.append(seconds)

    def inside(self, start_s: float, end_s: float) -> tuple[int, float]:
        """How often it began in [start_s, end_s], and the seconds of those."""
        at_s = np.frombuffer(self.at_s)
        inside = (at_s >= start_s) & (at_s <= end_s)
        return int(inside.sum()), float(np.frombuffer(self.seconds)[inside].sum())


@dataclass(slots=True)
class Gauge:
    """A value over time: ``read(now_s)`` at every sample."""

    read: Callable[[float], float | int | bool]
    values: list[float | int | bool] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """What a run writes.

    Attributes:
        request_columns: a record per request.
        usage_log: what was spent on the GPUs.
        sampled_s, gauges: the cluster over time: when it was looked at, and what each gauge showed.
        logs: what happened beside the requests, by name.
        decisions: when a controller or the cluster decided what, with details.
        assumptions: what the result rests on.
    """

    request_columns: RequestColumns
    usage_log: UsageLog = field(default_factory=UsageLog)
    sampled_s: "array[float]" = field(default_factory=lambda: array("d"))
    gauges: dict[str, Gauge] = field(default_factory=dict)
    logs: dict[str, Log] = field(default_factory=dict)
    decisions: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)

    def gauge(self, name: str, read: Callable[[float], float | int | bool]) -> None:
        """Sample ``read`` as the column ``name``. Raises SimulationError where two parts declare one name."""
        if name in self.gauges or name in SERIES:
            raise SimulationError(f"a part declares the gauge {name!r}, and there is one already; rename it")
        self.gauges[name] = Gauge(read)

    def log(self, name: str) -> Log:
        """A new log called ``name``. Raises SimulationError where two parts declare one name."""
        if name in self.logs:
            raise SimulationError(f"a part declares the log {name!r}, and there is one already; rename it")
        self.logs[name] = Log()
        return self.logs[name]

    def assume(self, what: str, value: Any, source: str) -> None:
        """Put something that the result rests on into the summary, once."""
        said = Assumption(what, value, source)
        if said not in self.assumptions:
            self.assumptions.append(said)

    def sample(self, now_s: float) -> None:
        """Look at every gauge."""
        self.sampled_s.append(now_s)
        for gauge in self.gauges.values():
            gauge.values.append(gauge.read(now_s))
