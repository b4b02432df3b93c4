"""GPU failures and repairs, and crashes of server processes."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Literal

import simpy

from mezzotint.settings.ranges import Positive, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import FAILED
from mezzotint.sim.core.streams import FAILURES
from mezzotint.sim.protocols import Controller, Run, Worker


@dataclass(slots=True)
class Failures(Controller):
    """Takes GPUs down at given times, or at random with exponential times to failure and to repair.

    A failed GPU loses its running requests and its memory; after repair its server starts anew
    (mezzotint.sim.core.server) and loads the model of its role. Controllers still count it in its role. While it is
    down it draws its idle power. A crash is a failure of the server process alone, which starts anew at once.

    Args:
        outages: GPU number -> windows [from_s, until_s] in which it is down, in order and disjoint.
        crashes: GPU number -> seconds at which its server crashes, in order.
        mean_up_s: mean seconds from a repair to the next failure of each other GPU; None for no random failures.
        mean_down_s: mean seconds from a failure to its repair; 0 for crashes.
        lost: fate of a request that a failed GPU ran: ``again`` puts it back at the end of its queue, to start over;
            ``failed`` ends it.
    """

    outages: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    crashes: Mapping[int, Sequence[float]] | None = None
    mean_up_s: Positive | None = None
    mean_down_s: Seconds = 600.0
    lost: Literal["again", "failed"] = "again"
    _run: Run = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.outages and not self.crashes and self.mean_up_s is None:
            raise ConfigError("failures: found no crash; name GPUs in failures.crashes, or add failures.mean_up_s")
        for gpu, windows in self.outages.items():
            edges = [edge for window in windows for edge in window]
            if not (edges and edges[0] >= 0 and all(low < high for low, high in pairwise([*edges, inf]))):
                raise ConfigError(
                    f"failures.outages.{gpu}: found {[list(w) for w in windows]}, expected windows [from_s, until_s] "
                    "in order, from 0 s on, each to end before the next begins"
                )
        for gpu, at_s in (self.crashes or {}).items():
            if not (at_s and at_s[0] >= 0 and all(low < high for low, high in pairwise([*at_s, inf]))):
                raise ConfigError(f"failures.crashes.{gpu}: found {list(at_s)}, expected seconds in order, from 0 s on")
        if both := sorted(self.outages.keys() & (self.crashes or {}).keys()):
            raise ConfigError(f"failures.crashes: found GPU {both[0]}, which has outages too; name it in one of them")

    def bind(self, run: Run) -> None:
        self._run = run
        windows: dict[int, Sequence[tuple[float, float]]] = {}
        for key, of_gpus in (("outages", self.outages), ("crashes", self._crash_windows())):
            windows |= of_gpus
            absent = sorted(set(of_gpus) - set(range(run.cluster.gpus)))
            if absent:
                raise ConfigError(f"failures.{key}: found GPU {absent[0]}, expected 0 to {run.cluster.gpus - 1}")
            for server in run.cluster.servers:
                if server.id in of_gpus:
                    raise ConfigError(
                        f"failures.{key}: found GPU {server.id}, which serves ControlNets, and the failure of such a "
                        "GPU is not modelled; name others"
                    )
        for worker in run.cluster.workers:
            if worker.id in windows:
                run.process(self._take_down(worker, iter(windows[worker.id])))
            elif self.mean_up_s is not None:
                run.process(self._take_down(worker, self._random_outages(worker, self.mean_up_s)))
        if self.outages or (self.mean_up_s is not None and self.mean_down_s):
            run.assume("GPUs that are down draw", "their idle power", "a setting of failures=; not published")

    @property
    def crashes_servers(self) -> bool:
        """True if servers crash, rather than GPUs fail."""
        return bool(self.crashes) or (self.mean_up_s is not None and not self.mean_down_s)

    def _crash_windows(self) -> dict[int, Sequence[tuple[float, float]]]:
        """Return the crashes as outages that end at once."""
        return {gpu: [(at, at) for at in at_s] for gpu, at_s in (self.crashes or {}).items()}

    def _random_outages(self, worker: Worker, mean_up_s: float) -> Iterator[tuple[float, float]]:
        rng, until_s = self._run.rng(FAILURES.format(worker.id)), 0.0
        while True:
            from_s = until_s + rng.exponential(mean_up_s)
            until_s = from_s + rng.exponential(self.mean_down_s)
            yield from_s, until_s

    def _take_down(self, worker: Worker, windows: Iterator[tuple[float, float]]) -> Generator[simpy.Event, Any, None]:
        run = self._run
        for from_s, until_s in windows:
            yield run.clock.sleep_until(from_s)
            # The engine has taken the GPU down by now, so a request that is requeued cannot return to it.
            for request in run.fail(worker):
                if self.lost == "again":
                    run.requeue(request)
                else:
                    run.end(request, FAILED, f"GPU {worker.id} failed")
            yield run.clock.sleep_until(until_s)
            run.cluster.repair(worker, run.clock.now)
