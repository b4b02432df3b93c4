"""The cluster as parts see it: who has room, and what may be asked of it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from backends.base import Asset
from sim.core.gpu import Gpu
from sim.core.worker import Worker

SERVER = "controlnet-server"
"""The role of a GPU that serves ControlNets to other workers: no model has it, and no request goes there."""


class Cluster(Protocol):
    """Owns the workers. Schedulers keep queues and ask it who has room; controllers give it orders."""

    @property
    def gpu(self) -> Gpu: ...

    @property
    def gpus(self) -> int:
        """GPUs of the cluster, each of kind ``gpu``."""

    @property
    def workers(self) -> Sequence[Worker]:
        """All workers that may take requests sooner or later: a group, and not the GPUs that it is made of."""

    @property
    def servers(self) -> Sequence[Worker]:
        """The GPUs that serve ControlNets (role SERVER)."""

    def service_gpus(self, group: Worker) -> Sequence[Worker]:
        """The GPUs of ``group`` that do not step its denoiser, each with what lies on it."""

    def gpu_counts(self) -> Sequence[int]:
        """GPUs of each worker that there ever was, by its number."""

    def least_loaded(self, role: str | None = None) -> Worker | None:
        """Of the workers (in ``role``) with room the one with the fewest requests aboard; the one that has been so
        for the longest, among several. None where all are full."""

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        """The workers (in ``role``) with nothing aboard that take requests, longest idle first."""

    def release(self, worker: Worker, count: int = 1) -> None:
        """An executor let ``count`` requests go: ``worker`` may have others."""

    def change_role(self, worker: Worker, role: str, now_s: float) -> None:
        """Have ``worker`` serve ``role``: it takes nothing more, ends what is aboard, loads the role's model and opens
        again. The load is time and energy of its GPU. An order that comes before the load began replaces the last.
        ``now_s`` is the clock's present time, here and below."""

    def fail(self, worker: Worker, now_s: float) -> None:
        """The GPU of ``worker`` goes out of service, and nothing is aboard it any more (Run.fail asks the executor)."""

    def repair(self, worker: Worker, now_s: float) -> None:
        """It is back, its memory empty: it loads the model of its role and opens."""

    def form_group(self, workers: Sequence[Worker], role: str, now_s: float, denoisers: int | None = None) -> Worker:
        """One worker of several idle ones, until it is disbanded; the first ``denoisers`` step its denoiser, or all."""

    def disband(self, group: Worker, now_s: float) -> None:
        """Let the GPUs of ``group``, which must be idle, work on their own again."""

    def close(self, worker: Worker) -> None:
        """An executor takes nothing more on ``worker`` for now, room or not: a batch runs."""

    def reopen(self, worker: Worker) -> None:
        """And does so again."""

    def install(self, worker: Worker, model: str) -> None:
        """An executor put ``model`` on ``worker`` in the place of the one that was there."""

    def check_memory(
        self, worker: Worker, peak_bytes: int | None, runs: Sequence[Collection[Asset]] | None = None
    ) -> None:
        """Hold the most that a worker's model and batch take, in bytes, against the device. ``runs`` are the add-ons of
        each request of the batch: where it is too much, what none needs goes, longest unused first; None keeps all."""

    def admit(
        self, worker: Worker, asset: Asset, bytes: int | None, keep: Collection[Asset] = (), room: int = 0
    ) -> list[Asset] | None:
        """Have ``asset`` resident on ``worker``, and ``room`` bytes free beside it: what had to go for it, longest
        unused first; None where it cannot fit, and then all stays as it was. The worker's own model and what is in
        ``keep`` never go; what lies on a group lies on each of its GPUs that step its denoiser."""

    def evict(self, worker: Worker, asset: Asset) -> None:
        """Take ``asset`` off ``worker``."""

    def record_busy(
        self,
        worker: Worker,
        from_s: float,
        until_s: float,
        kind: str,
        joules: float | None = None,
        batch: int = 1,
        row: int = -1,
    ) -> float:
        """Note that the GPUs of ``worker`` worked: the one source of busy time, energy, batch sizes and the timeline.

        Args:
            from_s, until_s: when, in seconds of simulated time; to be told no later than at ``until_s``.
            kind: at what: ``serve`` a whole request or batch, ``load``, ``prepare``, ``steps``, ``boundary``,
                ``finish``, or what an executor calls it.
            joules: of all its GPUs; None takes the power of the cluster's kind of GPU.
            batch: requests that are served at once.
            row: the trace row of the request, where it is one alone.

        Returns the joules; NaN where power is not known.
        """
