"""Asynchronous LoRA loading: the first steps run without the LoRAs (SwiftDiffusion, 4.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from mezzotint.backends.base import FREE, AddonBackend, Cost
from mezzotint.settings.ranges import Count
from mezzotint.sim.addons.assets import check_addon_backend, on_gpus, requested_addons
from mezzotint.sim.addons.fetch import FromDisk
from mezzotint.sim.addons.sync_loading import admit_lora, merged_loras, refuse_mixed
from mezzotint.sim.core.clock import COMPLETION
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Loads, LoraFetch, LoraLoading, RequestColumn, Run, Worker

ROUNDING_S = 1e-9
"""A LoRA that arrives this shortly after a step boundary counts as present at it."""


@dataclass(slots=True)
class AsyncLoading(LoraLoading):
    """Fetch all LoRAs of a request at once, from when a worker takes it, and merge them in place when all have arrived.

    They are merged at the first step boundary after the last one arrived. At step ``max_steps_without`` the worker
    waits for them. The files stay in host memory until the request leaves: on other GPUs, to which it moved, they are
    merged without another fetch.

    Args:
        lora_fetch: source of the files.
        max_steps_without: steps of a request that may run without its LoRAs.
        keep_resident: keep them merged until others are asked for; else restore the weights when the image is done.
    """

    lora_fetch: LoraFetch = field(default_factory=FromDisk)
    max_steps_without: Count = 20
    keep_resident: bool = False
    _run: Run = field(init=False, repr=False)
    _interrupt: Callable[[Worker], None] = field(init=False, repr=False)
    _ready_s: dict[int, float] = field(init=False, default_factory=dict, repr=False)
    """Arrival of the last LoRA of each request whose LoRAs are not merged yet, by trace row."""
    _fetched_by: dict[int, Worker | None] = field(init=False, default_factory=dict, repr=False)
    """Trace row -> the worker that fetches the files; None once they were merged."""
    _unmerged: dict[int, list[Worker]] = field(init=False, default_factory=dict, repr=False)
    """Trace row -> the workers whose weights are still without the LoRAs that they are listed with."""
    _stall: RequestColumn = field(init=False, repr=False)
    _step: RequestColumn = field(init=False, repr=False)
    _patch: RequestColumn = field(init=False, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run, self._interrupt = run, interrupt
        check_addon_backend(run, "lora_loading", "the stages of a LoRA", "lora_loading=sync")
        self._stall = run.add_column("stall_s", default=0.0)
        self._step, self._patch = run.add_column("patch_step", int), run.add_column("patch_s")
        self.lora_fetch.bind(run)

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        run, loads = self._run, Loads()
        loras, merged = requested_addons(run, request, "lora"), merged_loras(worker)
        if set(merged) == set(loras):
            return loads
        refuse_mixed(request, active, loras, merged, worker)
        if merged:
            loads.append(("restore", self._restore_weights(worker)))
        if loras:
            for lora in loras:
                # Merged in place: a LoRA takes no bytes beyond the weights'.
                admit_lora(run, worker, lora, 0, request, active)
            self._unmerged.setdefault(request.row, []).append(worker)
            request.loras_pending = True
            now_s = run.clock._now
            if request.row not in self._fetched_by:
                self._fetched_by[request.row] = worker
                took_s = [self.lora_fetch.seconds(worker, lora, now_s) for lora in loras]
                ready_s = self._ready_s[request.row] = now_s + max(took_s)
                run.clock.at(ready_s, COMPLETION, self._on_arrival, (worker, request, ready_s))
            else:
                # Another GPU of its group, or one to which it moved (test_moved_request_merges_without_another_fetch).
                self._ready_s.setdefault(request.row, now_s)
        return loads

    def _on_arrival(self, arrival: tuple[Worker, Request, float]) -> None:
        worker, request, ready_s = arrival
        if self._ready_s.get(request.row) == ready_s:
            later_s = self._expected_s(request)
            if later_s > ready_s + ROUNDING_S:
                self._run.clock.at(later_s, COMPLETION, self._on_arrival, (worker, request, later_s))
            else:
                self._interrupt(worker)

    def _expected_s(self, request: Request) -> float:
        worker = self._fetched_by[request.row]
        if self.lora_fetch.shared and worker is not None:
            loras = requested_addons(self._run, request, "lora")
            expected_s = [self.lora_fetch.expected_s(worker, lora) for lora in loras]
            self._ready_s[request.row] = max(self._ready_s[request.row], *expected_s)
        return self._ready_s[request.row]

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        pending = [request for request in active if request.row in self._ready_s]
        return min(
            (max(self._last_step_without(request) - _steps_done(request), 1) for request in pending), default=None
        )

    def _last_step_without(self, request: Request) -> int:
        """Return the step before which the LoRAs must be merged; at least the last step runs with them."""
        return min(self.max_steps_without, request.steps - 1)

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        if not self._ready_s:
            return FREE
        cost = FREE
        for request in active:
            if request.row not in self._ready_s:
                continue
            if request.row not in self._unmerged:  # it moved to GPUs that had them merged
                request.loras_pending = False
                continue
            ready_s = self._expected_s(request)
            if ready_s > now_s + ROUNDING_S and _steps_done(request) < self._last_step_without(request):
                continue
            stall_s = max(ready_s - now_s, 0.0)
            if stall_s > ROUNDING_S and self.lora_fetch.shared:  # fetches that begin meanwhile may lengthen the stall
                self._stall[request.row] += stall_s
                self._interrupt(worker)
                cost = Cost(cost.seconds + stall_s, None)
                now_s += stall_s
                continue
            del self._ready_s[request.row], self._unmerged[request.row]
            request.loras_pending = False
            loras = requested_addons(self._run, request, "lora")
            patch = on_gpus(len(worker.gpus), cast(AddonBackend, worker.backend).merge_loras(loras))
            self._stall[request.row] += stall_s
            if self._fetched_by[request.row] is not None:
                self._fetched_by[request.row] = None
                self._step[request.row], self._patch[request.row] = _steps_done(request), patch.seconds
            else:
                self._patch[request.row] += patch.seconds
            cost = Cost(cost.seconds + stall_s + patch.seconds, None)
            now_s += stall_s + patch.seconds
        return cost

    def _restore_weights(self, worker: Worker) -> Cost:
        merged = merged_loras(worker)
        for lora in merged:
            self._run.cluster.evict(worker, lora)
        return cast(AddonBackend, worker.backend).restore_weights(merged)

    def request_paused(self, request: Request) -> None:
        loras = requested_addons(self._run, request, "lora")
        for worker in self._unmerged.pop(request.row, ()):
            for lora in loras:
                if lora in worker.resident:
                    self._run.cluster.evict(worker, lora)

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        for by_row in (self._ready_s, self._fetched_by, self._unmerged):
            by_row.pop(request.row, None)
        request.loras_pending = False
        if self.keep_resident or active or not merged_loras(worker):
            return FREE
        return self._restore_weights(worker)


def _steps_done(request: Request) -> int:
    """Return the steps behind ``request``, skipped ones included."""
    return request.steps - request.steps_left
