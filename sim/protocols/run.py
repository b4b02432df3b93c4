"""What a part finds when it is bound: the run that it is a part of."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import simpy

from backends.base import Asset, Backend, Work
from sim.core.clock import Clock
from sim.core.errors import SimulationError
from sim.core.model import Model
from sim.core.request import COMPLETED, Request
from sim.core.worker import Worker
from sim.core.workload import SimilarityInputs, Workload
from sim.protocols.cluster import Cluster


class RequestColumn(Protocol):
    """A column of requests.parquet that one part declares and writes."""

    def __setitem__(self, row: int, value: Any) -> None:
        """What is so of the request of trace row ``row``."""

    def __getitem__(self, row: int) -> Any: ...


class Log(Protocol):
    """Something that happens again and again beside the requests, and how long it takes."""

    def add(self, at_s: float, seconds: float) -> None: ...


class Run(Protocol):
    """One run, as the parts of its system see it.

    Attributes:
        clock: SimPy's environment, with calls at absolute times.
        cluster, backend, models: where requests run, what a step costs, and the models by role, largest first.
        workload, similarity: what arrives, and how alike it is.
        arrived, in_system, hits, lookups: requests that came, that have not ended, and what came of their lookups,
            so far.
        waiting: requests in the scheduler's queues.
    """

    clock: Clock
    backend: Backend
    models: Mapping[str, Model]
    workload: Workload
    similarity: SimilarityInputs
    arrived: int
    lookups: int
    hits: int

    @property
    def cluster(self) -> Cluster: ...

    @property
    def in_system(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    # -- what a part is given ----------------------------------------------------------------------------------

    def rng(self, name: str) -> np.random.Generator:
        """The random stream called ``name``: the same for the same seed, whatever else the run draws."""

    def model(self, role: str) -> Model:
        """The model in ``role``, which the backend can serve. Raises ConfigError where there is none."""

    def request(self, row: int, now_s: float) -> Request:
        """What the trace's ``row`` asks for."""

    def assign(self, request: Request, model: Model) -> None:
        """Plan ``request`` for ``model``, also anew until a worker begins with it: with native shapes it takes that
        model's; K keeps its share of N."""

    def work(self, request: Request) -> Work:
        """The plan of ``request`` as its backend runs it. Raises SimulationError where no model is planned."""

    # -- what a part declares, when it is bound ----------------------------------------------------------------

    def assume(self, what: str, value: Any, source: str) -> None:
        """Put something that the result rests on into the summary."""

    def add_column(
        self,
        name: str,
        kind: type = float,
        *,
        default: float | int | bool | None = None,
        public: bool = True,
        total: str = "",
    ) -> RequestColumn:
        """A new column of requests.parquet: float (NaN is null), int (-1 is null) or bool; only kept, if not ``shown``.
        ``default`` is what it is where nothing is said: null, or False. ``total`` is the summary's key for its sum over
        all requests, such as ``cache.evictions``."""

    def gauge(self, name: str, read: Callable[[float], float | int | bool]) -> None:
        """A new column of cluster.parquet: ``read(now_s)`` at every sample."""

    def log(self, name: str) -> Log:
        """Something that happens beside the requests, to be noted each time."""

    def process(self, actor: Generator[simpy.Event, Any, Any]) -> simpy.Process:
        """A long-lived actor, a SimPy process: it sleeps in the controllers' turn and ends with the last request."""

    def record_load(self, asset: Asset, seconds: float) -> None:
        """An add-on begins to come from where its file is, onto a GPU or beside one, and takes ``seconds``."""

    def log_decision(self, what: str, **details: Any) -> None:
        """Note a decision, for the timeline."""

    def policy_error(self, kind: str, what: str) -> SimulationError:
        """An error that names the part of ``kind`` (scheduler, executor, frontend, backend) and says what it did."""

    # -- GPUs that fail ----------------------------------------------------------------------------------------

    def fail(self, worker: Worker) -> Sequence[Request]:
        """The GPU of ``worker`` goes out of service until Cluster.repair: the requests that it had aboard, of which the
        caller says what becomes (``requeue``, or ``end``)."""

    def requeue(self, request: Request) -> None:
        """Offer ``request``, which a GPU lost, to the scheduler anew; it keeps its plan and begins from its step K."""

    # -- what executors say, and schedulers and controllers may ask ----------------------------------------------

    def pull(self, worker: Worker) -> None:
        """Ask the scheduler for what ``worker`` has room for."""

    def keep_artifact(self, request: Request, work: Work) -> None:
        """Keep what a live backend made of ``request``, and how good it is."""

    def end(self, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        """``request`` ends, once: its image is there, a policy gave it up (DISCARDED), or a worker could not finish it
        (FAILED); of the last two, why."""
