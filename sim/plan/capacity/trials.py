"""The simulations of a capacity search: each has a run folder, is made once and kept."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.streams import stream
from mezzotint.sim.plan.capacity.search import DIGITS, Trial
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.options import resolved
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.settings import Settings
from mezzotint.sim.run.pool import Launcher, run_calls
from mezzotint.sim.run.simulate import simulated
from mezzotint.traces.arrivals.trace_clock import TraceClock, own_rpm
from mezzotint.traces.sources import Source

RATE, SEED = "arrivals.rate_rpm", "seed"


class Trials:
    """Runs that differ in rate and seed alone, each in a folder of its own below ``folder``.

    Args:
        config: composed but not resolved, so that values that refer to the rate or the seed follow them.
        jobs: worker processes of ``launcher``.

    Raises:
        ConfigError: the arrivals have no rate, or are the same for every seed.
    """

    def __init__(
        self, config: DictConfig, folder: Path, slo: str, jobs: int, bar: "tqdm[Any]", launcher: Launcher = "joblib"
    ) -> None:
        self._config, self._folder = config.copy(), folder
        self._slo, self._jobs, self._bar, self._launcher = slo, jobs, bar, launcher
        if not isinstance(OmegaConf.select(config, RATE), int | float) and not is_own_clock(config):
            raise ConfigError(
                f"{RATE}: {OmegaConf.select(config, 'arrivals._target_')} has no rate to search over; choose "
                "arrivals=poisson, day, fluctuating or trace"
            )
        if OmegaConf.select(config, "arrivals.seed") is not None:
            raise ConfigError(
                "arrivals.seed: these arrivals are the same whatever the run's seed, so replications would not differ "
                "and the interval would mean nothing; choose arrivals=poisson, day or fluctuating"
            )
        self._seed = int(OmegaConf.select(config, SEED))

    def seed(self, replication: int) -> int:
        """Return the seed of a replication: the configuration's plus its number."""
        return self._seed + replication

    def folder_name(self, replication: int, rate_rpm: float) -> str:
        """Return the name of a run's folder."""
        return f"{rate_rpm:.{DIGITS}g}rpm_seed{self.seed(replication)}"

    def measure(self, requested: Sequence[tuple[int, float]]) -> list[Trial]:
        """Return the trial of each (replication, rate), simulating those without a finished run folder.

        Raises:
            ConfigError: a folder holds another run. Errors of ``simulate`` pass through.
        """
        calls = [partial(_run, self._folder / self.folder_name(*each), self._config_at(*each)) for each in requested]
        trials = []
        for each, summary in zip(requested, run_calls(calls, self._jobs, self._launcher), strict=True):
            late = summary["slo"][self._slo]["violation_rate"]
            trials.append(Trial(*each, float(late), summary["backlog"]["grows"] is True))
            self._bar.update()
        return trials

    def _config_at(self, replication: int, rate_rpm: float) -> dict[str, Any]:
        OmegaConf.update(self._config, RATE, rate_rpm)
        OmegaConf.update(self._config, SEED, self.seed(replication))
        return resolved(self._config)


def _run(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    try:
        return simulated(config, folder, keep=True)[0]
    except SimulationError as error:  # other rates and seeds may not have it
        raise SimulationError(f"{folder.name}: {error}") from None


def is_own_clock(config: DictConfig) -> bool:
    """Return True if the requests arrive at the trace's own times."""
    return bool(OmegaConf.select(config, f"arrivals.{TARGET}") == f"{TraceClock.__module__}.{TraceClock.__qualname__}")


def replications(config: DictConfig, requested: int | None) -> int:
    """Return the number of seeds: one for the times of a file. Raises ConfigError if more are requested."""
    if not is_own_clock(config) or OmegaConf.select(config, "trace.path") is None:
        return 5 if requested is None else requested
    if requested is not None and requested > 1:
        raise ConfigError(
            f"--replications {requested}: the times of {OmegaConf.select(config, 'trace.path')} are the same for every "
            "seed, so replications would not differ; leave it out, or choose arrivals=poisson"
        )
    return 1


def mean_rpm(config: DictConfig, settings: Settings) -> float | None:
    """Return the mean rate of the trace's own arrivals, requests per minute; None if a process draws their times.

    Raises:
        ConfigError, TraceError: the trace cannot be read, or all of its requests arrive at once.
    """
    if not is_own_clock(config):
        return None
    source: Source = build(settings.trace, "trace", Source)
    trace = source.load(stream(settings.seed, "trace"))
    return own_rpm(trace.arrival_s[settings.preload :])
