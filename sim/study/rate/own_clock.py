"""The search along a log's own arrivals, scaled in time."""

from omegaconf import DictConfig, OmegaConf

from sim.config.build import build
from sim.config.plugins import TARGET
from sim.config.settings import Settings
from sim.errors import ConfigError
from sim.streams import stream
from traces.arrivals.trace_clock import TraceClock, own_rpm
from traces.sources import Source

REPLICATIONS = 5


def is_own_clock(config: DictConfig) -> bool:
    """Return whether the requests arrive by the trace's own clock."""
    return bool(OmegaConf.select(config, f"arrivals.{TARGET}") == f"{TraceClock.__module__}.{TraceClock.__qualname__}")


def replications(config: DictConfig, asked: int | None) -> int:
    """Return the number of seeds: one for the times of a file, which are the same for every seed.

    Raises:
        ConfigError: more are asked for.
    """
    if not is_own_clock(config) or OmegaConf.select(config, "trace.path") is None:
        return REPLICATIONS if asked is None else asked
    if asked is not None and asked > 1:
        raise ConfigError(
            f"--replications {asked}: the times of {OmegaConf.select(config, 'trace.path')} are the same for every"
            " seed, and replications that do not differ tell nothing of noise; leave it out, or choose arrivals=poisson"
        )
    return 1


def mean_rpm(config: DictConfig, settings: Settings) -> float | None:
    """Return the mean rate of the trace's own arrivals, requests per minute; None where a process draws their times.

    Raises:
        ConfigError, TraceError: the trace cannot be read, or all of its requests arrive at once.
    """
    if not is_own_clock(config):
        return None
    source: Source = build(settings.trace, "trace", Source)
    trace = source.load(stream(settings.seed, "trace"))
    return own_rpm(trace.arrival_s[settings.preload :])
