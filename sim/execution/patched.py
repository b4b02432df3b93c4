"""What the stages of step-by-step execution cost when images are cut into patches that share one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backends.base import Cost, Patching, Work
from backends.patched import common_side
from conf.ranges import Count
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.execution.same_size import SameSizeSteps
from sim.protocols import Run, Steps, Worker


@dataclass(slots=True)
class PatchedSteps(Steps):
    """All active requests are one batch of patches, whatever their sizes (PatchedServe, section 4).

    Text encoding and decoding are stages of their own, one request at a time. Splitting, stitching and the halo are in
    what the backend says that a step of patches takes.

    Args:
        side: pixels; ``trace``: the greatest common divisor of all sizes of the trace, which PatchedServe keeps for the
            whole run (6.1.1); ``active``: that of the sizes that step together.
        min_side: pixels; images are padded to multiples of this where their common divisor is smaller.

    Raises ConfigError for a backend that has no patches.
    """

    side: Count | Literal["trace", "active"] = "trace"
    min_side: Count = 64
    _plain: SameSizeSteps = field(init=False, default_factory=SameSizeSteps, repr=False)
    _run: Run = field(init=False, repr=False)
    _backend: Patching = field(init=False, repr=False)
    _fixed: int | None = field(init=False, default=None, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        backend = run.backend
        if not isinstance(backend, Patching):
            raise ConfigError(
                f"steps: {type(backend).__qualname__} does not step patches; choose another backend= or batching=same-size"
            )
        self._run, self._backend = run, backend
        self._plain.bind(run, interrupt)
        if self.side == "trace":
            workload = run.workload
            sizes = set(zip(workload.width, workload.height, strict=True))
            if workload.use_model_shape:
                sizes |= {(model.width, model.height) for model in run.models.values()}
            self._fixed = common_side(sizes, self.min_side)
            said = f"greatest common divisor of the trace's {len(sizes)} sizes, at least {self.min_side}"
        elif self.side == "active":
            said = f"greatest common divisor of the sizes that step together, at least {self.min_side}"
        else:
            self._fixed, said = self.side, "batching.side"
        run.assume("side of a patch [px]", self.side if self._fixed is None else self._fixed, said)

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        return self._plain.prepare(worker, request, now_s)

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        return self._backend.patched(works := self._plain.works(worker, active), self._side(works))

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        return self._plain.finish(worker, request, now_s)

    def price(self, works: Sequence[Work]) -> Cost:
        self._plain.begin_live(works)
        return self._backend.patched(works, self._side(works))

    def _side(self, works: Sequence[Work]) -> int:
        return self._fixed or common_side(((work.width, work.height) for work in works), self.min_side)
