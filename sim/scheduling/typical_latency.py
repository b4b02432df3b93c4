"""The typical standalone latency of a planned request, as a profile states it."""

from dataclasses import dataclass, field

from mezzotint.backends.base import standalone_cost
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Worker


@dataclass(slots=True)
class TypicalLatency:
    """The standalone latency of requests as planned: of the steps that a plan runs after skipping.

    Args:
        part: what asks for it, for messages.
        remedy: what to choose in its place.

    Raises ConfigError for a live backend, which cannot tell the duration of a request beforehand.
    """

    run: Run
    part: str
    remedy: str
    _cached_ns: dict[tuple[object, ...], int] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.run.backend.live:
            raise ConfigError(
                f"{self.part} asks a profile what a request will take, and a live backend has none; {self.remedy}"
            )

    def ns(self, worker: Worker, request: Request) -> int:
        """Return the latency on ``worker`` in whole nanoseconds, whose sums have no rounding error."""
        key = (
            worker.gpu.name,
            request.model,
            request.width,
            request.height,
            request.frames,
            request.steps,
            request.skipped,
            request.plan.refine,
            request.addons,
            request.sampling,
        )
        expected_ns = self._cached_ns.get(key)
        if expected_ns is None:
            work = self.run.work(request)
            work.row = -1  # typical seconds, not this row's
            cost = standalone_cost(worker.backend, work)
            expected_ns = self._cached_ns[key] = round((cost.denoise_s + cost.other_s) * 1e9)
        return expected_ns
