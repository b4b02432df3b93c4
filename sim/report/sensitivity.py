"""How right a prediction is likely to be: what it would be if every stage took as much less or more as its service
times are known to err. Where nobody knows that error, an example change shows how much a latency depends on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from backends.base import BackendError
from backends.profile import find, shipped
from conf.page import number
from sim.core.errors import ConfigError, SimulationError
from sim.metrics.run_files import read_config
from sim.report.compare import cells
from sim.report.runs import Run
from sim.report.served import service_error
from sim.run.simulate import simulate
from traces.error import TraceError

EXAMPLE = 0.1
"""The change of the service time that is shown where its error is not known, as a share of it."""

PERCENTILES = ("p50", "p95", "p99")

PROFILED = "backends.profiled.Profiled"

Latencies = Mapping[str, float]
"""Seconds by PERCENTILES."""


@dataclass(frozen=True, slots=True)
class Likely:
    """One run, of the first seed of its series and load, and how right it is likely to be.

    Attributes:
        error: the known error of its service times, as a share of them; None where nobody knows it.
        said: its percentiles from a rerun, and ``moved``: those with the service time shorter and longer by the error,
            or by EXAMPLE without one; none where it was not made again.
        reason: why it could not be made again.
        checked: of each profile that it may have used, whose it is, and how far it was from what was measured.
    """

    run: Run
    error: float | None
    said: Latencies | None = None
    moved: Sequence[Latencies] = ()
    reason: str = ""
    checked: Sequence[str] = ()

    @property
    def bands(self) -> dict[str, tuple[float, float]]:
        """The smallest and largest value of each percentile with the service time moved; empty without reruns."""
        if self.said is None:
            return {}
        found = {name: [each[name] for each in (self.said, *self.moved)] for name in PERCENTILES}
        return {name: (min(values), max(values)) for name, values in found.items()}


def likely(runs: Sequence[Run], reruns_s: float = 0.0) -> list[Likely]:
    """Of the first run of every series and load: look its profiles up, and rerun it with the service time moved.

    A run that cannot be made again, or for which no time is left, has the reason instead. ``reruns_s`` are the
    CPU-seconds of simulation that reruns may take in all, by what the runs themselves took, besides reading traces.
    """
    firsts = [cell.runs[0] for cell in cells(runs)]
    bar = tqdm(firsts, desc="reruns with the service time moved", unit="run", disable=None, delay=1.0, leave=False)
    found, left_s = [], reruns_s
    for run in bar:
        takes_s = rerun_s(run)
        found.append(_likely(run, takes_s, takes_s < left_s))
        left_s -= takes_s if found[-1].said else 0.0
    return found


def rerun_s(run: Run) -> float:
    """CPU-seconds of simulation that the reruns of ``run`` take, by what the run itself took."""
    return 3 * (run.number("wall", "cpu_s") or 0.0)


def _likely(run: Run, takes_s: float, has_time: bool) -> Likely:
    error = service_error(run.models)
    share = EXAMPLE if error is None else error
    checked: list[str] = []
    try:
        config = configuration(run.path)
        backend = config.get("backend")
        if not isinstance(backend, Mapping) or backend.get("_target_") != PROFILED:
            return Likely(
                run, error, reason="its backend is not a profile: what was really run has the error of that run"
            )
        checked = _checked(backend, config.get("models"))
        if not has_time:
            reason = f"its reruns take about {number(takes_s, 2)} CPU-seconds of simulation: report --reruns-s inf"
            return Likely(run, error, reason=reason, checked=checked)
        said, *moved = (latencies(config, factor) for factor in (1.0, 1 - share, 1 + share))
    except (ConfigError, TraceError, BackendError, SimulationError, OSError) as cause:
        return Likely(run, error, reason=" ".join(str(cause).split()), checked=checked)
    return Likely(run, error, said, moved, checked=checked)


def configuration(folder: Path) -> dict[str, Any]:
    """The configuration of a finished run, to be run again. Raises ConfigError where there is none."""
    found = read_config(folder)
    if not found:
        raise ConfigError(f"{folder}: holds no configuration; make the run again")
    plain = {str(key): value for key, value in found.items() if key not in ("defaults", "hydra", "run")}
    return plain | {"run": {"dir": "unnamed"}, "quality": {"_target_": "sim.metrics.quality.AtLeastAlpha"}}


def latencies(config: Mapping[str, Any], factor: float) -> Latencies:
    """Rerun ``config`` with every stage ``factor`` times as long, besides what its backend.service_factor is.

    Raises ConfigError, TraceError, BackendError or SimulationError where it cannot be run.
    """
    backend = config["backend"]
    moved = {**backend, "service_factor": factor * backend.get("service_factor", 1.0)}
    found = simulate({**config, "backend": moved}).summary["latency_s"]
    return {name: found[name] for name in PERCENTILES}


def _checked(backend: Mapping[str, Any], models: object) -> list[str]:
    """What is known of the profiles of the models that a configuration may serve with."""
    folder = backend.get("folder")
    profiles = find(str(backend.get("gpu")), [shipped(), *([Path(folder)] if folder else [])])
    served = models.values() if isinstance(models, Mapping) else ()
    names = dict.fromkeys(str(model.get("name")) for model in served if isinstance(model, Mapping))
    told = []
    for profile in (profiles[name] for name in names if name in profiles):
        checked = " ".join((profile.validation or "nobody has held it against a service yet").split())
        told.append(f"{profile.model} on {profile.gpu}: {checked} (source: {' '.join(profile.source.split())})")
    return told
