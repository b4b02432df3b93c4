"""A batch former: a queue whose requests set out together, when they are enough or the first has waited long enough."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from sim.errors import ConfigError
from sim.request import Request


@dataclass(slots=True)
class Former:
    """One queue, in order.

    Args:
        most: requests in a batch; a batch of as many need not wait.
        wait_s: seconds after which a request sets out with whoever is there.

    Raises:
        ConfigError: a batch below 1, or a negative time.
    """

    most: int
    wait_s: float
    _waiting: deque[tuple[float, Request]] = field(init=False, default_factory=deque, repr=False)

    def __post_init__(self) -> None:
        if self.most < 1 or not 0 <= self.wait_s < inf:
            raise ConfigError(
                f"scheduler: found most {self.most} and wait_s {self.wait_s}; expected 1 or more requests and 0 or "
                "more seconds"
            )

    def add(self, request: Request, now_s: float) -> None:
        """``request`` waits from now on."""
        self._waiting.append((now_s, request))

    def take(self) -> Request:
        """The first in line, who sets out."""
        return self._waiting.popleft()[1]

    def due(self, now_s: float) -> bool:
        """Whether a batch is to set out."""
        waiting = self._waiting
        return bool(waiting) and (len(waiting) >= self.most or now_s >= waiting[0][0] + self.wait_s)

    def due_s(self) -> float:
        """When the first in line has waited long enough."""
        return self._waiting[0][0] + self.wait_s

    def __len__(self) -> int:
        return len(self._waiting)


def refuse_over(limit: int, most: int, key: str) -> None:
    """Raise ConfigError where ``most`` requests in a batch, set by ``key``, are more than the executor's ``limit``."""
    if most > limit:
        raise ConfigError(
            f"{key}: found {most}; the executor takes {limit} at once: raise executor.limit or choose "
            "executor=whole-batch"
        )
