"""Sensitivity of a result to errors of the service times, and to what else it may rest on.

A run is simulated again with every stage longer and shorter by the known error of its service times, or by an example
change if that error is unknown, and without each assumption of `counterfactuals`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mezzotint.backends.base import BackendError
from mezzotint.backends.profile import find, shipped
from mezzotint.figures.page import number
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.metrics.counterfactuals import EXAMPLE, PROFILED, counterfactuals, with_times
from mezzotint.sim.metrics.header import rests_on
from mezzotint.sim.metrics.run_files import read_config
from mezzotint.sim.metrics.served import service_error
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.runs import Run
from mezzotint.sim.run.shared_trace import shared_trace
from mezzotint.sim.run.simulate import simulate
from mezzotint.traces.error import TraceError

PERCENTILES = ("p50", "p95", "p99")

Latencies = Mapping[str, float]
"""Seconds by PERCENTILES."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The error band of one run: the first seed of its series and load.

    Attributes:
        error: relative error of its service times; None if unknown.
        baseline: latency percentiles of an unchanged rerun; None without reruns.
        shifted: percentiles with service times shorter and longer by the error, or by EXAMPLE if it is unknown.
        reason: the reason why it was not rerun.
        validations: source and known error of each profile that it may have used.
        decides: what its result rests on most, from the reruns; empty without any.
    """

    run: Run
    error: float | None
    baseline: Latencies | None = None
    shifted: Sequence[Latencies] = ()
    reason: str = ""
    validations: Sequence[str] = ()
    decides: str = ""

    @property
    def bands(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest value of each percentile over all reruns; empty without reruns."""
        if self.baseline is None:
            return {}
        values = {name: [rerun[name] for rerun in (self.baseline, *self.shifted)] for name in PERCENTILES}
        return {name: (min(seconds), max(seconds)) for name, seconds in values.items()}


def sensitivities(runs: Sequence[Run], reruns_s: float = 0.0) -> list[Sensitivity]:
    """Look up the profiles of the first run of every series and load, and rerun it with each change.

    A run that cannot be rerun, or for which no time is left, has the reason instead.

    Args:
        reruns_s: CPU-seconds of simulation for all reruns, estimated from the runs' own; reading traces adds to it.
    """
    firsts = [cell.runs[0] for cell in cells(runs)]
    bar = tqdm(firsts, desc="reruns", unit="run", disable=None, delay=1.0, leave=False)
    result, left_s = [], reruns_s
    for run in bar:
        takes_s = rerun_s(run)
        result.append(_sensitivity(run, takes_s, takes_s < left_s))
        left_s -= takes_s if result[-1].baseline else 0.0
    return result


def rerun_s(run: Run) -> float:
    """Estimate the CPU-seconds of simulation of a run's reruns from its own."""
    count = 2 + len(counterfactuals(run.summary, run.tree))
    return count * (run.number("wall", "cpu_s") or 0.0)


def _sensitivity(run: Run, takes_s: float, has_time: bool) -> Sensitivity:
    error = service_error(run.models)
    share = EXAMPLE if error is None else error
    validations: list[str] = []
    try:
        config = configuration(run.path)
        backend = config.get("backend")
        if not isinstance(backend, Mapping) or backend.get("_target_") != PROFILED:
            reason = "it has no profile to change: its service times come from a live backend or another class"
            return Sensitivity(run, error, reason=reason)
        validations = _validations(run.gpu_kinds, backend, config.get("models"))
        if not has_time:
            reason = f"it takes about {number(takes_s, 2)} CPU-seconds; raise --reruns-s"
            return Sensitivity(run, error, reason=reason, validations=validations)
        baseline, shorter = (_rerun(with_times(config, factor)) for factor in (1.0, 1 - share))
        *changes, (words, longer) = counterfactuals(run.summary, config)  # the last is of the times
        slower = _rerun(longer)
    except (ConfigError, TraceError, BackendError, SimulationError, OSError) as cause:
        return Sensitivity(run, error, reason=" ".join(str(cause).split()), validations=validations)
    shifted = [_latencies(shorter), _latencies(slower)]
    decides = _decides(baseline, changes, [(words, slower)])
    return Sensitivity(run, error, _latencies(baseline), shifted, validations=validations, decides=decides)


def configuration(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run for a rerun. Raises ConfigError if the folder has none."""
    config = read_config(folder)
    if not config:
        raise ConfigError(f"{folder}: found no config.yaml; make the run again")
    plain = {str(key): value for key, value in config.items() if key not in ("defaults", "hydra", "run")}
    return plain | {"run": {"dir": "unnamed"}, "quality": {"_target_": "mezzotint.sim.metrics.quality.AtLeastAlpha"}}


def _decides(
    baseline: Mapping[str, Any],
    changes: Sequence[tuple[str, Mapping[str, Any]]],
    tried: Sequence[tuple[str, Mapping[str, Any]]],
) -> str:
    """Make the runs of ``changes`` and say what decides, of them and of ``tried``; and which could not be made."""
    others, refused = list(tried), []
    for words, config in changes:
        try:
            others.append((words, _rerun(config)))
        except (ConfigError, BackendError, SimulationError) as cause:
            refused.append(f"cannot be tried {words}: {' '.join(str(cause).split())}")
    return "; ".join([rests_on(baseline, others), *refused])


def _rerun(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return simulate(config, trace=shared_trace(config)).summary


def _latencies(summary: Mapping[str, Any]) -> Latencies:
    return {name: summary["latency_s"][name] for name in PERCENTILES}


def _validations(kinds: Sequence[str], backend: Mapping[str, Any], models: object) -> list[str]:
    """Return the validation and source of each profile that a configuration may use, in words."""
    folder = backend.get("folder")
    folders = [shipped(), *([Path(folder)] if folder else [])]
    gpus = [str(backend["gpu"])] if backend.get("gpu") else kinds
    profiles = [find(gpu, folders) for gpu in gpus]
    chosen = models.values() if isinstance(models, Mapping) else ()
    names = dict.fromkeys(str(model.get("name")) for model in chosen if isinstance(model, Mapping))
    texts = []
    for profile in (of_gpu[name] for name in names for of_gpu in profiles if name in of_gpu):
        validation = profile.validation or "not yet compared with a real service"
        texts.append(" ".join(f"{profile.model} on {profile.gpu}: {validation} (source: {profile.source})".split()))
    return texts
