"""Workers: one GPU each, with the model that is resident on it."""

from dataclasses import dataclass

from sim.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Args:
        name: as the profile files spell it.
        active_w: watts drawn while it works.
        idle_w: watts drawn while it waits.
        usd_per_gpu_h: price of one GPU for an hour; None where nobody published one.
        source: where power and price come from.
    """

    name: str
    active_w: float
    idle_w: float
    source: str
    usd_per_gpu_h: float | None = None

    def __post_init__(self) -> None:
        price = 0.0 if self.usd_per_gpu_h is None else self.usd_per_gpu_h
        if not (self.active_w >= self.idle_w >= 0 and price >= 0):
            raise ConfigError(f"cluster.gpu: expected active_w >= idle_w >= 0 W and a price of 0 or more, found {self}")


@dataclass(slots=True)
class Worker:
    """One GPU that serves requests: ``role`` as the allocation gave it, ``model`` as is resident."""

    id: int
    role: str
    model: str
    switches: int = 0
    switch_s: float = 0.0
