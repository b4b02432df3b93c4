"""Whether a batch would fit into the memory of a worker: what a scheduler looks at before it lets one join."""

from collections.abc import Sequence

from sim.parts import Run, Worker
from sim.request import Request


def fits(run: Run, worker: Worker, batch: Sequence[Request]) -> bool:
    """Whether ``batch`` can step and be decoded on ``worker``; it can where nobody measured what it takes."""
    most = run.cluster.gpu.memory_bytes
    if most is None or not getattr(run.backend, "measures_memory", True):
        return True
    peak = run.backend.peak_bytes([run.work(request) for request in batch])
    return peak is None or peak <= most
