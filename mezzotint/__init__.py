"""Simulate text-to-image serving from Python.

>>> import mezzotint
>>> run = mezzotint.run("system=nirvana", "cluster=h100", "arrivals.rate_rpm=20")
>>> run.summary["latency_s"]["p95"], run.requests.head(), run.plot.latency()

The overrides are those of ``mezzotint run``; ``mezzotint.choices()`` lists the groups.
"""

from mezzotint.planning import Plan, plan
from mezzotint.results import Plots, Run, Sweep
from mezzotint.simulation import choices, load, run, sweep
from sim.core.errors import ConfigError, SimulationError

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
]
