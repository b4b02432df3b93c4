"""Kinds of GPU: what one draws, holds and costs."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from conf.ranges import Amount, Count
from sim.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Args:
        name: as the profile files spell it.
        active_w: watts drawn while it works, where the profile of what it runs measured none; None where not known,
            and then there is no energy in the summary.
        idle_w: watts drawn while it waits; None likewise.
        usd_per_gpu_h: price of one GPU for an hour; None takes the list price of its kind (conf/data/gpu-prices.yaml).
        gpus_per_instance: GPUs that are rented together; a cluster pays for whole instances.
        memory_bytes: what its memory holds; None is not known, and then nothing is too large for it.
        source: where power and memory come from, and how many GPUs are rented together.
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
        """Joules of working for ``seconds``; NaN where the power is not known."""
        return float("nan") if self.active_w is None else self.active_w * seconds
