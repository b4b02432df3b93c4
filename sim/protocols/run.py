"""The run, as the parts of its system see it (``bind``)."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import simpy

from mezzotint.backends.base import Asset, Backend, Work
from mezzotint.sim.core.clock import Clock
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.handling import Handling
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import Plan
from mezzotint.sim.core.progress import BatchShare
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.core.server import Server
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.core.workload import SimilarityInputs, Workload
from mezzotint.sim.protocols.cluster import Cluster


class RequestColumn(Protocol):
    """A column of requests.parquet that one part declares and writes, indexed by trace row (Request.row)."""

    def __setitem__(self, row: int, value: Any) -> None: ...

    def __getitem__(self, row: int) -> Any: ...


class AttemptLog(Protocol):
    """The log of attempts (mezzotint.sim.metrics.attempts)."""

    is_exclusive: bool

    def add(
        self,
        row: int,
        stage: int,
        component: str,
        model: str,
        gpus: tuple[int, ...],
        from_s: float,
        until_s: float,
        steps: int = 0,
        estimate_s: float = ...,
        energy_j: float = ...,
        batch: int = ...,
        share: BatchShare | None = ...,
    ) -> None: ...

    def lose(self, row: int, arrival_s: float) -> None: ...

    def keep(self, row: int) -> None: ...


class Log(Protocol):
    """A log of events that belong to no request, each with its duration."""

    def add(self, at_s: float, seconds: float) -> None: ...


class Run(Protocol):
    """One run, as the parts of its system see it.

    Attributes:
        clock: SimPy's environment, with calls at absolute times (``at``). ``clock.now`` is the time in seconds.
        cluster: the workers.
        backend: the costs of work on the first kind of GPU, which latency limits refer to. Costs on a worker are those
            of Worker.backend.
        models: the models by role, largest first.
        workload: the arrivals.
        similarity: the embeddings of the trace's prompts, and how they are searched.
        handling: the seconds of a request that need no GPU; an executor holds GPUs for them where they do not overlap.
        server: what a start of a server costs, and the first request of each shape after it (Cluster.compile_s).
        arrived: requests that arrived so far.
        in_system: requests that arrived and have not ended.
        waiting: requests in the scheduler's queues.
        lookups, hits: cache lookups so far, and those that found an artifact.
    """

    clock: Clock
    backend: Backend
    models: Mapping[str, Model]
    workload: Workload
    similarity: SimilarityInputs
    handling: Handling
    server: Server
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
        """Return the random stream ``name``: the same for the same seed, whatever other parts draw."""

    def model(self, role: str) -> Model:
        """Return the model in ``role``. Raises ConfigError if there is none, BackendError if no GPU can serve it."""

    def request(self, row: int, now_s: float) -> Request:
        """Return a request of trace row ``row``, such as one that only fills the cache."""

    def assign(self, request: Request, plan: Plan) -> None:
        """Give ``request`` its plan; allowed until a worker starts it, also after another plan.

        With ``shapes=model`` the request takes the shape and the steps of the plan's model. ``skipped`` and
        ``steps_left`` follow from the plan.
        """

    def work(self, request: Request) -> Work:
        """Return a new Work: the plan of ``request`` in the words of the backend.

        A Work holds model, width, height, steps (N), skipped (K), row, artifact, and the add-ons of the worker's own
        steps. ``work.done`` counts the steps behind it: it begins at K, and Backend.steps advances it. Whoever models
        steps without the backend sets it: ``work.done = request.steps - request.steps_left``. Backend.end expects
        ``work.done == work.steps``, and leaves a live backend's result in ``work.made`` (Run.keep_artifact).

        Raises SimulationError if the plan names no model.
        """

    # -- what a part declares, when it is bound ----------------------------------------------------------------

    def assume(self, what: str, value: Any, source: str) -> None:
        """List an unmeasured assumption in the summary."""

    def add_column(
        self,
        name: str,
        kind: type = float,
        *,
        default: float | int | bool | None = None,
        public: bool = True,
        total: str = "",
    ) -> RequestColumn:
        """Declare a request column.

        Args:
            kind: float (NaN is null), int (-1 is null) or bool.
            default: the value of rows that nobody writes; None is null, or False.
            public: False keeps the column out of requests.parquet.
            total: the summary's key for the sum over all requests, such as ``cache.evictions``.
        """

    def gauge(self, name: str, read: Callable[[float], float | int | bool]) -> None:
        """Declare a column of cluster.parquet: ``read(now_s)`` at every sample."""

    def log(self, name: str) -> Log:
        """Declare a log of events that belong to no request."""

    def attempts(self) -> "AttemptLog":
        """Return the log of attempts, for an executor whose requests run in several; it writes attempts.parquet."""

    def process(self, actor: Generator[simpy.Event, Any, Any]) -> simpy.Process:
        """Start a SimPy process. It acts in the controllers' turn and ends with the last request."""

    def record_load(self, asset: Asset, seconds: float) -> None:
        """Record that an add-on starts to load from its file, for ``seconds``."""

    def log_decision(self, what: str, **details: Any) -> None:
        """Add a decision to the timeline."""

    def policy_error(self, kind: str, what: str) -> SimulationError:
        """Return an error that names the part of ``kind`` (scheduler, executor, frontend, backend), then ``what``."""

    # -- GPUs that fail ----------------------------------------------------------------------------------------

    def fail(self, worker: Worker) -> Sequence[Request]:
        """Take the GPU of ``worker`` out of service until Cluster.repair.

        Returns:
            The requests that ran there. The caller must ``requeue`` or ``end`` each.
        """

    def requeue(self, request: Request) -> None:
        """Offer ``request``, lost with its GPU, to the scheduler anew. It keeps its plan and starts over at step K."""

    # -- what executors call, and schedulers and controllers may ------------------------------------------------

    def pull(self, worker: Worker) -> None:
        """Fill the capacity of ``worker`` from the scheduler (Scheduler.next)."""

    @property
    def may_give_up(self) -> bool:
        """True if clients may give requests up that the server may then drop."""

    def is_given_up(self, request: Request) -> bool:
        """Return True if its client has given ``request`` up, and the server may drop it when its turn comes."""

    def keep_artifact(self, request: Request, work: Work) -> None:
        """Keep the image or latents of a live backend, and their quality, from ``work`` with ``request``."""

    def end(self, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        """End ``request``, exactly once; a completed one is answered after its handling, which may end it later.

        Args:
            outcome: COMPLETED, DISCARDED (by a policy) or FAILED (on a worker), of mezzotint.sim.core.request.
            reason: why it was discarded or failed.
        """
