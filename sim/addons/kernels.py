"""Faster kernels of the denoiser and its ControlNets (SwiftDiffusion, 4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from mezzotint.backends.base import AddonBackend
from mezzotint.settings.ranges import Positive
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class Kernels:
    """Speed up every step by kernels, as the profile has them.

    Args:
        names: the kernels, as the profile calls them.
        stages: factor on the seconds of the stages before and after the steps.
    """

    names: Sequence[str] = ()
    stages: Positive = 1.0
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        if self.names and not isinstance(run.backend, AddonBackend):
            raise ConfigError(f"kernels: {type(run.backend).__name__} knows none; add backend=profiled or ~kernels")
        if self.names:
            check_one_kind(run.cluster.kinds, "kernels", "their speedup is that on", "add ~kernels")
            run.assume("kernels that make steps faster", list(self.names), "the profile; SwiftDiffusion, 6.5")
        if self.stages != 1.0:
            run.assume("seconds of the stages beside the steps, times", self.stages, "kernels.stages")

    def faster(self, model: str) -> float:
        if not self.names:
            return 1.0
        return cast(AddonBackend, self._run.backend).faster(model, self.names)
