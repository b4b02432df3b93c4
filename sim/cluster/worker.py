"""Workers: one GPU each, with the model that is resident on it."""

from dataclasses import dataclass

from sim.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Args:
        name: as the profile files spell it.
        active_w: watts drawn while it works; None where not known, and then there is no energy in the summary.
        idle_w: watts drawn while it waits; None likewise.
        usd_per_gpu_h: price of one GPU for an hour; None where nobody published one.
        gpus_per_instance: GPUs that are rented together; a cluster pays for whole instances.
        source: where power and price come from.
    """

    name: str
    active_w: float | None
    idle_w: float | None
    source: str
    usd_per_gpu_h: float | None = None
    gpus_per_instance: int = 1

    def __post_init__(self) -> None:
        active_w, idle_w, price = (0.0 if v is None else v for v in (self.active_w, self.idle_w, self.usd_per_gpu_h))
        sane = float("inf") > active_w >= idle_w >= 0 and 0 <= price < float("inf")
        if (self.active_w is None) != (self.idle_w is None) or not sane:
            raise ConfigError(
                f"cluster.gpu: expected active_w >= idle_w >= 0 W (or both null) and a price of 0 or more, found {self}"
            )
        if self.gpus_per_instance < 1:
            raise ConfigError(f"cluster.gpu.gpus_per_instance: found {self.gpus_per_instance}, expected 1 or more GPUs")

    def energy_j(self, seconds: float) -> float:
        """Joules of working for ``seconds``; NaN where the power is not known."""
        return float("nan") if self.active_w is None else self.active_w * seconds


@dataclass(slots=True)
class Worker:
    """One GPU that serves requests: ``role`` as the allocation gave it, ``model`` as is resident."""

    id: int
    role: str
    model: str
