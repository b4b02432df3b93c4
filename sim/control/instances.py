"""Rented instances: the GPUs that a controller orders and gives back while a run goes on."""

import math
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.worker import OFF, ON, STARTING, Worker
from mezzotint.sim.protocols import Controller, Run
from mezzotint.sim.protocols.cluster import SERVER


class RentingController(Controller):
    """A controller that orders GPUs and gives them back."""

    __slots__ = ()


@dataclass(slots=True)
class Instances:
    """Instances of one run, of ``gpus_per_instance`` GPUs each, ordered and given back whole.

    A GPU is paid from its order to its release. It starts for ``startup_s``, loads its model and serves. To go, it
    finishes its running requests. A GPU that starts draws idle power; one that is off draws none and costs nothing.

    Args:
        startup_s: seconds from an order until the model begins to load.
        min_gpus, max_gpus: bounds of the GPUs that are on or starting; None is ``cluster.count``.

    Raises ConfigError for bounds outside the cluster, GPUs of several roles, and ControlNet servers.
    """

    run: Run
    startup_s: Seconds
    min_gpus: Count
    max_gpus: Count | None
    _size: int = field(init=False)
    _instances: list[list[Worker]] = field(init=False)

    def __post_init__(self) -> None:
        run, cluster = self.run, self.run.cluster
        check_one_kind(cluster.kinds, "controller", "autoscalers rent GPUs of", "add controller=none")
        workers = list(cluster.workers)
        size = self._size = next(iter(cluster.kinds)).gpus_per_instance
        if cluster.servers:
            raise ConfigError(
                f"controller: found {len(cluster.servers)} GPUs in the role {SERVER}, and autoscalers rent GPUs that "
                "serve requests; choose controlnet_placement=inline and allocation=uniform-large, or controller=none"
            )
        if len({worker.role for worker in workers}) > 1:
            raise ConfigError(
                "controller: found GPUs of several roles, and autoscalers rent GPUs that are all alike; choose "
                "allocation=uniform-large, or controller=none"
            )
        if self.limit > cluster.gpus:
            raise ConfigError(
                f"controller.max_gpus: found {self.limit}, expected at most cluster.count={cluster.gpus}; raise "
                "cluster.count"
            )
        if self.min_gpus > self.limit:
            limit_key = "max_gpus" if self.max_gpus is not None else "cluster.count"
            raise ConfigError(
                f"controller.min_gpus: found {self.min_gpus}, expected at most {limit_key}={self.limit}; lower it, or "
                "raise that"
            )
        self._instances = [workers[first : first + size] for first in range(0, len(workers), size)]
        if self._max_instances < self._min_instances:
            raise ConfigError(
                f"controller.max_gpus: found {self.limit}, and instances of {size} GPUs cannot be {self.min_gpus} to "
                f"{self.limit} GPUs; expected a multiple between them"
            )
        run.assume("seconds from the order of a GPU until its model loads", self.startup_s, "a setting of controller=")
        run.assume("GPUs that start draw", "their idle power", "no measured value is published")
        run.gauge("gpus_on", lambda _: sum(worker.state == ON for worker in workers))
        run.gauge("gpus_starting", lambda _: sum(worker.state == STARTING for worker in workers))

    @property
    def limit(self) -> int:
        """GPUs that may be on or starting at once: ``max_gpus``, or all of the cluster."""
        return self.run.cluster.gpus if self.max_gpus is None else self.max_gpus

    @property
    def _min_instances(self) -> int:
        return math.ceil(self.min_gpus / self._size)

    @property
    def _max_instances(self) -> int:
        return len(self._instances) if self.limit == self.run.cluster.gpus else self.limit // self._size

    def begin(self, gpus: int) -> int:
        """Start with instances for ``gpus`` GPUs within the bounds, their model loaded; return their GPUs."""
        instances = self._instances_for(gpus)
        on = sum(len(members) for members in self._instances[:instances])
        self.run.cluster.rent(on)
        return on

    def ready(self) -> list[Worker]:
        """Return the GPUs that serve."""
        return [worker for members in self._instances for worker in members if worker.state == ON]

    def gpus_ordered(self) -> int:
        """Return the number of GPUs that are on or starting."""
        return sum(len(members) for members in self._instances if members[0].state in (ON, STARTING))

    def resize(self, gpus: int) -> None:
        """Order or give back instances until those on or starting hold ``gpus`` GPUs, within the bounds.

        Leaving instances are kept before others are ordered, in the order of their indices. Starting instances are
        given back before others, then those with the fewest running requests, the highest index first. An instance of
        which the cluster has only a part is ordered last and given back first.
        """
        run, now_s = self.run, self.run.clock.now
        counted = [index for index, members in enumerate(self._instances) if members[0].state in (ON, STARTING)]
        wanted = self._instances_for(gpus)
        if wanted != len(counted):
            run.log_decision("scale", gpus=min(wanted * self._size, run.cluster.gpus), before=self.gpus_ordered())
        others = [index for index in range(len(self._instances)) if index not in counted]
        others.sort(key=lambda index: (self._is_partial(index), self._instances[index][0].state == OFF))
        for index in others[: max(wanted - len(counted), 0)]:
            run.cluster.start_instance(index, self.startup_s, now_s)
        for index in sorted(counted, key=self._release_order)[: max(len(counted) - wanted, 0)]:
            run.cluster.stop_instance(index, now_s)

    def _instances_for(self, gpus: int) -> int:
        return min(max(math.ceil(gpus / self._size), self._min_instances), self._max_instances)

    def _release_order(self, index: int) -> tuple[bool, bool, int, int]:
        members = self._instances[index]
        running = sum(worker.running for worker in members)
        return not self._is_partial(index), members[0].state == ON, running, -index

    def _is_partial(self, index: int) -> bool:
        """True for the last instance of a cluster that is no multiple of an instance's GPUs; it is used last."""
        return len(self._instances[index]) < self._size
