"""Allocations: which model each GPU of the cluster holds when the clock starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from backends.base import Assumption, Backend, Work
from sim.cluster.worker import Worker
from sim.engine import Model, in_role
from sim.errors import ConfigError


@runtime_checkable
class Allocation(Protocol):
    """Makes the workers of a cluster."""

    def workers(self, count: int, models: Mapping[str, Model], backend: Backend) -> list[Worker]:
        """``count`` workers, each with a role and its model resident."""

    def assumptions(self) -> list[Assumption]:
        """What the split rests on that nobody measured."""


@dataclass(slots=True)
class Uniform:
    """Every GPU holds the model of one ``role``."""

    role: str = "large"

    def workers(self, count: int, models: Mapping[str, Model], backend: Backend) -> list[Worker]:
        """See Allocation.workers."""
        return [Worker(i, self.role, in_role(models, self.role).name) for i in range(count)]

    def assumptions(self) -> list[Assumption]:
        """See Allocation.assumptions."""
        return []


@dataclass(slots=True)
class FixedSplit:
    """``large`` GPUs hold the large model and the others the small one; fixed for the whole run.

    With ``large`` null the split is MoDM's throughput rule (MoDM, eq. 12) for a hit rate h and a mean share q
    of steps left to run on a hit: N_l = round(N (1-h) / ((1-h) + h q P_l/P_s)), where P_l/P_s is the small
    model's time over the large one's. The defaults are what MoDM's artifact plans with (0.7 and 0.8).

    Raises ConfigError when not every role is left at least one GPU.
    """

    large: int | None = None
    hit_rate: float = 0.7
    steps_left: float = 0.8

    def __post_init__(self) -> None:
        if not (0 <= self.hit_rate <= 1 and 0 <= self.steps_left <= 1):
            raise ConfigError(
                f"allocation: hit_rate and steps_left are shares, found {self.hit_rate} and {self.steps_left}"
            )

    def workers(self, count: int, models: Mapping[str, Model], backend: Backend) -> list[Worker]:
        """See Allocation.workers. The large ones come first."""
        if count < 2:
            raise ConfigError(f"cluster.count: found {count}; a large and a small model need at least 2 GPUs")
        large = self._planned(count, models, backend) if self.large is None else self.large
        if not 1 <= large <= count - 1:
            raise ConfigError(
                f"allocation.large: found {large} of {count} GPUs; expected 1 to {count - 1}, so that "
                "both models have one"
            )
        roles = ["large"] * large + ["small"] * (count - large)
        return [Worker(i, role, in_role(models, role).name) for i, role in enumerate(roles)]

    def assumptions(self) -> list[Assumption]:
        """See Allocation.assumptions."""
        if self.large is not None:
            return []
        planned = [self.hit_rate, self.steps_left]
        return [
            Assumption("hit rate and share of steps left that the split is planned for", planned, "MoDM's artifact")
        ]

    def _planned(self, count: int, models: Mapping[str, Model], backend: Backend) -> int:
        ratio = full_s(backend, in_role(models, "small")) / full_s(backend, in_role(models, "large"))
        misses = 1 - self.hit_rate
        hits = self.hit_rate * self.steps_left * ratio
        if misses + hits == 0:
            raise ConfigError("allocation: hit_rate 1 with steps_left 0 leaves no work to split GPUs for")
        return min(max(round(count * misses / (misses + hits)), 1), count - 1)


def full_s(backend: Backend, model: Model) -> float:
    """Seconds of one full generation at the model's own shape, alone on a GPU: the standalone latency."""
    cost = backend.whole(Work(model.name, model.width, model.height, model.steps))
    return cost.denoise_s + cost.other_s
