"""The runs of a search, each a run directory, made once and kept; and what their arrivals allow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from sim.core.errors import ConfigError, SimulationError
from sim.core.streams import stream
from sim.plan.capacity.search import DIGITS, Point
from sim.run.config.build import build
from sim.run.config.options import resolved
from sim.run.config.plugins import TARGET
from sim.run.config.settings import Settings
from sim.run.simulate import simulated
from sim.run.termination import workers_end_with_us
from traces.arrivals.trace_clock import TraceClock, own_rpm
from traces.sources import Source

RATE, SEED = "arrivals.rate_rpm", "seed"


class Points:
    """Runs that differ in rate and seed alone, each in a folder of its own below ``folder``, in ``jobs`` processes.

    ``config`` is composed and not resolved, so that what refers to the rate or the seed follows them. Raises
    ConfigError where the arrivals have no rate, or are the same for every seed.
    """

    def __init__(self, config: DictConfig, folder: Path, slo: str, jobs: int, bar: "tqdm[Any]") -> None:
        self._config, self._folder = config.copy(), folder
        self._slo, self._jobs, self._bar = slo, jobs, bar
        if not isinstance(OmegaConf.select(config, RATE), int | float) and not is_own_clock(config):
            raise ConfigError(
                f"{RATE}: {OmegaConf.select(config, 'arrivals._target_')} has no rate to search for; choose "
                "arrivals=poisson, day, fluctuating or trace"
            )
        if OmegaConf.select(config, "arrivals.seed") is not None:
            raise ConfigError(
                "arrivals.seed: these arrivals are the same whatever the run's seed, and replications that do not "
                "differ tell nothing of noise; choose arrivals=poisson, day or fluctuating"
            )
        self._seed = int(OmegaConf.select(config, SEED))

    def seed(self, replication: int) -> int:
        """The seed of a replication: the configuration's plus its number."""
        return self._seed + replication

    def name(self, replication: int, rate_rpm: float) -> str:
        """The folder of a run."""
        return f"{rate_rpm:.{DIGITS}g}rpm_seed{self.seed(replication)}"

    def measure(self, asked: Sequence[tuple[int, float]]) -> list[Point]:
        """Run what is not there yet. Raises what ``simulate`` raises, and ConfigError for a folder of another run."""
        workers_end_with_us()
        calls = (delayed(_run)(self._folder / self.name(*each), self._at(*each)) for each in asked)
        found = []
        for each, summary in zip(asked, Parallel(n_jobs=self._jobs, return_as="generator")(calls), strict=True):
            late = summary["slo"][self._slo]["violation_rate"]
            found.append(Point(*each, float(late), summary["backlog"]["grows"] is True))
            self._bar.update()
        return found

    def _at(self, replication: int, rate_rpm: float) -> dict[str, Any]:
        OmegaConf.update(self._config, RATE, rate_rpm)
        OmegaConf.update(self._config, SEED, self.seed(replication))
        return resolved(self._config)


def _run(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    try:
        return simulated(config, folder, keep=True)[0]
    except SimulationError as error:  # of one rate and seed, perhaps, and not of the others
        raise SimulationError(f"{folder.name}: {error}") from None


def is_own_clock(config: DictConfig) -> bool:
    """Return whether the requests arrive by the trace's own clock."""
    return bool(OmegaConf.select(config, f"arrivals.{TARGET}") == f"{TraceClock.__module__}.{TraceClock.__qualname__}")


def replications(config: DictConfig, asked: int | None) -> int:
    """Return the number of seeds: one for the times of a file. Raises ConfigError where more are asked for."""
    if not is_own_clock(config) or OmegaConf.select(config, "trace.path") is None:
        return 5 if asked is None else asked
    if asked is not None and asked > 1:
        raise ConfigError(
            f"--replications {asked}: the times of {OmegaConf.select(config, 'trace.path')} are the same for every"
            " seed, and replications that do not differ tell nothing of noise; leave it out, or choose arrivals=poisson"
        )
    return 1


def mean_rpm(config: DictConfig, settings: Settings) -> float | None:
    """Return the mean rate of the trace's own arrivals, requests per minute; None where a process draws their times.

    Raises ConfigError or TraceError where the trace cannot be read, or all of its requests arrive at once.
    """
    if not is_own_clock(config):
        return None
    source: Source = build(settings.trace, "trace", Source)
    trace = source.load(stream(settings.seed, "trace"))
    return own_rpm(trace.arrival_s[settings.preload :])
