"""What can go wrong in a run: a setting of the user's, or a law of the simulator's."""

from backends.base import BackendError
from traces.error import TraceError


class ConfigError(ValueError):
    """Settings that do not exist or do not fit together: the message names the key and the remedy."""


class SimulationError(RuntimeError):
    """A run broke one of its own laws: a defect of a policy or of the engine, never of the input."""


REFUSED = (ConfigError, TraceError, BackendError, SimulationError)
"""What the user can put right; a SimulationError is a policy's, and the policies may be the user's own."""
