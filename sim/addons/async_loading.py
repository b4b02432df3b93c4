"""LoRAs that come while the first steps run without them (SwiftDiffusion, 4.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from backends.base import FREE, AddonBackend, Cost
from conf.ranges import Count
from sim.addons.assets import activations, asked, check_addon_backend, in_use, on_all_gpus
from sim.addons.fetch import FromDisk
from sim.addons.sync_loading import no_room, patched, refuse_mixed
from sim.core.clock import COMPLETION
from sim.core.culprit import class_name
from sim.core.errors import SimulationError
from sim.core.request import Request
from sim.protocols import Loads, LoraFetch, LoraLoading, RequestColumn, Run, Worker

ROUNDING_S = 1e-9
"""What comes this shortly after a boundary is there at it."""


@dataclass(slots=True)
class AsyncLoading(LoraLoading):
    """All LoRAs of a request are fetched at once, from when a worker takes it. They are merged into the weights in
    place at the first boundary after the last one came, and the worker waits for them at step ``max_steps_without``.

    Args:
        lora_fetch: where they come from.
        max_steps_without: steps of a request that may run without its LoRAs.
        keep_resident: whether they stay until others are asked for; else they are taken out when the image is out.
    """

    lora_fetch: LoraFetch = field(default_factory=FromDisk)
    max_steps_without: Count = 20
    keep_resident: bool = False
    _run: Run = field(init=False, repr=False)
    _interrupt: Callable[[Worker], None] = field(init=False, repr=False)
    _ready_s: dict[int, float] = field(init=False, default_factory=dict, repr=False)
    """By row, of requests whose LoRAs are not merged yet: when the last of them is there."""
    _stall: RequestColumn = field(init=False, repr=False)
    _step: RequestColumn = field(init=False, repr=False)
    _patch: RequestColumn = field(init=False, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run, self._interrupt = run, interrupt
        check_addon_backend(run, "loras: %s does not tell the stages of a LoRA apart", "or lora_loading=sync")
        self._stall = run.add_column("stall_s", default=0.0)
        self._step, self._patch = run.add_column("patch_step", int), run.add_column("patch_s")
        self.lora_fetch.bind(run)

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        run, loads = self._run, Loads()
        loras, there = asked(run, request, "lora"), patched(worker)
        if set(there) == set(loras):
            return loads
        refuse_mixed(request, active, loras, there, worker)
        if there:
            loads.append(("restore", self._take_out(worker)))
        if loras:
            keep, room = in_use([*active, request]), activations(run, request)
            for lora in loras:
                if run.cluster.admit(worker, lora, 0, keep, room) is None:  # merged in place: the weights' own bytes
                    raise no_room(run, request, lora)
            now_s = run.clock._now
            took_s = [self.lora_fetch.seconds(worker, lora, now_s) for lora in loras]
            if not all(0.0 <= seconds < inf for seconds in took_s):
                raise SimulationError(
                    f"{class_name(self.lora_fetch)} fetches in {took_s} s; expected 0 or more, and finite"
                )
            ready_s = now_s + max(took_s)
            self._ready_s[request.row] = ready_s
            request.loras_pending = True
            run.clock.at(ready_s, COMPLETION, self._came, (worker, request, ready_s))
        return loads

    def _came(self, what: tuple[Worker, Request, float]) -> None:
        worker, request, ready_s = what
        if self._ready_s.get(request.row) == ready_s:
            later_s = self._expected_s(worker, request)
            if later_s > ready_s + ROUNDING_S:
                self._run.clock.at(later_s, COMPLETION, self._came, (worker, request, later_s))
            else:
                self._interrupt(worker)

    def _expected_s(self, worker: Worker, request: Request) -> float:
        if self.lora_fetch.shared:
            known = [self.lora_fetch.expected_s(worker, lora) for lora in asked(self._run, request, "lora")]
            self._ready_s[request.row] = max(self._ready_s[request.row], *known)
        return self._ready_s[request.row]

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        waits = [each for each in active if each.row in self._ready_s]
        return min((max(self._last(each) - _done(each), 1) for each in waits), default=None)

    def _last(self, request: Request) -> int:
        """The step before which its LoRAs must be there: at least the last one runs with them."""
        return min(self.max_steps_without, request.steps - 1)

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        if not self._ready_s:
            return FREE
        cost = FREE
        for request in active:
            if request.row not in self._ready_s:
                continue
            ready_s = self._expected_s(worker, request)
            if ready_s > now_s + ROUNDING_S and _done(request) < self._last(request):
                continue
            stall_s = max(ready_s - now_s, 0.0)
            if stall_s > ROUNDING_S and self.lora_fetch.shared:  # others may make it longer meanwhile
                self._stall[request.row] += stall_s
                self._interrupt(worker)
                cost = Cost(cost.seconds + stall_s, None)
                now_s += stall_s
                continue
            del self._ready_s[request.row]
            request.loras_pending = False
            assert isinstance(self._run.backend, AddonBackend)
            patch = on_all_gpus(worker, self._run.backend.merge_loras(asked(self._run, request, "lora")))
            self._stall[request.row] += stall_s
            self._step[request.row] = _done(request)
            self._patch[request.row] = patch.seconds
            cost = Cost(cost.seconds + stall_s + patch.seconds, None)
            now_s += stall_s + patch.seconds
        return cost

    def _take_out(self, worker: Worker) -> Cost:
        backend, there = self._run.backend, patched(worker)
        assert isinstance(backend, AddonBackend)
        for asset in there:
            self._run.cluster.evict(worker, asset)
        return on_all_gpus(worker, backend.restore_weights(there))

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        self._ready_s.pop(request.row, None)
        request.loras_pending = False
        if self.keep_resident or active or not patched(worker):
            return FREE
        return self._take_out(worker)


def _done(request: Request) -> int:
    """Steps that lie behind ``request``, skipped ones included."""
    return request.steps - request.steps_left
