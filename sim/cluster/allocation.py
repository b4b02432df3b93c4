"""Allocations: the role of each GPU of the cluster when the clock starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzotint.backends.base import Backend
from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model, in_role
from mezzotint.sim.core.workload import standalone_s
from mezzotint.sim.protocols import Allocation
from mezzotint.sim.protocols.cluster import SERVER


@dataclass(slots=True)
class Uniform(Allocation):
    """Every GPU holds the model of one role.

    Args:
        role: that role.
    """

    role: str = "large"

    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        in_role(models, self.role)
        return [self.role] * gpus


@dataclass(slots=True)
class FewSmall(Allocation):
    """The last GPUs hold the model of ``hit_role``, all others that of ``miss_role``.

    Args:
        small: number of GPUs of ``hit_role``.
        miss_role, hit_role: the two roles.

    Raises ConfigError unless each role has at least one GPU.
    """

    small: int = 1
    miss_role: str = "large"
    hit_role: str = "small"

    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        _check_split("small", self.small, gpus, [self.miss_role, self.hit_role], models)
        return [self.miss_role] * (gpus - self.small) + [self.hit_role] * self.small


@dataclass(slots=True)
class ControlNetServers(Allocation):
    """The last GPUs serve ControlNets, all others hold the model of ``role``.

    Args:
        servers: number of GPUs that serve ControlNets.
        role: role of the others.

    Raises ConfigError when no GPU is left for the model.
    """

    servers: int = 2
    role: str = "large"

    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        in_role(models, self.role)
        if not 1 <= self.servers <= gpus - 1:
            raise ConfigError(
                f"allocation.servers: found {self.servers} of {gpus} GPUs; expected 1 to {gpus - 1}, so that one is "
                "left for the model"
            )
        return [self.role] * (gpus - self.servers) + [SERVER] * self.servers


@dataclass(slots=True)
class FixedSplit(Allocation):
    """``large`` GPUs hold the large model and the others the small one.

    With ``large`` null the split is MoDM's throughput rule (eq. 12) for a hit rate h and a mean share q of steps left:
    N_l = round(N (1-h) / ((1-h) + h q P_l/P_s)), where P_l/P_s is the small model's time over the large one's. The
    defaults are those of MoDM's artifact.

    Args:
        large: GPUs of role ``miss_role``; null computes it by the rule.
        hit_rate, steps_left: h and q.
        miss_role, hit_role: roles of the large and of the small model.

    Raises ConfigError unless each role has at least one GPU.
    """

    large: int | None = None
    hit_rate: Share = 0.7
    steps_left: Share = 0.8
    miss_role: str = "large"
    hit_role: str = "small"

    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        large = self._large_by_rule(gpus, models, backend) if self.large is None else self.large
        _check_split("large", large, gpus, [self.miss_role, self.hit_role], models)
        return [self.miss_role] * large + [self.hit_role] * (gpus - large)

    def assumptions(self) -> list[Assumption]:
        if self.large is not None:
            return []
        planned = [self.hit_rate, self.steps_left]
        name = "hit rate and share of steps left that the split is planned for"
        return [Assumption(name, planned, "MoDM's artifact")]

    def _large_by_rule(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> int:
        large, small = in_role(models, self.miss_role), in_role(models, self.hit_role)
        ratio = standalone_s(backend, small) / standalone_s(backend, large)
        misses = 1 - self.hit_rate
        hits = self.hit_rate * self.steps_left * ratio
        if misses + hits == 0:
            raise ConfigError("allocation: hit_rate 1 with steps_left 0 leaves no work to split GPUs for")
        return min(max(round(gpus * misses / (misses + hits)), 1), gpus - 1)


def _check_split(key: str, count: int, gpus: int, roles: Sequence[str], models: Mapping[str, Model]) -> None:
    if gpus < 2:
        raise ConfigError(f"cluster.count: found {gpus}; a large and a small model need at least 2 GPUs")
    if not 1 <= count <= gpus - 1:
        raise ConfigError(
            f"allocation.{key}: found {count} of {gpus} GPUs; expected 1 to {gpus - 1}, so that both models have one"
        )
    for role in roles:
        in_role(models, role)
