"""The record of a run, written while it runs. Summaries, tables and timelines are made from it alone."""

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mezzotint.settings.assumption import Assumption
from mezzotint.sim.core.culprit import caller
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.metrics.fleet import FleetLog
from mezzotint.sim.metrics.request_columns import RequestColumns
from mezzotint.sim.metrics.usage_log import UsageLog

BATCH_MEAN, STEP_SHARE = "batch_mean", "step_share_s"
"""Columns of executors that batch: the mean batch size of a request's steps, and its share of their GPU seconds. If
none is declared, every request ran its steps alone."""

REUSED_SHARE = "reused_share"
"""Column of executors with a feature cache: the share of a request's features that were taken from it."""

WASTED = "wasted"
"""Log of the GPU-seconds that requests took which their clients had given up, at the end of that work."""

HANDLING = "handling_s"
"""Column of runs with handling: seconds from the image to the answer."""

TRAININGS = "match predictor trainings"
"""Log of the trainings of a match predictor."""

STARTS, COMPILATIONS = "starts of servers", "first requests of a shape"
"""Logs of the servers, where starts or first requests cost something besides loads."""

LOADS = {"controlnet": "loads of ControlNets", "lora": "loads of LoRAs"}
"""Logs of add-on loads, by kind."""

DERIVED_SERIES = ("time_s", "seconds", "ended", "lookups", "hits", "fallbacks")
"""Columns of cluster.parquet that are computed, so that no gauge may have their names."""


@dataclass(slots=True)
class EventLog:
    """Begin and duration of events of one kind."""

    at_s: "array[float]" = field(default_factory=lambda: array("d"))
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, at_s: float, seconds: float) -> None:
        """Add an event that began at ``at_s`` and took ``seconds``."""
        self.at_s.append(at_s)
        self.seconds.append(seconds)

    def inside(self, start_s: float, end_s: float) -> tuple[int, float]:
        """Return the number of events that began in [start_s, end_s], and their seconds."""
        at_s = np.frombuffer(self.at_s)
        inside = (at_s >= start_s) & (at_s <= end_s)
        return int(inside.sum()), float(np.frombuffer(self.seconds)[inside].sum())


@dataclass(slots=True)
class Gauge:
    """Value over time: ``read(now_s)`` at every sample. ``part`` declared it."""

    read: Callable[[float], float | int | bool]
    part: str
    values: list[float | int | bool] = field(default_factory=list)


@dataclass(slots=True)
class RunRecord:
    """Everything that a run records.

    Attributes:
        request_columns: a record per request.
        usage_log: busy time and energy of the GPUs.
        sampled_s, gauges: the cluster over time: sampling instants, and the value of each gauge at them.
        logs: events that belong to no request, by name.
        decisions: time, name and details of each decision of a controller or the cluster.
        assumptions: values that the result rests on and nobody measured.
        attempts: every run of a stage, of systems whose requests may take several; else None.
        fleet: loads and residents of models, of a fleet that serves the trace's base models; else None.
    """

    request_columns: RequestColumns
    usage_log: UsageLog = field(default_factory=UsageLog)
    sampled_s: "array[float]" = field(default_factory=lambda: array("d"))
    gauges: dict[str, Gauge] = field(default_factory=dict)
    logs: dict[str, EventLog] = field(default_factory=dict)
    decisions: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    attempts: AttemptLog | None = None
    fleet: FleetLog | None = None

    def gauge(self, name: str, read: Callable[[float], float | int | bool]) -> None:
        """Sample ``read`` as the column ``name``. Raises SimulationError if the name is taken."""
        if not isinstance(name, str):
            raise SimulationError(f"{caller()} declares the gauge {name!r}; expected text as its name")
        if name in self.gauges or name in DERIVED_SERIES:
            raise SimulationError(f"{caller()} declares the gauge {name!r}, and there is one already; rename it")
        self.gauges[name] = Gauge(read, caller())

    def log(self, name: str) -> EventLog:
        """Add a log called ``name``. Raises SimulationError if the name is taken."""
        if name in self.logs:
            raise SimulationError(f"{caller()} declares the log {name!r}, and there is one already; rename it")
        self.logs[name] = EventLog()
        return self.logs[name]

    def assume(self, what: str, value: Any, source: str) -> None:
        """Add an assumption that the result rests on to the summary, once."""
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SimulationError(f"{caller()} assumes {value!r} for {what!r}, which is no JSON ({error})") from None
        assumption = Assumption(what, value, source)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)

    def release(self) -> None:
        """Let go of what lies in files, of a long run: the memory is read again where it is used."""
        self.usage_log.spill()
        self.request_columns.scratch.release()

    def sample(self, now_s: float) -> None:
        """Read every gauge."""
        self.sampled_s.append(now_s)
        for gauge in self.gauges.values():
            call = gauge.read  # as the clock names what it calls, for errors (mezzotint.sim.core.culprit)
            gauge.values.append(call(now_s))
