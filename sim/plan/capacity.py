"""Capacity of a cluster: the highest rate of every replication (seed) within a target, and the interval of their mean.

A replication has the same draws at every rate, so its gaps only scale. In a FIFO queue no wait then gets shorter as the
rate grows (Lindley's recursion), so the replication sustains every rate up to one. Where a controller or cache reacts
to load, the search finds one of the rates at which the violations cross their bound. Replications are independent, so
the interval is Student's. It is an interval of rates: the share of violations at one rate leaps from none to all near
saturation and is far from normal. The mean of the highest rates lies a little below the rate of the mean share, so the
share at the answer is reported beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from omegaconf import DictConfig, OmegaConf

from mezzotint.figures.page import number
from mezzotint.figures.palette import COLOURS, GREY, house_style, plain_numbers
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.metrics.header import is_overloaded
from mezzotint.sim.plan.rate import RATE, rate_key
from mezzotint.sim.plan.search import CONFIDENCE, bisect, interval
from mezzotint.sim.report.compare import Spread, limit_text
from mezzotint.sim.run.config.compose import resolve_config
from mezzotint.sim.run.pool import Launcher, run_calls
from mezzotint.sim.run.shared_trace import shared_trace
from mezzotint.sim.run.simulate import simulate_into

DIGITS = 6
"""Significant digits of a rate: enough for any tolerance, and few enough for the name of a folder."""

BAND_RATES = 200
"""Rates at which the figure's interval over replications is drawn."""


@dataclass(frozen=True, slots=True)
class CapacitySpec:
    """The target of a capacity search, and the bracket in which the search looks.

    Attributes:
        violations: largest share of requests over the limit ``slo`` ("2x", "10s").
        from_rpm, to_rpm: the bracket: a sustained rate, and one that is not.
        seeds: a replication for each.
        tolerance: bisection ends when its two rates differ by at most this share of the lower one.
    """

    violations: float
    slo: str
    from_rpm: float
    to_rpm: float
    seeds: range
    tolerance: float

    @property
    def bisections(self) -> int:
        """Most rates within the bracket at which one replication runs."""
        return max(0, math.ceil(math.log2(math.log(self.to_rpm / self.from_rpm) / math.log1p(self.tolerance))) + 1)

    @property
    def interval_words(self) -> str:
        """The name of the answer's interval; a single replication has the two rates that its bisection left."""
        return f"{CONFIDENCE:.0%} interval" if len(self.seeds) > 1 else "from"


@dataclass(frozen=True, slots=True)
class RateTrial:
    """The result of one replication at one rate: the share of its requests over the limit, and its overload."""

    seed: int
    rate_rpm: float
    violation_rate: float
    is_overloaded: bool

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        return folder_name(self.seed, self.rate_rpm)

    def is_sustained(self, max_violations: float) -> bool:
        """Return True if it is not overloaded and at most ``max_violations`` of the requests are over the limit.

        In overload the share of late requests only shows how short the trace is.
        """
        return not self.is_overloaded and self.violation_rate <= max_violations


Measure = Callable[[Sequence[tuple[int, float]]], list[RateTrial]]
"""(seed, rate in requests per minute) of each run -> its trial, in the same order."""


def folder_name(seed: int, rate_rpm: float) -> str:
    """Return the name of a run's folder."""
    return f"{rate_rpm:.{DIGITS}g}rpm_seed{seed}"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The result of a search: ``rate_rpm`` is the mean over replications of the highest sustained rate.

    Attributes:
        rate_rpm: its interval reaches from the lower end of the sustained rates' interval to the upper end of the
            unsustained rates' one, so it includes what bisection left open.
        brackets: the last two rates of each replication's bisection: a sustained one, and one that is not.
        at_rate: every replication at ``rate_rpm``, with ``violation_rate`` over all of them.
        trials: every run, by seed and rate.
    """

    rate_rpm: Spread
    brackets: tuple[tuple[float, float], ...]
    at_rate: tuple[RateTrial, ...]
    violation_rate: Spread
    trials: tuple[RateTrial, ...]

    @property
    def overloads(self) -> int:
        """Number of replications that are overloaded at ``rate_rpm``."""
        return sum(trial.is_overloaded for trial in self.at_rate)


def search(spec: CapacitySpec, measure: Measure) -> Capacity:
    """Bisect every replication by ratio, in rounds whose runs can go in parallel.

    All replications begin with the same two rates, so a larger ``violations`` never gives a lower capacity.

    Raises:
        ConfigError: some replication does not sustain the lower rate, or sustains the upper one.
    """
    low, high = _round_rate(spec.from_rpm), _round_rate(spec.to_rpm)
    trials: list[RateTrial] = []

    def run(requested: Sequence[tuple[int, float]]) -> list[RateTrial]:
        measured = measure(requested)
        trials.extend(measured)
        return measured

    def middle(below: float, above: float) -> float | None:
        rate_rpm = _round_rate(math.sqrt(below * above))
        return rate_rpm if above > below * (1 + spec.tolerance) and below < rate_rpm < above else None

    _check(spec, run([(seed, low) for seed in spec.seeds]), is_low=True)
    _check(spec, run([(seed, high) for seed in spec.seeds]), is_low=False)
    brackets = bisect(
        dict.fromkeys(spec.seeds, (low, high)),
        middle,
        lambda requested: [trial.is_sustained(spec.violations) for trial in run(requested)],
    )
    sustained, unsustained = map(interval, zip(*brackets.values(), strict=True))
    rate_rpm = _round_rate(sustained.mean)
    at_rate = run([(seed, rate_rpm) for seed in spec.seeds])
    share = interval([trial.violation_rate for trial in at_rate])
    return Capacity(
        Spread(rate_rpm, max(0.0, sustained.low), unsustained.high, len(spec.seeds)),
        tuple(brackets.values()),
        tuple(at_rate),
        Spread(share.mean, max(0.0, share.low), min(1.0, share.high), len(spec.seeds)),
        tuple(sorted(set(trials), key=lambda trial: (trial.seed, trial.rate_rpm))),
    )


def _round_rate(rate_rpm: float) -> float:
    return float(f"{rate_rpm:.{DIGITS}g}")


def _check(spec: CapacitySpec, trials: Sequence[RateTrial], *, is_low: bool) -> None:
    wrong = [trial for trial in trials if trial.is_sustained(spec.violations) is not is_low]
    if not wrong:
        return
    end = f"--from {spec.from_rpm:g}" if is_low else f"--to {spec.to_rpm:g}"
    share = f"{wrong[0].violation_rate:.1%} of the requests are over {spec.slo}"
    raise ConfigError(
        f"{end}: at this rate {'the system is overloaded' if wrong[0].is_overloaded else share} ({len(wrong)} of "
        f"{len(spec.seeds)} replications; the target is at most {spec.violations:.1%} over {spec.slo}); "
        f"{'lower --from, or take more GPUs' if is_low else 'raise --to'}"
    )


def measure_in(
    folder: Path,
    config: DictConfig,
    slo: str,
    jobs: int = 1,
    launcher: Launcher = "joblib",
    tick: Callable[[], object] = lambda: None,
) -> Measure:
    """Return a function that makes runs which differ in rate and seed alone, each once, in folders below ``folder``.

    Args:
        config: composed but not resolved, so that values that refer to the rate or the seed follow them.
        jobs: worker processes of ``launcher``.
        tick: called after each run.

    Raises:
        ConfigError: the arrivals have no rate, or are the same for every seed. While it measures: a folder holds
            another run. Errors of ``simulate`` pass through.
    """
    config = config.copy()
    rate_key(config)
    if OmegaConf.select(config, "arrivals.seed") is not None:
        raise ConfigError(
            "arrivals.seed: these arrivals are the same whatever the run's seed, so replications would not differ "
            "and the interval would mean nothing; choose arrivals=poisson, day or fluctuating"
        )

    def measure(requested: Sequence[tuple[int, float]]) -> list[RateTrial]:
        calls = []
        for seed, rate_rpm in requested:
            OmegaConf.update(config, RATE, rate_rpm)
            OmegaConf.update(config, "seed", seed)
            calls.append(partial(_run, folder / folder_name(seed, rate_rpm), resolve_config(config)))
        trials = []
        for at, summary in zip(requested, run_calls(calls, jobs, launcher), strict=True):
            late = summary["slo"][slo]["violation_rate"]
            trials.append(RateTrial(*at, float(late), is_overloaded(summary)))
            tick()
        return trials

    return measure


def _run(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    try:
        return simulate_into(config, folder, keep=True, load=shared_trace)[0]
    except SimulationError as error:  # other rates and seeds may not have it
        raise SimulationError(f"{folder.name}: {error}") from None


def as_json(system: str, spec: CapacitySpec, capacity: Capacity) -> dict[str, Any]:
    """Return the content of rate.json: rates in requests per minute, shares of requests."""
    target = asdict(spec)
    del target["seeds"]
    return {
        "schema": 1,
        "system": system,
        **target,
        "confidence": CONFIDENCE,
        "rate_rpm": _mean_and_ends(capacity.rate_rpm),
        "at_rate": {
            "violation_rate": _mean_and_ends(capacity.violation_rate),
            "overloaded": capacity.overloads,
        },
        "replications": [
            {"seed": seed, "carried_rpm": sustained_rpm, "not_carried_rpm": unsustained_rpm}
            for seed, (sustained_rpm, unsustained_rpm) in zip(spec.seeds, capacity.brackets, strict=True)
        ],
        "runs": [{"folder": trial.folder, **asdict(trial)} for trial in capacity.trials],
    }


def _mean_and_ends(spread: Spread) -> dict[str, float]:
    return {"mean": spread.mean, "low": spread.low, "high": spread.high}


def sentence(system: str, spec: CapacitySpec, capacity: Capacity) -> str:
    """Return the capacity, its interval and the violations at that rate as one line of text."""
    rate, share, grows = capacity.rate_rpm, capacity.violation_rate, capacity.overloads
    queue = f", {grows} of {len(spec.seeds)} replications are overloaded" if grows else ""
    return (
        f"{system}: {number(rate.mean)} requests per minute "
        f"({spec.interval_words} {number(rate.low)} to {number(rate.high)}) "
        f"with at most {spec.violations:.1%} over {spec.slo}; "
        f"at that rate {share.mean:.1%} ({share.low:.1%} to {share.high:.1%}) of the requests exceed the limit{queue}"
    )


@house_style()
def draw(system: str, spec: CapacitySpec, capacity: Capacity) -> Figure:
    """Draw the share of requests over the limit against the rate: every run, the mean's interval, the capacity."""
    figure = Figure(figsize=(7.5, 4.9), layout="constrained")
    panel = figure.add_subplot()
    colour, rate = COLOURS[0], capacity.rate_rpm
    grid, curves = np.geomspace(spec.from_rpm, spec.to_rpm, BAND_RATES), []
    for seed in spec.seeds:  # interpolated between the rates that it ran at
        trials = [trial for trial in capacity.trials if trial.seed == seed]
        at, shares = np.log([trial.rate_rpm for trial in trials]), [trial.violation_rate for trial in trials]
        curves.append(np.interp(np.log(grid), at, shares))
    means = [interval(column) for column in np.transpose(curves)]
    panel.plot(grid, [spread.mean for spread in means], color=colour)
    low, high = [max(0.0, spread.low) for spread in means], [min(1.0, spread.high) for spread in means]
    panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    for grows, marker in ((False, "o"), (True, "x")):
        trials = [trial for trial in capacity.trials if trial.is_overloaded is grows]
        rates, shares = [trial.rate_rpm for trial in trials], [trial.violation_rate for trial in trials]
        panel.plot(rates, shares, marker, markersize=4, color=colour, zorder=3, clip_on=False)
    panel.axhline(spec.violations, color=GREY, linestyle="--")
    panel.axvspan(rate.low, rate.high, color=COLOURS[1], alpha=0.2, linewidth=0)
    panel.axvline(rate.mean, color=COLOURS[1])
    panel.set(xscale="log", xlim=(spec.from_rpm, spec.to_rpm), ylim=(0, 1.02))
    panel.xaxis.set_major_formatter(plain_numbers())
    panel.xaxis.set_minor_formatter(plain_numbers())
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel="Request rate (requests/min)", ylabel=f"Requests over the limit, {limit_text(spec.slo)}")
    panel.set_title(
        f"{system}: {number(rate.mean, 3)} requests per minute "
        f"({spec.interval_words} {number(rate.low, 3)} to {number(rate.high, 3)})",
        loc="left",
        fontsize=10,
    )
    handles = [
        Line2D([], [], color=colour, linestyle="", marker="o", markersize=4, label="run"),
        Line2D([], [], color=colour, linestyle="", marker="x", markersize=4, label="overloaded run"),
        Line2D([], [], color=colour, linewidth=6, alpha=0.3, label=f"mean over seeds, {CONFIDENCE:.0%} interval"),
        Line2D([], [], color=GREY, linestyle="--", label=f"target: at most {spec.violations:.1%}"),
        Line2D([], [], color=COLOURS[1], linewidth=6, alpha=0.4, label="capacity and its interval"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
