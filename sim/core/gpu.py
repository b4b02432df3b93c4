"""Kinds of GPU: power, memory and price."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Ge

from mezzotint.backends.base import Backend
from mezzotint.settings.ranges import Amount, Count
from mezzotint.sim.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Args:
        name: its name in the profile files.
        active_w: power at work in watts, where the profile measured none; None is unknown, and the summary then has no
            energy.
        idle_w: power at rest in watts; None likewise.
        usd_per_gpu_h: price of one GPU for an hour; None takes the list price of its kind (conf/data/gpu-prices.yaml).
        gpus_per_instance: GPUs that are rented together; a cluster pays for whole instances.
        memory_bytes: memory size; None is unknown, and then everything fits.
        source: source of power, memory size and GPUs per instance.
    """

    name: str
    active_w: Amount | None
    idle_w: Amount | None
    source: str
    usd_per_gpu_h: Amount | None = None
    gpus_per_instance: Count = 1
    memory_bytes: Annotated[int, Ge(1)] | None = None

    def __post_init__(self) -> None:
        active_w, idle_w = self.active_w or 0.0, self.idle_w or 0.0
        if (self.active_w is None) != (self.idle_w is None) or active_w < idle_w:
            raise ConfigError(f"cluster.gpu: expected active_w >= idle_w >= 0 W (or both null), found {self}")

    def energy_j(self, seconds: float) -> float:
        """Return the joules of ``seconds`` at work; NaN if the power is unknown."""
        return float("nan") if self.active_w is None else self.active_w * seconds


class Kind(NamedTuple):
    """A kind of GPU, and the costs of work on it."""

    gpu: Gpu
    backend: Backend


def check_one_kind(kinds: Iterable[Gpu], key: str, what: str, remedy: str) -> None:
    """Raise ConfigError for ``key`` if there are several ``kinds``, though ``what`` is of one; ``remedy`` ends it."""
    names = [gpu.name for gpu in kinds]
    if len(names) > 1:
        raise ConfigError(f"{key}: {what} one kind of GPU, and cluster.pools has {', '.join(names)}; {remedy}")
