"""Measure a profile of a live model on the device at hand: ``session.complete(Plan(...), folder)``.

Needs the ``live`` extra; only the plan is imported without it.
"""

from mezzotint.backends.calibrate.plan import Cell, Plan, Shape, grid

__all__ = ["Cell", "Plan", "Shape", "grid"]
