"""A PID that moves a state towards a target, as MoDM's global monitor smooths the number of large models with one."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

Gain = Annotated[float, Ge(0), Le(1e9)]
"""Of a controller, or a bound on one of its terms."""


@dataclass(slots=True)
class Pid:
    """x += clip(kp e + ki I + kd D), where e = target - x, I sums e dt and D is the change of e over dt.

    The state is an accumulator and is not clamped by itself, nor is I (the artifact's, which may wind up).

    Args:
        kp, ki, kd: gains; 0.6, 0.05 and 0.05 in MoDM's artifact, per minute of ``dt``.
        max_integral: the largest size of I, against winding up; None bounds nothing (the artifact).
    """

    kp: Gain = 0.6
    ki: Gain = 0.05
    kd: Gain = 0.05
    max_integral: Gain | None = None
    x: float = field(init=False, default=0.0)
    _sum: float = field(init=False, default=0.0, repr=False)
    _error: float = field(init=False, default=0.0, repr=False)

    def update(self, target: float, dt: float, most_step: float | None = None) -> float:
        """Move x towards ``target``, ``dt`` after the last update and by ``most_step`` at most; returns x."""
        error = target - self.x
        self._sum = _clip(self._sum + error * dt, self.max_integral)
        change = (error - self._error) / dt
        self._error = error
        self.x += _clip(self.kp * error + self.ki * self._sum + self.kd * change, most_step)
        return self.x


def _clip(value: float, most: float | None) -> float:
    return value if most is None else min(max(value, -most), most)
