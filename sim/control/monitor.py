"""MoDM's global monitor: sets the number of large models after every window (MoDM, 5.3, Algorithm 1)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, Self, runtime_checkable

from annotated_types import Ge, Lt

from mezzotint.backends.base import BackendError
from mezzotint.settings.assumption import UNMEASURED
from mezzotint.settings.ranges import Count, Rate, SomeSeconds, SomeShare
from mezzotint.sim.control.pid import Gain, Pid
from mezzotint.sim.control.roles import HitSplitter, apply_split, role_gauge
from mezzotint.sim.control.split import Demand, KindCapacity, demand, large_by_kind, quality_split, throughput_split
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.plan import HIT, MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.workload import capacity_rpm
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class WindowCounts:
    """Requests and hits of a window, and the sum of the shares of steps that hits run."""

    requests: int = 0
    hits: int = 0
    left: float = 0.0

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Self:
        """Count ``requests``."""
        hits = [request.plan for request in requests if request.plan.lookup == HIT]
        return cls(len(requests), len(hits), sum(1 - plan.k / plan.of_steps for plan in hits))

    def demand(self, seconds: float) -> Demand:
        """Return the load of the window (equations 7 and 8), zero if no request came."""
        if not self.requests:
            return Demand(0.0, 0.0)
        mean_left = self.left / self.hits if self.hits else 0.0
        return demand(60 * self.requests / seconds, self.hits / self.requests, mean_left)


@runtime_checkable
class Forecast(Protocol):
    """Forecast of the request rate, window by window."""

    def begin(self, period_s: float) -> None:
        """Start with windows of ``period_s``, the first of which begins with the run."""

    def observed(self, rate_rpm: float) -> None:
        """Take the request rate of the window that just ended, in requests a minute."""

    def expected(self, ahead: int) -> Rate:
        """Return the rate ``ahead`` windows after the last observed one (1 is the next), in requests a minute."""


@dataclass(slots=True)
class GlobalMonitor(HitSplitter):
    """Split the cluster between a large model, which takes misses, and a smaller one, which refines hits.

    At the end of each window the rule of ``mode`` turns the window's request rate, hit rate and remaining steps into a
    target number of large models. The PID moves towards the target. Workers are ordered to change until its state,
    rounded, is met. The number stays in [1, N], or in [1, N-1] in throughput mode, where only a small model takes hits.

    A window without requests changes nothing, but for ``drain``. With a ``forecast`` the monitor plans for the highest
    rate expected in the next ``ahead`` windows, with the hits of the last window that had requests.

    If no split with the present small model serves the load, the monitor steps down to the next smaller one at once. It
    steps back up when the larger one has served the load with ``margin`` for ``patience`` windows in a row (MoDM, 7.2
    and Fig. 10; its artifact ends the run instead). If even the smallest cannot, GPUs are split in
    proportion to the load.

    With several kinds of GPU each counts with its own capacities, and every kind must serve every model. The large
    model goes first to the kind that is best at it: with the highest P_l / P_s, of equal ones the first of the cluster.

    Args:
        mode: ``quality`` (equations 9 and 10) or ``throughput`` (11 and 12).
        period_s: length of a window; 180 s in MoDM's artifact.
        kp, ki, kd, max_integral: settings of the PID (mezzotint.sim.control.pid.Pid), which counts time in minutes.
        safety: usable share of the capacity left for hits in quality mode; the artifact takes 0.9, the paper 1.
        miss_role: role that takes misses; the other roles, in the models' order, are the ladder of small ones.
        margin: share of the capacity that must be free before it steps back up.
        patience: number of windows in a row with that margin.
        forecast: forecast of the next windows' rate; None takes the last window's (MoDM).
        ahead: number of windows to look ahead with a forecast.
        batch: batch size whose throughput counts as a GPU's (MoDM profiles 1).
        drain: True if waiting requests are the load of a window without arrivals. Then no GPU idles after the last
            arrival while the other model has a queue (as in the artifact).
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
    _last: WindowCounts = field(init=False, repr=False, default_factory=WindowCounts)
    _arrived: list[Request] = field(init=False, repr=False, default_factory=list)
    """The requests of this window."""
    _waiting: list[Request] = field(init=False, repr=False, default_factory=list)
    """Those up to the last window that waited at its end."""
    _ladder: list[str] = field(init=False, repr=False)
    _capacities: list[dict[str, KindCapacity]] = field(init=False, repr=False)
    """Of each rung, the capacities by kind of GPU, in the order in which the kinds take the large model."""
    _rung: int = field(init=False, default=0)
    _calm_windows: int = field(init=False, default=0)
    _target: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._pid = Pid(self.kp, self.ki, self.kd, self.max_integral)

    def leaves_one_small(self) -> bool:
        return self.mode == "throughput"

    def bind(self, run: Run) -> None:
        self._run = run
        in_role(run.models, self.miss_role)
        self._ladder = [role for role in run.models if role != self.miss_role]
        if not self._ladder:
            raise ConfigError("controller: the monitor splits GPUs between two models or more; choose another models=")
        self._capacities = [self._capacities_with(role) for role in self._ladder]
        if run.workload.sampling is not None:
            source = f"it counts requests, whatever they ask for {UNMEASURED}"
            run.assume("what the controller expects of a request", "one image with usual guidance", source)
        if self.forecast is not None:
            self.forecast.begin(self.period_s)
        self._target = run.cluster.roles().count(self.miss_role)
        self._pid.x = float(self._target)
        for role in run.models:
            run.gauge(f"gpus_{role}", role_gauge(run.cluster, role))
        run.gauge("large_target", lambda _: self._target)
        run.gauge("large_pid", lambda _: self._pid.x)
        run.process(run.clock.every(self.period_s, self._end_window))

    def _capacities_with(self, small_role: str) -> dict[str, KindCapacity]:
        run = self._run
        large, small = run.model(self.miss_role), run.model(small_role)
        counts, capacities = Counter(run.cluster.gpu_kinds()[: run.cluster.gpus]), {}
        for gpu, backend in run.cluster.kinds.items():
            try:
                rpm = capacity_rpm(backend, large, self.batch), capacity_rpm(backend, small, self.batch)
            except BackendError as error:
                if len(run.cluster.kinds) == 1:
                    raise
                raise ConfigError(
                    f"controller: the monitor may put any model on any GPU, and there is {error}; or give the pools "
                    "roles, with controller=none"
                ) from None
            capacities[gpu.name] = KindCapacity(counts[gpu], *rpm)
        ratio = {name: capacity.large_rpm / capacity.small_rpm for name, capacity in capacities.items()}
        return dict(sorted(capacities.items(), key=lambda item: -ratio[item[0]]))

    def arrived(self, request: Request, now_s: float) -> None:
        self._arrived.append(request)

    def _end_window(self, now_s: float) -> None:
        arrived, self._arrived = self._arrived, []
        known = *self._waiting, *arrived
        self._waiting = [request for request in known if request.worker == MISSING and request.model is not None]
        drains = self.drain and not arrived and self.forecast is None
        window = WindowCounts.of(self._waiting if drains else arrived)
        if window.requests:
            self._last = window
        if self.forecast is not None:
            self.forecast.observed(60 * window.requests / self.period_s)
            self._change_split(self._expected_demand(self.forecast))
        elif window.requests:
            self._change_split(window.demand(self.period_s))

    def _expected_demand(self, forecast: Forecast) -> Demand:
        rate = max(forecast.expected(ahead) for ahead in range(1, self.ahead + 1))
        last = self._last.demand(self.period_s)
        growth = rate * self.period_s / (60 * self._last.requests) if self._last.requests else 0.0
        return Demand(last.miss_rpm * growth, last.hit_rpm * growth)

    def _change_split(self, load: Demand) -> None:
        gpus = self._run.cluster.gpus
        max_large = gpus if self.mode == "quality" else max(1, gpus - 1)
        self._choose_rung(load)
        self._target = min(self._large_for(load), max_large)
        large = min(max(round(self._pid.update(self._target, self.period_s / 60, gpus)), 1), max_large)
        split = {self.miss_role: large, self._ladder[self._rung]: gpus - large}
        self._run.log_decision(
            "split", **split, target=self._target, miss_rpm=round(load.miss_rpm, 3), hit_rpm=round(load.hit_rpm, 3)
        )
        capacities, small = self._capacities[self._rung], self._ladder[self._rung]
        of_kinds = large_by_kind(list(capacities.values()), large)
        for (kind, capacity), count in zip(capacities.items(), of_kinds, strict=True):
            of_kind = {self.miss_role: count, small: capacity.gpus - count}
            apply_split(self._run.cluster, of_kind, self._run.clock.now, kind)

    def _choose_rung(self, load: Demand) -> None:
        """Step down the ladder at once if the load requires it, and up again after ``patience`` calm windows."""
        last_rung = len(self._ladder) - 1
        while self._rung < last_rung and not self._can_serve(self._rung, load, self.safety):
            self._rung += 1
            self._calm_windows = 0
        is_calm = self._rung > 0 and self._can_serve(self._rung - 1, load, self.safety * (1 - self.margin))
        self._calm_windows = self._calm_windows + 1 if is_calm else 0
        if self._calm_windows >= self.patience:
            self._rung -= 1
            self._calm_windows = 0

    def _can_serve(self, rung: int, load: Demand, safety: float) -> bool:
        return quality_split([*self._capacities[rung].values()], load, safety) is not None

    def _large_for(self, load: Demand) -> int:
        """Return N_l by the mode's rule, or in proportion to the load if no split serves it."""
        kinds = [*self._capacities[self._rung].values()]
        if self.mode == "quality":
            for safety in (self.safety, 1.0):  # give up the margin before the load
                large = quality_split(kinds, load, safety)
                if large is not None:
                    return large
        return throughput_split(kinds, load)
