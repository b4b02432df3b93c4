"""Simulate the serving of image and video diffusion models from Python.

>>> import mezzotint
>>> run = mezzotint.run("system=nirvana", "cluster=h100", "arrivals.rate_rpm=5")
>>> run.summary["latency_s"]["p95"], run.requests.head(), run.plot.latency()

The overrides are those of ``mezzotint run``; ``mezzotint.choices()`` lists the groups.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mezzotint.frames import trace
    from mezzotint.planning import Plan, plan
    from mezzotint.plots import Plots
    from mezzotint.results import Run, Sweep
    from mezzotint.sim.core.errors import ConfigError, SimulationError
    from mezzotint.simulation import choices, load, run, sweep

__all__ = [
    "ConfigError",
    "Plan",
    "Plots",
    "Run",
    "SimulationError",
    "Sweep",
    "choices",
    "load",
    "plan",
    "run",
    "sweep",
    "trace",
]

_HOMES = {
    "frames": ("trace",),
    "planning": ("Plan", "plan"),
    "plots": ("Plots",),
    "results": ("Run", "Sweep"),
    "sim.core.errors": ("ConfigError", "SimulationError"),
    "simulation": ("choices", "load", "run", "sweep"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for at first use: every module of the package begins with this one, also the command's."""
    for module, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"{__name__}.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
