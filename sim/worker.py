"""Workers: one GPU each, or a gang of them, with what is aboard and resident."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from backends.base import Asset
from sim.clock import Entry
from sim.culprit import caller
from sim.errors import SimulationError


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """One GPU, or a gang of GPUs that serve a request together. Parts read it; the cluster alone changes it.

    Attributes:
        id: 0 to n - 1 are the cluster's GPUs, each on its own; gangs are numbered on from there.
        gpus: the GPUs that it is made of.
        denoisers: how many of them step its denoiser; on the others, if any, its ControlNets run.
        model: the model that is resident on it.
        aboard: requests that it has taken and not let go.
        limit: the most requests that may be aboard at once; 0 of a gang that was disbanded.
        open: whether it takes requests: not while it drains, loads, is closed, down or part of a gang.
        loading: whether the model of its role is on the way to it.
        until_s: up to when the time of its GPUs is spent.
        resident: what lies in its memory, in bytes; what was used longest ago first. Where bytes are not known: 0.
        due: the call of the clock that ends what its executor runs, to be taken back where its GPU fails.
        ordered: the role that it is to load when it has drained; None where no order waits.
        finishing: whether it goes on taking what its scheduler keeps for it, though ordered elsewhere.
        closed: whether its executor takes nothing more for now.
        down: whether it failed and is not there.
        model_code: what stands for its model in the ledger.
        gang: the gang that this GPU is part of now, or None.
        lane: where it is listed among those with room; None where it is not.
        listed: a number that grew with every listing: of two, who came later to what is aboard it.
    """

    id: int
    _role: str
    model: str
    limit: int = 1
    gpus: tuple[int, ...] = ()
    denoisers: int = field(init=False)
    model_code: int = field(init=False, default=0)
    aboard: int = field(init=False, default=0)
    ordered: str | None = field(init=False, default=None)
    loading: bool = field(init=False, default=False)
    finishing: bool = field(init=False, default=False)
    closed: bool = field(init=False, default=False)
    down: bool = field(init=False, default=False)
    open: bool = field(init=False, default=True)
    gang: "Worker | None" = field(init=False, default=None)
    lane: "deque[Worker] | None" = field(init=False, default=None)
    due: Entry | None = field(init=False, default=None)
    until_s: float = field(init=False, default=0.0)
    listed: int = field(init=False, default=0)
    resident: dict[Asset, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.gpus = self.gpus or (self.id,)
        self.denoisers = len(self.gpus)

    @property
    def role(self) -> str:
        """What it serves now, or is on the way to serve; changed by ``Cluster.order``."""
        return self._role

    @role.setter
    def role(self, role: Any) -> None:
        raise SimulationError(
            f"{caller()} set the role of {self} to {role!r}; a role changes by Cluster.order, which lets the "
            "worker drain and load"
        )

    @property
    def has_room(self) -> bool:
        """Whether it would take one more request."""
        return self.aboard < self.limit and self.open

    def settle(self) -> None:
        """Work out whether it is open, after what that rests on has changed."""
        waits = self.ordered is not None and not self.finishing
        self.open = not waits and not self.loading and not self.closed and not self.down and self.gang is None

    def __repr__(self) -> str:
        return f"worker {self.id} ({self._role})"
