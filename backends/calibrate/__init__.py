"""Measures a profile of a live model on the device at hand, resumes where it was cut, and draws what it found.

``calibrate(Plan(...), folder)`` is the whole of it; ``mezzotint calibrate`` is the same from the command line.
Needs the ``live`` extra; only what parses the command line is imported without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.calibrate.plan import Cell, Plan, Shape, grid, model_name

if TYPE_CHECKING:
    from pathlib import Path

    from backends.diffusers_ import LiveModel
    from backends.profile import Profile

__all__ = ["Cell", "Plan", "Shape", "calibrate", "grid", "model_name"]


def calibrate(plan: Plan, folder: Path, progress: bool = True, model: LiveModel | None = None) -> Profile:
    """See :func:`backends.calibrate.session.calibrate`, which imports torch."""
    from backends.calibrate.session import calibrate

    return calibrate(plan, folder, progress, model)
