"""Workers: one GPU, or a group of GPUs, with its running requests and resident assets."""

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mezzotint.backends.base import Asset, Backend
from mezzotint.sim.core.clock import Entry
from mezzotint.sim.core.culprit import caller, is_ours
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.gpu import Gpu

ON, STARTING, DRAINING, OFF = "on", "starting", "draining", "off"
"""Rental of a GPU: in service, ordered and not ready, given back and finishing its requests, not paid for."""


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """One GPU, or a group of GPUs that serve a request together. Parts read it; only the cluster changes it.

    Attributes:
        id: its number: 0 to n - 1 for the cluster's GPUs, from n on for groups.
        gpus: the numbers of its GPUs.
        denoisers: how many of them step the denoiser; ControlNets run on the others, if any.
        gpu: the kind of its GPUs; backend: the costs of work on it.
        model: name of the resident model.
        running: requests that it accepted and has not released.
        max_batch: bound of ``running``; 0 once a group is disbanded.
        open: False while it drains, loads, is closed, down, or part of a group; it takes no requests then.
        loading: True while the model of its role loads.
        draining: True while it serves its own backlog before it changes its role.
        closed: True while its executor takes no more requests.
        down: True from a failure to the repair.
        rental: ON, STARTING, DRAINING or OFF; only a controller that rents GPUs changes it (Cluster.order).
        next_role: the role to load once it has drained; None without such an order.
        group: the group that this GPU is part of, or None.
        resident: bytes of each asset in its memory, longest unused first; 0 where they are not known.
        busy_until_s: the instant up to which its busy time is recorded.
        due: the clock's call that ends its executor's present work; canceled if the GPU fails.
        model_code: code of its model in the usage log.
        bucket: its place among the workers with capacity; None if it has none.
        free_rank: grows with every entry into ``bucket``, to break ties between workers.
    """

    id: int
    _role: str
    model: str
    max_batch: int = 1
    gpus: tuple[int, ...] = ()
    gpu: Gpu = field(kw_only=True)
    backend: Backend = field(kw_only=True)
    denoisers: int = field(init=False)
    model_code: int = field(init=False, default=0)
    running: int = field(init=False, default=0)
    next_role: str | None = field(init=False, default=None)
    loading: bool = field(init=False, default=False)
    draining: bool = field(init=False, default=False)
    closed: bool = field(init=False, default=False)
    down: bool = field(init=False, default=False)
    rental: str = field(init=False, default=ON)
    open: bool = field(init=False, default=True)
    group: "Worker | None" = field(init=False, default=None)
    bucket: "deque[Worker] | None" = field(init=False, default=None)
    due: Entry | None = field(init=False, default=None)
    busy_until_s: float = field(init=False, default=0.0)
    free_rank: int = field(init=False, default=0)
    resident: dict[Asset, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.gpus = self.gpus or (self.id,)
        self.denoisers = len(self.gpus)

    @property
    def role(self) -> str:
        """The role that it serves or is changing to (Cluster.change_role)."""
        return self._role

    @role.setter
    def role(self, role: Any) -> None:
        raise SimulationError(
            f"{caller()} set the role of {self} to {role!r}; a role changes by Cluster.change_role, which lets the "
            "worker drain and load"
        )

    @property
    def has_capacity(self) -> bool:
        """True if it can take one more request."""
        return self.running < self.max_batch and self.open

    def update_open(self) -> None:
        """Update ``open`` after a change of the attributes that it depends on."""
        waits = self.next_role is not None and not self.draining
        is_away = self.down or self.rental != ON
        self.open = not waits and not self.loading and not self.closed and not is_away and self.group is None

    def __repr__(self) -> str:
        return f"worker {self.id} ({self._role})"


class GuardedWorker(Worker):
    """A worker that refuses changes by a class from outside the package, but of ``due``, which an executor writes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("due", "role") and not is_ours(sys._getframe(1).f_globals["__name__"]):
            raise SimulationError(
                f"{caller()} sets {name} of {self} to {value!r}; only the cluster changes a worker, and its methods "
                "take the orders"
            )
        object.__setattr__(self, name, value)
