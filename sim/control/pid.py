"""PID controller, with which MoDM's global monitor smooths the number of large models."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

Gain = Annotated[float, Ge(0), Le(1e9)]
"""Gain of a controller, or a bound on one of its terms."""


@dataclass(slots=True)
class Pid:
    """PID controller: x += clip(kp e + ki I + kd D), with e = target - x, I the sum of e dt and D = de / dt.

    The state x is not clamped, nor is I by default: it may wind up, as in MoDM's artifact.

    Args:
        kp, ki, kd: gains; 0.6, 0.05 and 0.05 in MoDM's artifact, per minute of ``dt``.
        max_integral: largest size of I, against winding up; None bounds nothing (the artifact).
    """

    kp: Gain = 0.6
    ki: Gain = 0.05
    kd: Gain = 0.05
    max_integral: Gain | None = None
    x: float = field(init=False, default=0.0)
    _integral: float = field(init=False, default=0.0, repr=False)
    _error: float = field(init=False, default=0.0, repr=False)

    def update(self, target: float, dt: float, max_step: float | None = None) -> float:
        """Move x towards ``target``, ``dt`` after the last update, by ``max_step`` at most; return x."""
        error = target - self.x
        self._integral = _clip(self._integral + error * dt, self.max_integral)
        change = (error - self._error) / dt
        self._error = error
        self.x += _clip(self.kp * error + self.ki * self._integral + self.kd * change, max_step)
        return self.x


def _clip(value: float, max_size: float | None) -> float:
    return value if max_size is None else min(max(value, -max_size), max_size)
