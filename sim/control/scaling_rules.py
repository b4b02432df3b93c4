"""Scaling rules: how many GPUs the load of the last minutes needs."""

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le
from numpy.typing import NDArray

from mezzotint.settings.ranges import Positive, SomeSeconds, SomeShare
from mezzotint.sim.control.autoscaler import ScalingRule
from mezzotint.sim.control.instances import Instances
from mezzotint.sim.core.model import reference
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.workload import capacity_rpm
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class TargetUtilisation(ScalingRule):
    """GPUs x utilisation / ``target``: the rule of Kubernetes' HPA.

    The utilisation is the share of the GPUs in service that run a request, sampled once a period and averaged over
    ``window_s``. As in the HPA, GPUs that start count as idle, and while the others are above the target nothing is
    given back.

    Args:
        target: utilisation to aim at.
        window_s: seconds of samples that are averaged.
    """

    target: SomeShare = 0.7
    window_s: SomeSeconds = 60.0
    _instances: Instances = field(init=False, repr=False)
    _samples: "deque[tuple[float, int, int]]" = field(init=False, default_factory=deque, repr=False)

    def bind(self, run: Run, instances: Instances) -> None:
        self._instances = instances

    def wanted(self, now_s: float) -> float:
        ready = self._instances.ready()
        self._samples.append((now_s, sum(worker.running > 0 for worker in ready), len(ready)))
        while self._samples[0][0] <= now_s - self.window_s:
            self._samples.popleft()
        busy, on = (sum(sample[column] for sample in self._samples) for column in (1, 2))
        utilisation = busy / on
        wanted = len(ready) * utilisation / self.target
        return max(wanted, self._instances.gpus_ordered()) if utilisation > self.target else wanted


@dataclass(slots=True)
class PendingRequests(ScalingRule):
    """Requests / ``per_gpu``: the rule of a KEDA scaler, and of the HPA on a metric with an average value.

    Args:
        per_gpu: requests for each GPU.
        count: ``in_system`` counts waiting and running requests, ``waiting`` those that wait.
    """

    per_gpu: Positive = 1.0
    count: Literal["in_system", "waiting"] = "in_system"
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run, instances: Instances) -> None:
        self._run = run

    def wanted(self, now_s: float) -> float:
        return (self._run.waiting if self.count == "waiting" else self._run.in_system) / self.per_gpu


@dataclass(slots=True)
class QueueingModel(ScalingRule):
    """Arrival rate / the rate that one GPU sustains, each GPU a Markovian queue: llm-d's workload-variant-autoscaler.

    A GPU is a queue with Poisson arrivals and exponential service whose rate depends on the requests in it, as batches
    of that size were profiled. It sustains the rate at which the mean time in it is ``slo_multiplier`` times the
    standalone latency. Served one at a time it is M/M/1, whose load is then 1 - 1 / slo_multiplier. Arrivals are
    weighted with the share of a full generation that their plans leave, known from the profile.

    The original learns its service times from the run with a Kalman filter; here they are the profile's.

    Args:
        slo_multiplier: mean latency to aim at, in standalone latencies.
        window_s: seconds over which arrivals are counted.

    Source: llm-d, QueueingModelAnalyzer (queueingmodel/README.md, 2.4, 2.5, 5).
    """

    slo_multiplier: Annotated[float, Gt(1), Le(1e6)] = 3.0
    window_s: SomeSeconds = 300.0
    max_load: float = field(init=False)
    """Load of one GPU at the rate that it sustains: arrivals in a standalone latency."""
    _standalone_s: NDArray[np.float64] = field(init=False, repr=False)
    _work_s: float = field(init=False, default=0.0, repr=False)
    _periods: "deque[tuple[float, float]]" = field(init=False, default_factory=deque, repr=False)

    def bind(self, run: Run, instances: Instances) -> None:
        self._standalone_s = run.workload.standalone.total_s
        model, max_batch = reference(run.models), instances.ready()[0].max_batch
        alone_rpm = capacity_rpm(run.backend, model)
        speeds = [capacity_rpm(run.backend, model, batch) / alone_rpm for batch in range(1, max_batch + 1)]
        self.max_load = sustained_load(speeds, self.slo_multiplier)

    def arrived(self, request: Request, now_s: float) -> None:
        if request.model is not None and request.steps:
            self._work_s += self._standalone_s[request.row] * request.steps_left / request.steps

    def wanted(self, now_s: float) -> float:
        self._periods.append((now_s, self._work_s))
        self._work_s = 0.0
        while self._periods[0][0] <= now_s - self.window_s:
            self._periods.popleft()
        work_s = sum(seconds for _, seconds in self._periods)
        return work_s / min(self.window_s, now_s) / self.max_load


def sustained_load(speeds: list[float], max_latency: float) -> float:
    """Return the load at which the mean time in a Markovian queue is ``max_latency``, service alone taking 1.

    Args:
        speeds: service rate with 1, 2, ... requests in the queue; the last holds for more. The first is 1.
    """
    low, high = 0.0, speeds[-1]
    for _ in range(60):  # bisection, to double precision
        middle = (low + high) / 2
        low, high = (middle, high) if mean_latency(speeds, middle) <= max_latency else (low, middle)
    return low


def mean_latency(speeds: list[float], load: float) -> float:
    """Return the mean time in a queue with Poisson arrivals and service rates ``speeds`` (sustained_load).

    By Little's law from the stationary probabilities of the birth and death process: p(n) = p(n-1) load / speed(n).
    """
    if load == 0.0:
        return 1.0 / speeds[0]
    share, total, requests = 1.0, 1.0, 0.0
    for number, speed in enumerate(speeds, 1):
        share *= load / speed
        total += share
        requests += number * share
    ratio, last = load / speeds[-1], len(speeds)
    if ratio >= 1.0:
        return float("inf")
    tail = share * ratio / (1 - ratio)  # of all states beyond the last, a geometric series
    total += tail
    requests += tail * (last + 1 / (1 - ratio))
    return requests / total / load
