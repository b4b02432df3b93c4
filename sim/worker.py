"""Workers: one GPU each, or a gang of them, with what is aboard and resident."""

from collections import deque
from typing import Any

from backends.base import Asset
from sim.clock import Entry
from sim.culprit import caller
from sim.errors import SimulationError


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

    __slots__ = (
        "_role",
        "aboard",
        "closed",
        "denoisers",
        "down",
        "due",
        "finishing",
        "gang",
        "gpus",
        "id",
        "lane",
        "limit",
        "listed",
        "loading",
        "model",
        "model_code",
        "open",
        "ordered",
        "resident",
        "until_s",
    )

    def __init__(self, id: int, role: str, model: str, limit: int = 1, gpus: tuple[int, ...] | None = None) -> None:
        self.id = id
        self.gpus = (id,) if gpus is None else gpus
        self.denoisers = len(self.gpus)
        self._role = role
        self.model = model
        self.model_code = 0
        self.limit = limit
        self.aboard = 0
        self.ordered: str | None = None
        self.loading = False
        self.finishing = False
        self.closed = False
        self.down = False
        self.open = True
        self.gang: Worker | None = None
        self.lane: deque[Worker] | None = None
        self.due: Entry | None = None
        self.until_s = 0.0
        self.listed = 0
        self.resident: dict[Asset, int] = {}

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
