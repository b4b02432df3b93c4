"""Kinds of GPU: what one draws, holds and costs."""

from dataclasses import dataclass

from conf.ranges import Amount
from sim.errors import ConfigError


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
    gpus_per_instance: int = 1
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        active_w, idle_w, price = (0.0 if v is None else v for v in (self.active_w, self.idle_w, self.usd_per_gpu_h))
        sane = float("inf") > active_w >= idle_w >= 0 and 0 <= price < float("inf")
        if (self.active_w is None) != (self.idle_w is None) or not sane:
            raise ConfigError(
                f"cluster.gpu: expected active_w >= idle_w >= 0 W (or both null) and a price of 0 or more, found {self}"
            )
        if self.gpus_per_instance < 1:
            raise ConfigError(f"cluster.gpu.gpus_per_instance: found {self.gpus_per_instance}, expected 1 or more GPUs")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ConfigError(f"cluster.gpu.memory_bytes: found {self.memory_bytes}, expected bytes or null")

    def energy_j(self, seconds: float) -> float:
        """Joules of working for ``seconds``; NaN where the power is not known."""
        return float("nan") if self.active_w is None else self.active_w * seconds
