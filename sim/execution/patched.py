"""Stage costs of continuous batching when images are cut into patches that share one batch (PatchedServe)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from mezzotint.backends.base import Backend, Cost, Patching, Work
from mezzotint.backends.patched import common_side
from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.protocols import Run, Worker


@dataclass(slots=True)
class PatchedSteps(SameSizeSteps):
    """Step all running requests as one batch of patches, whatever their sizes (PatchedServe, section 4).

    Text encoding and decoding run one request at a time. The backend's cost of a step of patches includes splitting,
    stitching and the halo.

    Args:
        side: side of a patch in pixels. ``trace`` takes the greatest common divisor of all sizes of the trace, which
            PatchedServe keeps for the whole run (6.1.1). ``active`` takes that of the sizes in the batch.
        min_side: in pixels; if the common divisor is smaller, images are padded to multiples of this.

    Raises ConfigError for a backend without patches.
    """

    side: Count | Literal["trace", "active"] = "trace"
    min_side: Count = 64
    _fixed_side: int | None = field(init=False, default=None, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        for backend in run.cluster.kinds.values():
            if not isinstance(backend, Patching):
                raise ConfigError(
                    f"batching=patched: the backend {type(backend).__qualname__} does not step patches; choose another "
                    "backend= or batching=same-size"
                )
        SameSizeSteps.bind(self, run, interrupt)
        if self.side == "trace":
            workload = run.workload
            sizes = set(zip(workload.width, workload.height, strict=True))
            if workload.use_model_shape:
                sizes |= {(model.width, model.height) for model in run.models.values()}
            self._fixed_side = common_side(sizes, self.min_side)
            source = f"greatest common divisor of the trace's {len(sizes)} sizes, at least {self.min_side}"
        elif self.side == "active":
            source = f"greatest common divisor of the sizes that step together, at least {self.min_side}"
        else:
            self._fixed_side, source = self.side, "batching.side"
        run.assume("side of a patch [px]", self.side if self._fixed_side is None else self._fixed_side, source)

    def on_one_gpu(self, backend: Backend, works: Sequence[Work]) -> Cost:
        side = self._fixed_side or common_side(((work.width, work.height) for work in works), self.min_side)
        return cast(Patching, backend).patched(works, side)
