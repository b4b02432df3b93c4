"""The cluster as parts see it: which workers have capacity, and the orders that it takes."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from mezzotint.backends.base import Asset, Backend, Cost
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker

SERVER = "controlnet-server"
"""The role of a GPU that serves ControlNets to other workers: no model has it, and no request is sent there."""

IN_HOST = "in-host"
"""Kind of a model in host memory, among the kinds of assets that ``Cluster.watch_assets`` tells."""


class Cluster(Protocol):
    """The cluster: owns the workers. Schedulers ask it for capacity, and controllers give it orders.

    ``now_s`` of every method is the clock's present time.

    Attributes:
        compiles: True if the first request of a shape may take longer on a server that started (``compile_s``).
    """

    compiles: bool

    @property
    def kinds(self) -> Mapping[Gpu, Backend]:
        """The kinds of its GPUs in the order of preference, with the costs of work on each.

        A worker's own are Worker.gpu and Worker.backend.
        """

    @property
    def gpus(self) -> int:
        """The number of GPUs."""

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers that serve requests now or later, one for each GPU.

        GPUs that are starting, leaving or off (Cluster.start_instance) are not among them.
        """

    def workers_of(self, role: str) -> Sequence[Worker]:
        """Return those of ``workers`` that serve ``role`` or are changing to it."""

    def worker(self, worker_id: int) -> Worker:
        """Return the GPU or the group of this number (Worker.id)."""

    def roles(self) -> Sequence[str]:
        """Return the role of each of ``workers``: the one that it serves or is changing to."""

    @property
    def servers(self) -> Sequence[Worker]:
        """The GPUs that serve ControlNets (role SERVER)."""

    def gpu_counts(self) -> Sequence[int]:
        """Return the GPUs of each worker that ever existed, by worker number."""

    @property
    def models_held(self) -> Collection[tuple[str, str]]:
        """Name of the kind of GPU and of the model, for each model that a GPU held."""

    def gpu_kinds(self) -> Sequence[Gpu]:
        """Return the kind of the GPUs of each worker that ever existed, by worker number."""

    def least_loaded(self, role: str | None = None) -> Worker | None:
        """Return the worker (in ``role``) with capacity and the fewest running requests; None if all are full.

        Of several, one of the first kind of ``kinds``; of these, the one that has had this load for the longest.
        """

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        """Yield the open workers (in ``role``) without requests, in the order of ``kinds``, longest idle first."""

    def release(self, worker: Worker, count: int = 1) -> None:
        """Free the capacity of ``count`` requests that ended; an executor calls this after Run.end."""

    def change_role(self, worker: Worker, role: str, now_s: float) -> None:
        """Drain ``worker``, load the model of ``role``, and open it again.

        The load is time and energy of its GPU. A new order replaces one whose load has not begun.
        """

    def fail(self, worker: Worker, now_s: float) -> None:
        """Take the GPU of ``worker`` out of service. Call Run.fail, which first has the executor abort its requests."""

    def repair(self, worker: Worker, now_s: float) -> None:
        """Start the server of ``worker`` anew with empty memory: it loads the model of its role and opens."""

    def group(self, gpus: tuple[int, ...]) -> Worker:
        """Return the worker that stands for ``gpus`` together, for a stage that runs there (executor=stages).

        Nothing is formed: a GPU may be part of many such groups, and works in one at a time.
        """

    def gpus_of(self, worker_id: int) -> tuple[int, ...]:
        """Return the GPUs of a worker or group, by its number."""

    def occupy(self, group: Worker, requests: int = 1) -> None:
        """Count the GPUs of ``group`` as busy with so many requests. Raises SimulationError if one is busy."""

    def vacate(self, group: Worker) -> None:
        """Count the GPUs of ``group`` as idle."""

    def lacks(self, group: Worker, model: str) -> bool:
        """Return True if a GPU of ``group`` does not hold ``model``."""

    def cut_short(self, group: Worker) -> None:
        """End now the busy time of ``group`` that was recorded ahead, since its GPU failed."""

    def keep_roles(self, why: str) -> None:
        """Refuse orders of roles and rentals in this run; ``why`` says which part counts on that."""

    def rent(self, on: int) -> None:
        """Begin a run with the first ``on`` GPUs on and the others off, for a controller that rents instances.

        The GPUs of an instance have consecutive numbers: instance i has those from i * gpu.gpus_per_instance on.
        """

    def start_instance(self, instance: int, startup_s: float, now_s: float) -> None:
        """Order ``instance``: its GPUs start for ``startup_s``, then their servers, which load their model and open.

        They are paid from now on. An instance that leaves is kept instead, and serves at once.
        """

    def stop_instance(self, instance: int, now_s: float) -> None:
        """Let the GPUs of ``instance`` finish, and pay until the last one has. A start is broken off at once."""

    def start_s(self, worker: Worker) -> float:
        """Return the seconds from the start of the server process of ``worker`` until it takes requests."""

    def compile_s(self, worker: Worker, request: Request) -> float:
        """Return the extra seconds of the first request of a shape on ``worker`` since its server started.

        The shape then counts as compiled, on each of its GPUs: 0 from then on, until one of them starts anew. An
        executor asks before the first step, and records the seconds as busy time of the kind ``compile``.
        """

    def close(self, worker: Worker) -> None:
        """Stop new requests from reaching ``worker`` while an executor runs a static batch there."""

    def reopen(self, worker: Worker) -> None:
        """Let requests reach ``worker`` again after ``close``."""

    def fetch(self, group: Worker, model: str, row: int = -1) -> tuple[str, Cost]:
        """Return the cost of making ``model`` that of ``group``, and its kind of busy time, for ``record_busy``.

        Where GPUs keep several models (``residency=``), the cost depends on where its weights are, and these pass
        through host memory. Call it before ``install``.

        Args:
            row: trace row of the request that waits for it; -1 for none.
        """

    @property
    def keeps_models(self) -> bool:
        """True if a GPU may keep several models in its memory (``residency=``)."""

    def load_s(self, worker: Worker, model: str) -> float:
        """Return the seconds of loading ``model`` from where its weights are now, for a ``worker`` that lacks it."""

    def loads_s(self, worker: Worker, model: str) -> tuple[float, float]:
        """Return the seconds of loading ``model`` on a GPU like that of ``worker``: from host memory, and from disk.

        Both are the same where ``residency=`` is left out.
        """

    def models_in_host(self, worker: Worker) -> Collection[str]:
        """Return the models in the host memory of ``worker``; none where ``residency=`` is left out."""

    def watch_assets(self, watcher: Callable[[Worker, str, str, bool], None]) -> None:
        """Tell ``watcher`` of each asset that comes to a worker or leaves it, from now on.

        It gets the worker, the kind and the name of the asset, and True if it comes. A model that comes to host memory
        or leaves it is of kind IN_HOST; each GPU of the instance is told.
        """

    def slots(self, worker: Worker) -> int:
        """Return how many of the run's models ``worker`` keeps in its memory; an estimate."""

    def install(self, group: Worker, model: str, free_bytes: int = 0) -> None:
        """Make ``model`` that of every GPU of ``group``; where another one is, it leaves the memory.

        With ``residency=`` the other stays. An executor records what ``fetch`` says it costs.

        Args:
            group: a worker or a group of GPUs.
            free_bytes: bytes to stay free for the activations of its requests.
        """

    def check_memory(
        self, worker: Worker, peak_bytes: int | None, runs: Sequence[Collection[Asset]] | None = None
    ) -> None:
        """Check the peak memory of a worker's batch, weights included, against its GPU.

        Args:
            runs: the add-ons of each request of the batch. If memory is short, resident add-ons outside them are
                evicted, longest unused first. None keeps all.
        """

    def admit(
        self, worker: Worker, asset: Asset, bytes: int | None, keep: Collection[Asset] = (), free_bytes: int = 0
    ) -> list[Asset] | None:
        """Make ``asset`` resident on ``worker``, with ``free_bytes`` to spare.

        Returns:
            The assets that were evicted for it, longest unused first, never the worker's model or one of ``keep``.
            None if it cannot fit; nothing changes then.
        """

    def evict(self, worker: Worker, asset: Asset) -> None:
        """Evict ``asset`` from the memory of ``worker``."""

    def record_busy(
        self,
        worker: Worker,
        from_s: float,
        until_s: float,
        kind: str,
        joules: float | None = None,
        batch: int = 1,
        row: int = -1,
        model: str = "",
    ) -> float:
        """Record busy time: the one source of utilization, energy, batch sizes and the timeline.

        Args:
            from_s: begin of the interval, in seconds of simulated time.
            until_s: its end, at which it must be recorded at the latest.
            kind: ``serve`` a whole request or batch, ``load``, ``compile``, ``prepare``, ``steps``, ``boundary``,
                ``finish``, or a name of the executor's.
            joules: of all its GPUs; None takes the power of its kind of GPU.
            batch: requests that are served at once.
            row: the trace row, if one request alone is served.
            model: what a stage on ``worker`` runs, in a batch of any size; empty for the worker's own.

        Returns:
            The joules; NaN where power is not known.
        """
