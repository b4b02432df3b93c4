"""Replay of measured arrivals through a simulated system, and what is fitted to the measured latencies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from mezzotint.backends.profile import Profile, file_name, within
from mezzotint.backends.profile import write as write_profile
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model, reference
from mezzotint.sim.fit.measured.statistics import Floats, quiet, statistics
from mezzotint.sim.fit.profile.fit import fit
from mezzotint.sim.fit.profile.observed import FEWEST_QUIET
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, shapes_of, simulate
from mezzotint.traces.table.trace import Trace

Fit = Literal["none", "scale", "quiet", "handling"]
"""What is fitted to the result: nothing; one factor of all service seconds, to the mean latency; service seconds by
size and steps, to the quiet requests; seconds that hold no GPU, to the quiet requests beyond their service."""

WIDEST_SCALE = 16.0
"""Largest factor of the service seconds to try, and the inverse of the smallest."""

SEEDS = 10
"""Seeds of a run whose arrivals are drawn, to be compared with aggregates."""

TOLERANCE = 5e-4
"""Relative accuracy of the factor."""


@dataclass(frozen=True)
class Replay:
    """A simulation of measured arrivals.

    Attributes:
        outcome: the run.
        measured: arrival_s and latency_s of the measured requests, by request_id; None for aggregates.
        others: the run with other seeds, where the arrivals are drawn.
    """

    outcome: Outcome
    measured: pd.DataFrame | None = None
    others: Sequence[Outcome] = ()

    @cached_property
    def requests(self) -> pd.DataFrame:
        """The completed requests by request_id: arrival_s, latency_s, service_s, model, and measured_s if paired."""
        rows: pd.DataFrame = self.outcome.requests.to_pandas().tail(self.outcome.summary["requests"]["arrived"])
        rows = rows.query("outcome == 'completed'").set_index("request_id")
        latency_s = rows["finish_s"] - rows["arrival_s"]
        seen = rows[["arrival_s", "model"]].assign(latency_s=latency_s, service_s=rows["finish_s"] - rows["start_s"])
        if self.measured is None or not self.is_paired:
            return seen
        measured_s = self.measured["latency_s"].rename("measured_s")
        return seen.join(measured_s, how="inner").dropna(subset="measured_s")

    @cached_property
    def is_paired(self) -> bool:
        """True if each simulated request arrived when the measured one of its name did."""
        if self.measured is None:
            return False
        rows = self.outcome.requests.to_pandas().set_index("request_id")["arrival_s"]
        both = self.measured.join(rows.rename("simulated_s"), how="inner")
        return len(both) > 0 and bool(np.allclose(both["simulated_s"], both["arrival_s"], rtol=0, atol=1e-6))

    def target(self) -> tuple[Floats, Floats]:
        """Return arrivals and latencies of the measured requests that are compared: the paired ones, else all."""
        assert self.measured is not None
        rows = self.requests if self.is_paired else self.measured.dropna()
        latency_s = rows["measured_s" if self.is_paired else "latency_s"]
        return rows["arrival_s"].to_numpy(), latency_s.to_numpy()

    def rerun(self, config: Mapping[str, Any]) -> "Replay":
        """Replay the same requests through another configuration."""
        if self.measured is None:
            return replay_seeds(config)
        return Replay(simulate(config), self.measured)

    def statistics(self) -> dict[str, float]:
        """Return mean, percentiles and throughput of the simulated latencies; with other seeds, their averages."""
        runs = self.by_seed()
        return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}

    def by_seed(self) -> list[dict[str, float]]:
        """Return the statistics of each seed."""
        seeds = (self, *(Replay(outcome) for outcome in self.others))
        frames = [seed.requests for seed in seeds]
        return [statistics(rows["arrival_s"].to_numpy(), rows["latency_s"].to_numpy()) for rows in frames]


def replay_seeds(config: Mapping[str, Any]) -> Replay:
    """Simulate the configuration's own arrivals with several seeds; with one if a second gives the same figures."""
    first = Replay(simulate(config))
    second = Replay(simulate({**config, "seed": config["seed"] + 1}))
    if first.statistics() == second.statistics():
        return first
    later = [simulate({**config, "seed": config["seed"] + more}) for more in range(2, SEEDS)]
    return Replay(first.outcome, others=[second.outcome, *later])


def measured_frame(trace: Trace) -> pd.DataFrame:
    """Return arrival_s and latency_s of a trace by request_id."""
    columns = {name: trace.column(name) for name in ("arrival_s", "latency_s")}
    return pd.DataFrame(columns, index=pd.Index(trace.table.column("request_id").to_pylist(), name="request_id"))


def with_factor(config: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return a configuration whose service seconds are ``factor`` times as long.

    Raises ConfigError for a backend without ``service_factor``.
    """
    backend = config["backend"]
    if not isinstance(backend, dict) or "service_factor" not in backend:
        raise ConfigError("backend: found one without service_factor, which a scale needs; choose backend=profiled")
    return {**config, "backend": {**backend, "service_factor": factor * backend["service_factor"]}}


def with_handling(config: Mapping[str, Any], more_s: float) -> dict[str, Any]:
    """Return a configuration whose requests take ``more_s`` longer from the image to the answer."""
    handling = config["handling"]
    by_size = {size: seconds + more_s for size, seconds in (handling["by_size"] or {}).items()}
    return {**config, "handling": {**handling, "after_s": handling["after_s"] + more_s, "by_size": by_size or None}}


def find_scale(config: Mapping[str, Any], first: Replay, target_s: float) -> tuple[float, Replay] | None:
    """Return the factor of the service seconds that brings the mean latency to ``target_s``, and its replay.

    Args:
        first: the replay at a factor of 1.

    Returns:
        None if no factor from 1 / WIDEST_SCALE to WIDEST_SCALE does.
    """
    tried = {1.0: first}

    def excess_s(log_factor: float) -> float:
        factor = math.exp(log_factor)
        if factor not in tried:
            tried[factor] = first.rerun(with_factor(config, factor))
        return tried[factor].statistics()["mean"] - target_s

    low = high = 0.0
    step = math.log(2.0) / 2
    at_one_s = excess_s(0.0)
    if abs(at_one_s) <= TOLERANCE * target_s:
        return 1.0, first
    while excess_s(low if at_one_s > 0 else high) * at_one_s > 0:
        low, high = (low - step, low) if at_one_s > 0 else (high, high + step)
        if max(-low, high) > math.log(WIDEST_SCALE):
            return None
    root = brentq(excess_s, low, high, xtol=TOLERANCE / 2, rtol=1e-12)
    excess_s(root)
    return math.exp(root), tried[math.exp(root)]


def quiet_shapes(trace: Trace, model: Model, shapes: str) -> pd.DataFrame:
    """Return size, steps, frames, pixels and seconds (the latency) of the quiet requests of a trace, by arrival.

    Raises ConfigError for fewer than FEWEST_QUIET.
    """
    is_quiet = quiet(trace.arrival_s, trace.column("latency_s"))
    if is_quiet.sum() < FEWEST_QUIET:
        raise ConfigError(
            f"{trace.name}: {int(is_quiet.sum())} of {len(trace)} requests began when no other was in flight, expected"
            f" {FEWEST_QUIET} or more to fit to; measure at a lower rate too, or fit a scale (--fit scale)"
        )
    width, height, steps, frames = (*shapes_of(trace, model, shapes), np.ones(len(trace), np.int32))[:4]
    seen = pd.DataFrame({"arrival_s": trace.arrival_s, "width": width, "height": height, "steps": steps})
    seen = seen.astype(dict.fromkeys(("width", "height", "steps"), "int64"))
    seen = seen.assign(frames=frames.astype(np.int64), seconds=trace.column("latency_s"))
    return seen.assign(pixels=seen["width"] * seen["height"] * seen["frames"])[is_quiet]


def fit_quiet(trace: Trace, model: Model, shapes: str, gpu: str) -> Profile:
    """Return a profile of the seconds of the quiet requests of a trace, by size and steps, with their scatter."""
    seen = quiet_shapes(trace, model, shapes)
    return fit(
        seen,
        gpu=gpu,
        model=model.name,
        source=(
            f"{trace.source}: fitted on the latencies of {len(seen):,} of {len(trace):,} requests that began when no"
            " other was in flight"
        ),
        min_cell=FEWEST_QUIET,
        min_size=1,
    )


def replay_with(
    config: dict[str, Any], trace: Trace, what: Fit, folder: Path
) -> tuple[dict[str, Any], Replay, dict[str, Any]]:
    """Replay a measured trace with what is fitted to it.

    Args:
        config: the resolved configuration; its trace is ``trace``.
        folder: receives the profile of a fit to the quiet requests.

    Returns:
        The configuration with what was fitted, the replay, and the fitted figures by name.
    """
    measured = measured_frame(trace)
    if what == "quiet":
        return _replay_quiet(config, trace, folder, measured)
    replay = Replay(simulate(config), measured=measured)
    if what == "scale":
        target_s = float(replay.target()[1].mean())
        scaled = find_scale(config, replay, target_s)
        if scaled is None:
            raise ConfigError(
                f"--fit scale: no factor up to {WIDEST_SCALE:g} of the service seconds brings the mean latency to"
                f" {target_s:.4g} s; check the system, the number of GPUs and the rate"
            )
        return with_factor(config, scaled[0]), scaled[1], {"service_factor": scaled[0]}
    if what == "handling":
        handling_s = _quiet_handling_s(replay, trace)
        handled = with_handling(config, handling_s)
        return handled, replay.rerun(handled), {"handling_s": handling_s}
    return config, replay, {}


def _replay_quiet(
    config: dict[str, Any], trace: Trace, folder: Path, measured: pd.DataFrame
) -> tuple[dict[str, Any], Replay, dict[str, Any]]:
    settings = check(config)
    gpu = config["backend"].get("gpu") if isinstance(config["backend"], dict) else None
    if not isinstance(gpu, str):
        raise ConfigError(
            "--fit quiet: found no single kind of GPU in backend.gpu; choose backend=profiled cluster=KIND"
        )
    models = {role: build(model, f"models.{role}", Model) for role, model in settings.models.items()}
    profile = fit_quiet(trace, reference(models), settings.shapes, gpu)
    profiles = folder / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    own = config["backend"].get("folder")
    for other in within(Path(own)) if own is not None else ():  # the other models keep theirs
        write_profile(other, profiles / file_name(other.gpu, other.model))
    write_profile(profile, profiles / file_name(gpu, profile.model))
    fitted = {**config, "backend": {**config["backend"], "folder": str(profiles)}}
    replay = Replay(simulate(fitted), measured=measured)
    others = sorted(set(replay.requests["model"].dropna()) - {profile.model})
    if others:
        raise ConfigError(
            f"--fit quiet: {', '.join(others)} answered too, and the result does not say which model did; choose a"
            " system of one model, such as system=vanilla, or --fit scale"
        )
    seconds = {f"{point.width}x{point.height}": point.seconds for point in profile.step}
    quiet_count = int(quiet(trace.arrival_s, trace.column("latency_s")).sum())
    return fitted, replay, {"quiet_requests": quiet_count, "step_s": seconds}


def _quiet_handling_s(replay: Replay, trace: Trace) -> float:
    """Return the median of latency minus simulated service seconds over the quiet requests of a trace."""
    if not replay.is_paired:
        raise ConfigError("arrivals: found others than the result's, which --fit handling replays; leave them out")
    is_quiet = quiet(trace.arrival_s, trace.column("latency_s"))
    ids = pd.Index(trace.table.column("request_id").to_pylist())[is_quiet]
    rows = replay.requests
    if len(ids.intersection(rows.index)) < FEWEST_QUIET:
        raise ConfigError(
            f"--fit handling: {len(ids)} of {len(trace)} requests began when no other was in flight, expected"
            f" {FEWEST_QUIET} or more that the simulation completes; measure at a lower rate too"
        )
    at = rows.loc[ids.intersection(rows.index)]
    handling_s = float((at["measured_s"] - at["service_s"]).median())
    if handling_s < 0:
        raise ConfigError(
            f"--fit handling: the quiet requests take {-handling_s:.3g} s less than the profile's service, so no"
            " handling fits; the profile is too slow: --fit scale or --fit quiet"
        )
    return handling_s


def relative(found: Mapping[str, float], truth: Mapping[str, float]) -> dict[str, float]:
    """Return the relative differences of the statistics that both have."""
    return {name: found[name] / value - 1 for name, value in truth.items() if name in found and value}
