"""Errors of a run: of the user's settings, and of policies that break a law of the simulator."""

from mezzotint.backends.base import BackendError
from mezzotint.traces.error import TraceError


class ConfigError(ValueError):
    """A setting that does not exist or does not fit: the message names the key and the remedy."""


class SimulationError(RuntimeError):
    """A law of the simulation was broken: a defect of a policy or of the engine, never of the input."""


REFUSED = (ConfigError, TraceError, BackendError, SimulationError)
"""Errors that the user can correct; a SimulationError may come from the user's own policy."""
