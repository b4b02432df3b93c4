"""DiffServe's controller: the threshold of a cascade, the split of its GPUs, and their batch sizes, by demand."""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import ceil
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from mezzotint.settings.ranges import Amount, Positive
from mezzotint.sim.control.roles import apply_split, role_gauge
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import BatchQueues, CascadeFrontEnd, Controller, Run

BATCHES = (1, 2, 4, 8, 16, 32)


class Setting(NamedTuple):
    """Threshold, GPUs with the light model, and the batch sizes of both."""

    threshold: float
    light: int
    light_batch: int
    heavy_batch: int


@dataclass(slots=True)
class DiffServe(Controller):
    """Every ``period_s``: the highest threshold whose load the GPUs carry within the deadline.

    With the demand times ``headroom``: all of it fits the light GPUs, the share f(t) the heavy ones, and both batches
    and both queues (by Little's law) take at most the deadline. Of several settings the one with most spare light
    capacity. Without any, the threshold is 0 and all GPUs but one are light.

    Args:
        frontend, scheduler: the cascade and its queues, whose settings it changes.
        period_s: seconds between decisions.
        headroom: factor on the demand.
        demand: ``in-flight`` takes the requests in the system, as the paper's artifact does; ``arrivals`` the arrivals
            per second, as the paper says. By these a cascade of SDXS is later than one that is fixed.
        smoothing: centre of mass of the moving average of the demand, in periods; 0 takes the last alone.
        grid: thresholds that are tried, from 0 to 1.
        deadline_s: seconds that a request may take.

    Source: DiffServe, its allocation; solved by enumeration.
    """

    frontend: CascadeFrontEnd
    scheduler: BatchQueues
    deadline_s: Positive
    period_s: Positive = 5.0
    headroom: Positive = 1.2
    demand: Literal["arrivals", "in-flight"] = "in-flight"
    smoothing: Amount = 2.1
    grid: Annotated[int, Ge(2), Le(10_001)] = 201
    _run: Run = field(init=False, repr=False)
    _arrived: int = field(init=False, default=0, repr=False)
    _demand_s: float | None = field(init=False, default=None, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        run.gauge("threshold", lambda _: self.frontend.threshold)
        run.gauge("light_gpus", role_gauge(run.cluster, self.frontend.light))
        run.process(run.clock.every(self.period_s, self._decide))

    def arrived(self, request: Request, now_s: float) -> None:
        self._arrived += 1

    def _decide(self, now_s: float) -> None:
        rate_s = self._smooth(self._arrived / self.period_s if self.demand == "arrivals" else self._run.in_system)
        self._arrived = 0
        light, heavy = self.frontend.light, self.frontend.heavy
        queued = self.scheduler.queued(light), self.scheduler.queued(heavy)
        setting = self.best(self.headroom * rate_s, queued)
        self.frontend.threshold = setting.threshold
        self.scheduler.max_batch = {light: setting.light_batch, heavy: setting.heavy_batch}
        self._run.log_decision("cascade", rate_s=rate_s, **setting._asdict())
        apply_split(self._run.cluster, {light: setting.light, heavy: self._run.cluster.gpus - setting.light}, now_s)

    def _smooth(self, demand_s: float) -> float:
        before = demand_s if self._demand_s is None else self._demand_s
        self._demand_s = before + (demand_s - before) / (1 + self.smoothing)
        return self._demand_s

    def best(self, demand_s: float, queued: tuple[int, int] = (0, 0)) -> Setting:
        """Return the setting for ``demand_s`` requests per second.

        Args:
            queued: requests that wait at light and at heavy GPUs.
        """
        gpus = self._run.cluster.gpus
        light_sizes, heavy_sizes = self._sizes(self.frontend.light), self._sizes(self.frontend.heavy)
        for threshold in np.linspace(1.0, 0.0, self.grid).tolist():
            share = self.frontend.escalated_share(threshold)
            rates = demand_s, demand_s * share
            waits_s = sum(count / rate if rate else 0.0 for count, rate in zip(queued, rates, strict=True))
            feasible: list[tuple[float, Setting]] = []
            for (light_batch, light_s), (heavy_batch, heavy_s) in product(light_sizes, heavy_sizes):
                took_s = light_s + self.frontend.discriminator_s + waits_s + (heavy_s if share else 0.0)
                count = max(1, ceil(demand_s * light_s / light_batch))
                heavy_rate = (gpus - count) * heavy_batch / heavy_s
                if took_s <= self.deadline_s and count < gpus and heavy_rate >= rates[1]:
                    setting = Setting(threshold, count, light_batch, heavy_batch)
                    feasible.append((count * light_batch / light_s, setting))
            if feasible:
                return max(feasible)[1]
        batch = max(light_sizes, key=lambda size: size[0] / size[1])[0]
        return Setting(0.0, gpus - 1, batch, 1)

    def _sizes(self, role: str) -> list[tuple[int, float]]:
        """Return the batch sizes that a GPU takes and that were measured with the model of ``role``, with seconds."""
        max_batch = self._run.cluster.workers[0].max_batch
        sizes = []
        for batch in BATCHES:
            if batch <= max_batch:
                with suppress(ValueError):  # not measured
                    sizes.append((batch, self.scheduler.batch_s(role, batch)))
        return sizes
