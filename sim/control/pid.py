"""A PID that moves a state towards a target, as MoDM's global monitor smooths the number of large models with one."""

from dataclasses import dataclass, field

from sim.errors import ConfigError


@dataclass(slots=True)
class Pid:
    """x += clip(kp e + ki I + kd D), where e = target - x, I sums e dt and D is the change of e over dt.

    The state is an accumulator and is not clamped by itself, nor is I (the artifact's, which may wind up).

    Args:
        kp, ki, kd: gains; 0.6, 0.05 and 0.05 in MoDM's artifact, per minute of ``dt``.
        most_sum: the largest size of I, against winding up; None bounds nothing (the artifact).

    Raises:
        ConfigError: a gain or a bound that is negative or no number.
    """

    kp: float = 0.6
    ki: float = 0.05
    kd: float = 0.05
    most_sum: float | None = None
    x: float = field(init=False, default=0.0)
    _sum: float = field(init=False, default=0.0, repr=False)
    _error: float = field(init=False, default=0.0, repr=False)

    def __post_init__(self) -> None:
        for name in ("kp", "ki", "kd", "most_sum"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"controller.{name}: found {value}, expected a number from 0 on")

    def update(self, target: float, dt: float, most_step: float | None = None) -> float:
        """Move x towards ``target``, ``dt`` after the last update and by ``most_step`` at most; returns x."""
        error = target - self.x
        self._sum = _clip(self._sum + error * dt, self.most_sum)
        change = (error - self._error) / dt
        self._error = error
        self.x += _clip(self.kp * error + self.ki * self._sum + self.kd * change, most_step)
        return self.x


def _clip(value: float, most: float | None) -> float:
    return value if most is None else min(max(value, -most), most)
