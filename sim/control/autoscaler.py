"""Autoscaler: orders and gives back GPUs by a rule, period by period, as Kubernetes' HPA does."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from mezzotint.settings.ranges import Count, Rate, Seconds, Share, SomeSeconds
from mezzotint.sim.control.instances import Instances, RentingController
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run


@runtime_checkable
class ScalingRule(Protocol):
    """A rule that turns what was observed into a number of GPUs."""

    def bind(self, run: Run, instances: Instances) -> None: ...

    def arrived(self, request: Request, now_s: float) -> None:
        """Take note that ``request`` arrived and was planned."""
        return

    def wanted(self, now_s: float) -> Rate:
        """Return the GPUs that the load of the past needs, as a real number. Called once every period."""


@dataclass(slots=True)
class Autoscaler(RentingController):
    """Follow ``rule``: scale up at once, and down to the maximum that was wanted within ``stabilisation_s``.

    The number of GPUs stays if the rule wants within ``tolerance`` of the GPUs that are on or starting. Otherwise it is
    the smallest whole number that the rule allows. Source: Kubernetes, Horizontal Pod Autoscaling, "Algorithm details"
    and "Stabilization window"; KEDA hands its metrics to the same autoscaler.

    Args:
        rule: what the number of GPUs follows.
        period_s: seconds between decisions.
        tolerance: relative difference that changes nothing.
        stabilisation_s: seconds whose largest wish holds off a scale-down.
        start_gpus: GPUs on at the start, their model loaded; None is ``max_gpus``.
        startup_s, min_gpus, max_gpus: of Instances.

    Raises ConfigError as Instances does.
    """

    rule: ScalingRule
    startup_s: Seconds
    period_s: SomeSeconds = 15.0
    tolerance: Share = 0.1
    stabilisation_s: Seconds = 300.0
    min_gpus: Count = 1
    max_gpus: Count | None = None
    start_gpus: Count | None = None
    _instances: Instances = field(init=False, repr=False)
    _wishes: "deque[tuple[float, int]]" = field(init=False, default_factory=deque, repr=False)

    def bind(self, run: Run) -> None:
        self._instances = Instances(run, self.startup_s, self.min_gpus, self.max_gpus)
        limit = self._instances.limit
        start = limit if self.start_gpus is None else self.start_gpus
        if not self.min_gpus <= start <= limit:
            raise ConfigError(
                f"controller.start_gpus: found {start}, expected {self.min_gpus} to {limit} (min_gpus to max_gpus)"
            )
        self._wishes.append((0.0, self._instances.begin(start)))  # as the autoscaler of Kubernetes does
        self.rule.bind(run, self._instances)
        run.process(run.clock.every(self.period_s, self._resize))

    def arrived(self, request: Request, now_s: float) -> None:
        self.rule.arrived(request, now_s)

    def _resize(self, now_s: float) -> None:
        wanted, ordered = self.rule.wanted(now_s), self._instances.gpus_ordered()
        wish = ordered if abs(wanted / ordered - 1) <= self.tolerance else math.ceil(wanted - 1e-9)
        while self._wishes and self._wishes[0][0] <= now_s - self.stabilisation_s:
            self._wishes.popleft()
        self._wishes.append((now_s, wish))
        self._instances.resize(wish if wish >= ordered else min(ordered, max(wish for _, wish in self._wishes)))
