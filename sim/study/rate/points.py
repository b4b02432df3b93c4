"""The runs of a search: each a run directory, made once and kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from sim.ending import workers_end_with_us
from sim.errors import ConfigError, SimulationError
from sim.run import simulated
from sim.study.rate.own_clock import is_own_clock
from sim.study.rate.search import DIGITS, Point

RATE, SEED = "arrivals.rate_rpm", "seed"


class Points:
    """Runs that differ in rate and seed alone, each in a folder of its own below ``folder``.

    Args:
        config: composed and not resolved, so that what refers to the rate or the seed follows them.
        slo: the name of the limit.
        jobs: worker processes.
        bar: goes on by one with every run.

    Raises:
        ConfigError: the arrivals have no rate, or are the same for every seed.
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
        """The seed of a replication: the configuration's, and those after it."""
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
        resolved = OmegaConf.to_container(self._config, resolve=True, throw_on_missing=True)
        assert isinstance(resolved, dict)
        return {str(key): value for key, value in resolved.items()}


def _run(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The summary of one run, made here or in a worker process unless it is there already."""
    try:
        return simulated(config, folder, keep=True)[0]
    except SimulationError as error:  # of one rate and seed, perhaps, and not of the others
        raise SimulationError(f"{folder.name}: {error}") from None
