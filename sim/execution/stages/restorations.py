"""Restorations: GPUs take LoRAs out of their weights after the request that asked for them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mezzotint.backends.base import Cost
from mezzotint.sim.core.clock import INSERTION, Entry
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.stages.occupancy import Occupancy
from mezzotint.sim.protocols import Run, Worker


@dataclass(slots=True)
class Restoration:
    """The restoration of the weights on some GPUs.

    Attributes:
        joules: of all these GPUs.
        due: the clock's call at its end.
        is_answered: True if the worker of an answered request waits for it (without a group policy).
    """

    model: str
    from_s: float
    joules: float
    due: Entry
    is_answered: bool = False


@dataclass(slots=True)
class Restorations:
    """Keep GPUs busy while their weights are restored; no launch starts there meanwhile.

    Args:
        gpus: keeps GPUs from launches.
        decide: has the policy decide.
        has_policy: False if a scheduler chooses workers, which are busy until they are released.
    """

    run: Run
    gpus: Occupancy
    decide: Callable[[float], None]
    has_policy: bool
    _running: dict[Worker, Restoration] = field(init=False, default_factory=dict, repr=False)

    def start(self, request: Request, gpus: tuple[int, ...], from_s: float, cost: Cost) -> None:
        """Restore the weights of ``gpus`` from ``from_s`` on, after ``request``, at the ``cost`` of each."""
        if not gpus:
            return
        group = self.run.cluster.group(gpus)
        joules = (group.gpu.energy_j(cost.seconds) if cost.joules is None else cost.joules) * len(gpus)
        request.energy_j += joules
        self.gpus.hold(group.gpus)
        if self.has_policy:
            self.run.cluster.occupy(group)
        due = self.run.clock.at(from_s + cost.seconds, INSERTION, self._end, group)
        self._running[group] = Restoration(request.model or "", from_s, joules, due)

    def release(self, worker: Worker) -> None:
        """Release ``worker``, whose request was answered, once its weights are restored."""
        if worker in self._running:
            self._running[worker].is_answered = True
        else:
            self.run.cluster.release(worker)

    def lose(self, worker: Worker, now_s: float) -> None:
        """End the restorations on ``worker``, whose memory is lost."""
        for group in [group for group in self._running if worker.id in group.gpus]:
            restoration = self._running[group]
            self.run.clock.cancel(restoration.due)
            if restoration.from_s < now_s:
                self.run.cluster.record_busy(group, restoration.from_s, now_s, "lost", model=restoration.model)
            self._free(group)

    def _end(self, group: Worker) -> None:
        restoration, now_s = self._running[group], self.run.clock._now
        from_s, joules, model = restoration.from_s, restoration.joules, restoration.model
        self.run.cluster.record_busy(group, from_s, now_s, "after", joules, model=model)
        self._free(group)
        if restoration.is_answered:
            self.run.cluster.release(group)
        self.decide(now_s)

    def _free(self, group: Worker) -> None:
        del self._running[group]
        self.gpus.unhold(group.gpus)
        if self.has_policy:
            self.run.cluster.vacate(group)
