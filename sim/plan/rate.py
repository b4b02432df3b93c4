"""The rate of arrivals that a search scales, and the replications that its arrivals allow."""

from omegaconf import DictConfig, OmegaConf

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.settings import Settings
from mezzotint.traces.arrivals.trace_clock import TraceClock, own_rpm
from mezzotint.traces.sources import Source

RATE, SPEEDUP = "arrivals.rate_rpm", "arrivals.speedup"


def rate_key(config: DictConfig) -> tuple[str, float]:
    """Return the key and the value that scale the arrivals of ``config``. Raises ConfigError if they have none."""
    for key in (RATE, SPEEDUP):
        value = OmegaConf.select(config, key)
        if isinstance(value, int | float):
            return key, value
    raise ConfigError(
        f"arrivals: {OmegaConf.select(config, f'arrivals.{TARGET}')} has no rate to scale; choose arrivals=poisson, "
        "day, fluctuating or trace"
    )


def count_replications(requested: int | None, usual: int, times_of: object | None, remedy: str) -> int:
    """Return the number of seeds: one where they all have the same arrival times.

    Args:
        times_of: the file whose own times are replayed; None if a process draws them.

    Raises ConfigError: more seeds are requested than differ.
    """
    if times_of is None:
        return usual if requested is None else requested
    if requested is not None and requested > 1:
        raise ConfigError(
            f"--replications {requested}: the times of {times_of} are the same for every seed, so replications would "
            f"not differ; leave it out, or {remedy}"
        )
    return 1


def is_own_clock(config: DictConfig) -> bool:
    """Return True if the requests arrive at the trace's own times."""
    return bool(OmegaConf.select(config, f"arrivals.{TARGET}") == f"{TraceClock.__module__}.{TraceClock.__qualname__}")


def mean_rpm(config: DictConfig, settings: Settings) -> float | None:
    """Return the mean rate of the trace's own arrivals, requests per minute; None if a process draws their times.

    Raises:
        ConfigError, TraceError: the trace cannot be read, or all of its requests arrive at once.
    """
    if not is_own_clock(config):
        return None
    source: Source = build(settings.trace, "trace", Source)
    trace = source.load(stream(settings.seed, TRACE))
    return own_rpm(trace.arrival_s[settings.preload :])
