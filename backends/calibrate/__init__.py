"""Measures a profile of a live model on the device at hand, resumes where it was cut, and draws what it found.

``complete(Plan(...), folder)`` of ``session`` is the whole of it; ``mezzotint calibrate`` is the same from the command
line. Needs the ``live`` extra; only the plan is imported without it.
"""

from backends.calibrate.plan import Cell, Plan, Shape, grid

__all__ = ["Cell", "Plan", "Shape", "grid"]
