"""A pixel budget for the batch: the larger the images, the fewer step together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Stepper, Worker
from mezzotint.sim.scheduling.disciplines.fifo import FifoQueue


@dataclass(slots=True)
class PixelBudget(FifoQueue):
    """First in, first out, while the batch has at most ``max_pixels`` and fits into memory; larger images run alone.

    Pixels of a video are those of all frames.
    """

    executor: Stepper
    max_pixels: Count = 4 * 1024 * 1024
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._queues.get(worker)
        if not queue:
            return None
        # Those that joined at this boundary have not stepped yet, but will with the others
        # (test_one_resolution_batches_share_a_size_and_stay_below_the_pixel_cap).
        batch = [*self.executor.active(worker), *self.executor.joining(worker), queue[0]]
        over_budget = sum(request.pixels for request in batch) > self.max_pixels
        # An image above the budget runs alone, or it would block its queue for ever.
        if len(batch) > 1 and (over_budget or not fits(self._run, worker, batch)):
            return None
        return FifoQueue.next(self, worker, now_s)


def fits(run: Run, worker: Worker, batch: Sequence[Request]) -> bool:
    """Return True if ``batch`` fits into the memory of ``worker``, or if its peak was not measured."""
    memory_bytes = worker.gpu.memory_bytes
    if memory_bytes is None or not worker.backend.measures_memory:
        return True
    peak = worker.backend.peak_bytes([run.work(request) for request in batch])
    return peak is None or peak <= memory_bytes
