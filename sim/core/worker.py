"""Workers: one GPU each, or a group of them, with what is aboard and resident."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from backends.base import Asset
from sim.core.clock import Entry
from sim.core.culprit import caller
from sim.core.errors import SimulationError


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """One GPU, or a group of GPUs that serve a request together. Parts read it; the cluster alone changes it.

    Attributes:
        id: 0 to n - 1 are the cluster's GPUs, each on its own; groups are numbered on from there.
        gpus: the GPUs that it is made of.
        denoisers: how many of them step its denoiser; on the others, if any, its ControlNets run.
        model: the model that is resident on it.
        running: requests that it has taken and not let go.
        max_batch: the most requests that may be aboard at once; 0 of a group that was disbanded.
        open: whether it takes requests: not while it drains, loads, is closed, down or part of a group.
        loading: whether the model of its role is on the way to it.
        busy_until_s: up to when the time of its GPUs is spent.
        resident: what lies in its memory, in bytes; what was used longest ago first. Where bytes are not known: 0.
        due: the call of the clock that ends what its executor runs, to be taken back where its GPU fails.
        next_role: the role that it is to load when it has drained; None where no order waits.
        draining: whether it goes on taking what its scheduler keeps for it, though ordered elsewhere.
        closed: whether its executor takes nothing more for now.
        down: whether it failed and is not there.
        model_code: what stands for its model in the ledger.
        group: the group that this GPU is part of now, or None.
        bucket: where it is listed among those with room; None where it is not.
        free_since: a number that grew with every listing: of two, who came later to what is aboard it.
    """

    id: int
    _role: str
    model: str
    max_batch: int = 1
    gpus: tuple[int, ...] = ()
    denoisers: int = field(init=False)
    model_code: int = field(init=False, default=0)
    running: int = field(init=False, default=0)
    next_role: str | None = field(init=False, default=None)
    loading: bool = field(init=False, default=False)
    draining: bool = field(init=False, default=False)
    closed: bool = field(init=False, default=False)
    down: bool = field(init=False, default=False)
    open: bool = field(init=False, default=True)
    group: "Worker | None" = field(init=False, default=None)
    bucket: "deque[Worker] | None" = field(init=False, default=None)
    due: Entry | None = field(init=False, default=None)
    busy_until_s: float = field(init=False, default=0.0)
    free_since: int = field(init=False, default=0)
    resident: dict[Asset, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.gpus = self.gpus or (self.id,)
        self.denoisers = len(self.gpus)

    @property
    def role(self) -> str:
        """What it serves now, or is on the way to serve; changed by ``Cluster.change_role``."""
        return self._role

    @role.setter
    def role(self, role: Any) -> None:
        raise SimulationError(
            f"{caller()} set the role of {self} to {role!r}; a role changes by Cluster.change_role, which lets the "
            "worker drain and load"
        )

    @property
    def has_capacity(self) -> bool:
        """Whether it would take one more request."""
        return self.running < self.max_batch and self.open

    def update_open(self) -> None:
        """Work out whether it is open, after what that rests on has changed."""
        waits = self.next_role is not None and not self.draining
        self.open = not waits and not self.loading and not self.closed and not self.down and self.group is None

    def __repr__(self) -> str:
        return f"worker {self.id} ({self._role})"
