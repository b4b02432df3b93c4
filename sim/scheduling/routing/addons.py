"""Routing by add-on: a request goes where its ControlNets and LoRAs are, as far as it pays to wait for them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.base import Asset
from conf.ranges import Seconds
from sim.core.request import NO_ADDONS, Request
from sim.protocols import Router, Run, Worker
from sim.scheduling.routing.routers import LeastWorkLeft, Ties


@dataclass(slots=True)
class ByAddons(Router):
    """The worker that would be done first with what it has, if loading what a request lacks there counts as work.

    A worker will hold the ControlNets that lie on it now and those of all requests outstanding on it, and the LoRAs of
    the last of these: they are in the weights of one set at a time.

    Args:
        load_weight: what a second of loading is worth in seconds of waiting; 0 is ``least-work-left``.

    Raises ConfigError for a live backend, which cannot say beforehand what a request takes.
    """

    load_weight: Seconds = 1.0
    ties: Ties = "first"
    _run: Run = field(init=False, repr=False)
    _work: LeastWorkLeft = field(init=False, repr=False)
    _sent: dict[Worker, deque[Request]] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run, self._work = run, LeastWorkLeft(self.ties)
        self._work.bind(run)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self._work.least(
            workers, lambda worker: self._work.left_s(worker, now_s) + self.load_weight * self.lacks_s(worker, request)
        )

    def lacks_s(self, worker: Worker, request: Request) -> float:
        """Seconds of loading what ``request`` asks for and ``worker`` will not hold."""
        wanted, model = request.addons or NO_ADDONS, request.model or ""
        sent = self._sent.get(worker, ())
        nets = {name for each in sent for name in (each.addons or NO_ADDONS).controlnets}
        loras = set((sent[-1].addons or NO_ADDONS).loras) if sent else None
        lacking = [
            Asset("controlnet", name, model)
            for name in wanted.controlnets
            if name not in nets and Asset("controlnet", name, model) not in worker.resident
        ]
        if loras is None:
            loras = {asset.name for asset in worker.resident if asset.kind == "lora"}
        if loras != set(wanted.loras):
            lacking += [Asset("lora", name, model) for name in wanted.loras]
        return sum(self._run.backend.load(asset).seconds for asset in lacking)

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self._work.sent(worker, request, now_s, self.lacks_s(worker, request))
        self._sent.setdefault(worker, deque()).append(request)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._sent[worker].remove(request)
        self._work.left(worker, request, now_s)
