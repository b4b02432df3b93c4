"""Workers: one GPU, with its running requests, resident assets and state; or a group that runs a stage.

A GPU serves, changes its role on orders of a controller, fails and is repaired. Names on the arrows are methods of the
cluster, the only code that changes a state::

    ON --change_role--+---------------+------------------+
    ^     its own queue waits   requests run        nothing runs
    |                 v               v                  v
    |              BACKLOG -------> DRAINING -------> LOADING --end of the load--> ON
    |                 |   mark_free:  |   release,    ^     |
    |                 |   queue empty |   vacate:     |     +--LOADING again, if ordered elsewhere meanwhile
    |                 |               |   last leaves |
    +--change_role----+---------------+             repair
       back to the model that it holds                |
                          any state above --fail--> DOWN

A controller rents GPUs, which then neither change their role nor fail::

    OFF --order--> STARTING --start, first load--> ON --give_back--> LEAVING --release: its instance is idle--> OFF
                       |                           ^                  ^  |
                       +--give_back----------------|------------------+  |
                                                   +--order--------------+

A GPU that serves ControlNets to others is in state SERVICE throughout. Only ON and BACKLOG take requests, and neither
while the executor has closed the worker, which runs a batch that nobody joins.
"""

import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from mezzotint.backends.base import Asset, Backend
from mezzotint.sim.core.clock import Entry
from mezzotint.sim.core.culprit import caller, is_ours
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.gpu import Gpu

ON, BACKLOG, DRAINING, LOADING, DOWN = "on", "backlog", "draining", "loading", "down"
SERVICE, STARTING, LEAVING, OFF = "service", "starting", "leaving", "off"
"""The states; "off" and "starting" also name the rentals of the usage log."""

REASONS = {
    ON: "runs a batch",
    BACKLOG: "runs a batch",
    DRAINING: "finishes its requests and then changes its role",
    LOADING: "loads the model of its role",
    DOWN: "failed and is not back",
    SERVICE: "serves ControlNets",
    STARTING: "is starting",
    LEAVING: "was given back",
    OFF: "is off",
}
"""State -> why a worker that is not open takes no request, for errors."""


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """One GPU, or a group of GPUs that run a stage together (``executor=stages``). Only the cluster changes it.

    Attributes:
        id: its number: 0 to n - 1 for the cluster's GPUs, from n on for groups.
        gpus: the numbers of its GPUs.
        gpu: the kind of its GPUs; backend: the costs of work on it.
        model: name of the resident model.
        running: requests that it accepted and has not released.
        max_batch: bound of ``running``.
        state: ON, BACKLOG, DRAINING, LOADING, DOWN, SERVICE, STARTING, LEAVING or OFF; the module draws what leads from
            one to another.
        closed: True while its executor takes no more requests.
        open: True if it takes requests, by ``state`` and ``closed``; kept, since every request reads it.
        resident: bytes of each asset in its memory, longest unused first; 0 where they are not known.
        compiled: the shapes whose first request was served since its server started: model, width, height and frames;
            None is every shape. Of a group, each GPU has its own.
        serves: names of the models placed on it, whose requests alone it takes; None if any.
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
    model_code: int = field(init=False, default=0)
    running: int = field(init=False, default=0)
    state: str = field(init=False, default=ON)
    closed: bool = field(init=False, default=False)
    open: bool = field(init=False, default=True)
    bucket: "OrderedDict[Worker, None] | None" = field(init=False, default=None)
    due: Entry | None = field(init=False, default=None)
    busy_until_s: float = field(init=False, default=0.0)
    free_rank: int = field(init=False, default=0)
    resident: dict[Asset, int] = field(init=False, default_factory=dict)
    compiled: set[tuple[str, int, int, int]] | None = field(init=False, default=None)
    serves: frozenset[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.gpus = self.gpus or (self.id,)

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

    def has_compiled(self, shape: tuple[str, int, int, int]) -> bool:
        """Return True if the first request of ``shape`` was served here since the server started."""
        return self.compiled is None or shape in self.compiled

    def update_open(self) -> None:
        """Update ``open`` after a change of ``state`` or ``closed``."""
        self.open = self.state in (ON, BACKLOG) and not self.closed

    def __repr__(self) -> str:
        return f"worker {self.id} ({self._role})"


class GuardedWorker(Worker):
    """A worker that refuses changes by a class from outside the package, but of ``due``, which an executor writes.

    It hashes by its number, so that a set in such a class has one order in all runs.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return self.id

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("due", "role") and not is_ours(sys._getframe(1).f_globals["__name__"]):
            raise SimulationError(
                f"{caller()} sets {name} of {self} to {value!r}; only the cluster changes a worker, and its methods "
                "take the orders"
            )
        object.__setattr__(self, name, value)
