"""MoDM's global monitor: the number of large models, worked out anew in every window (MoDM, 5.3, Algorithm 1)."""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Annotated, Any, Literal

import simpy
from annotated_types import Ge, Lt

from conf.ranges import Count, SomeSeconds, SomeShare
from sim.control.forecast import Forecast
from sim.control.pid import Gain, Pid
from sim.control.roles import bring, serving
from sim.control.split import Demand, demand, quality_split, throughput_split
from sim.core.culprit import class_name
from sim.core.errors import ConfigError, SimulationError
from sim.core.model import in_role
from sim.core.request import HIT, MISSING, Request
from sim.core.workload import capacity_rpm
from sim.protocols import Controller, Run


@dataclass(slots=True)
class Window:
    """What arrived since the last look: requests, hits, and the share of its steps that each hit runs, summed."""

    requests: int = 0
    hits: int = 0
    left: float = 0.0

    def add(self, request: Request) -> None:
        self.requests += 1
        if request.lookup == HIT:
            self.hits += 1
            self.left += 1 - request.k / request.of_steps

    def demand(self, seconds: float) -> Demand:
        """The load of the window (equations 7 and 8); nothing where nothing came."""
        if not self.requests:
            return Demand(0.0, 0.0)
        mean_left = self.left / self.hits if self.hits else 0.0
        return demand(60 * self.requests / seconds, self.hits / self.requests, mean_left)


@dataclass(slots=True)
class GlobalMonitor(Controller):
    """Splits the cluster between a large model, which takes misses, and a smaller one, which refines hits.

    At the end of each window it works out, from the window's request rate, hit rate and steps left, the number of large
    models that ``mode`` asks for, moves its PID towards that, and orders workers until as many hold the large model as
    the PID says, rounded and kept in [1, N] ([1, N-1] in throughput mode, where only a small one takes hits). A window
    in which nothing came changes nothing, but for ``drain``. With a ``forecast`` it plans for the highest rate that is
    expected of the next ``ahead`` windows, with the last hits that there were.

    Where no split with the present small model serves the load it steps down to the next smaller one at once, and back
    up when the larger one has carried the load with room to spare for ``patience`` windows in a row (MoDM, 7.2 and Fig.
    10; its artifact ends the run instead). Where the smallest cannot either, GPUs are split in proportion to the load.

    Args:
        mode: ``quality`` (equations 9 and 10) or ``throughput`` (11 and 12).
        period_s: length of a window; 180 s in MoDM's artifact.
        kp, ki, kd, max_integral: of the PID (sim.control.pid.Pid), which counts time in minutes.
        safety: share of what the large models leave for hits that quality mode plans with; the artifact's 0.9, the
            paper's equation has 1.
        miss_role: the role that takes misses; the other roles, in the models' order, are the ladder of small ones.
        margin: share of the capacity that must be free before it steps back up.
        patience: windows in a row for which it must be.
        forecast: what expects the next windows' rate; None takes the last one's (MoDM).
        ahead: windows that it looks ahead with a forecast.
        batch: requests that a GPU serves at once, whose throughput counts as its (MoDM profiles 1).
        drain: whether what waits is the load of a window in which nothing came, so that no GPU idles beside the other
            model's queue when the arrivals are over (as the artifact's workers).
    """

    mode: Literal["quality", "throughput"] = "quality"
    period_s: SomeSeconds = 180.0
    kp: Gain = 0.6
    ki: Gain = 0.05
    kd: Gain = 0.05
    max_integral: Gain | None = None
    safety: SomeShare = 0.9
    miss_role: str = "large"
    margin: Annotated[float, Ge(0), Lt(1)] = 0.15
    patience: Count = 3
    forecast: Forecast | None = None
    ahead: Count = 1
    batch: Count = 1
    drain: bool = True
    _pid: Pid = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _window: Window = field(init=False, repr=False, default_factory=Window)
    _last: Window = field(init=False, repr=False, default_factory=Window)
    _came: list[Request] = field(init=False, repr=False, default_factory=list)
    _ladder: list[str] = field(init=False, repr=False)
    _rpm: dict[str, float] = field(init=False, repr=False)
    _rung: int = field(init=False, default=0)
    _calm: int = field(init=False, default=0)
    _target: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._pid = Pid(self.kp, self.ki, self.kd, self.max_integral)

    def bind(self, run: Run) -> None:
        self._run = run
        in_role(run.models, self.miss_role)
        self._ladder = [role for role in run.models if role != self.miss_role]
        if not self._ladder:
            raise ConfigError("controller: the monitor splits GPUs between two models or more; choose another models=")
        self._rpm = {role: capacity_rpm(run.backend, run.model(role), self.batch) for role in run.models}
        if self.forecast is not None:
            self.forecast.begin(self.period_s)
        self._target = serving(run.cluster, self.miss_role)
        self._pid.x = float(self._target)
        for role in run.models:
            run.gauge(f"gpus_{role}", partial(serving, run.cluster, role))
        run.gauge("large_target", lambda _: self._target)
        run.gauge("large_pid", lambda _: self._pid.x)
        run.process(self._watch())

    def arrived(self, request: Request, now_s: float) -> None:
        self._window.add(request)
        self._came.append(request)

    def _watch(self) -> Generator[simpy.Event, Any, None]:
        clock, end_s = self._run.clock, 0.0
        while True:
            end_s += self.period_s
            yield clock.sleep_until(end_s)
            window, self._window = self._window, Window()
            self._came = [each for each in self._came if each.worker == MISSING and each.model is not None]
            if self.drain and not window.requests and self.forecast is None:
                for each in self._came:
                    window.add(each)
            if window.requests:
                self._last = window
            if self.forecast is not None:
                self.forecast.observed(60 * window.requests / self.period_s)
                self._act(self._expected(self.forecast))
            elif window.requests:
                self._act(window.demand(self.period_s))

    def _expected(self, forecast: Forecast) -> Demand:
        rate = max(forecast.expected(ahead) for ahead in range(1, self.ahead + 1))
        if not 0.0 <= rate < inf:
            raise SimulationError(
                f"{class_name(forecast)} expects {rate} requests a minute; expected 0 or more, and finite"
            )
        seen = self._last.demand(self.period_s)
        times = rate * self.period_s / (60 * self._last.requests) if self._last.requests else 0.0
        return Demand(seen.miss_rpm * times, seen.hit_rpm * times)

    def _act(self, asked: Demand) -> None:
        gpus = self._run.cluster.gpus
        most = gpus if self.mode == "quality" else max(1, gpus - 1)
        self._step(asked)
        self._target = min(self._wanted(asked), most)
        large = min(max(round(self._pid.update(self._target, self.period_s / 60, gpus)), 1), most)
        split = {self.miss_role: large, self._ladder[self._rung]: gpus - large}
        self._run.log_decision(
            "split", **split, target=self._target, miss_rpm=round(asked.miss_rpm, 3), hit_rpm=round(asked.hit_rpm, 3)
        )
        bring(self._run.cluster, split, self._run.clock.now)

    def _step(self, asked: Demand) -> None:
        """Down the ladder at once where the load asks for it, up again after ``patience`` calm windows."""
        last = len(self._ladder) - 1
        while self._rung < last and not self._carries(self._rung, asked, self.safety):
            self._rung += 1
            self._calm = 0
        roomy = self._rung > 0 and self._carries(self._rung - 1, asked, self.safety * (1 - self.margin))
        self._calm = self._calm + 1 if roomy else 0
        if self._calm >= self.patience:
            self._rung -= 1
            self._calm = 0

    def _carries(self, rung: int, asked: Demand, safety: float) -> bool:
        large_rpm, small_rpm = self._rpm[self.miss_role], self._rpm[self._ladder[rung]]
        return quality_split(self._run.cluster.gpus, asked, large_rpm, small_rpm, safety) is not None

    def _wanted(self, asked: Demand) -> int:
        """N_l as the mode's rule has it. Where nothing serves the load, in proportion to it."""
        gpus, large_rpm, small_rpm = (
            self._run.cluster.gpus, self._rpm[self.miss_role], self._rpm[self._ladder[self._rung]]
        )  # fmt: skip
        if self.mode == "quality":
            for safety in (self.safety, 1.0):  # the margin is given up before the load is
                found = quality_split(gpus, asked, large_rpm, small_rpm, safety)
                if found is not None:
                    return found
        return throughput_split(gpus, asked, large_rpm, small_rpm)
