"""What looking for reuse takes: comparing, masking and filling in, block by block."""

from collections.abc import Sequence
from dataclasses import dataclass

from conf.ranges import Count, Seconds
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.protocols import Run


@dataclass(slots=True)
class Overhead:
    """At every step, for each block of the denoiser so many seconds and, for each patch of the batch, so many more.

    PatchedServe has it grow with the batch and, of 24 blocks rather than 7, be more on SD3 than on SDXL (8.2).

    Args:
        blocks: blocks by model.
        block_s: seconds for each block.
        patch_s: and for each patch in it, beside that.
        patch_px: side of a patch.
        source: where the seconds are from, for the summary.
    """

    blocks: dict[str, Count]
    block_s: Seconds = 0.0003
    patch_s: Seconds = 0.00001
    patch_px: Count = 256
    source: str = "assumed"

    def bind(self, run: Run) -> None:
        said = f"{self.block_s:g} a block, {self.patch_s:g} more for each patch of {self.patch_px} px"
        run.assume("seconds of a step that the feature cache itself takes", said, self.source)

    def seconds(self, active: Sequence[Request]) -> float:
        """Of one step of ``active``."""
        patches = sum(request.width * request.height for request in active) / self.patch_px**2
        return max(self._of(request.model or "") for request in active) * (self.block_s + self.patch_s * patches)

    def _of(self, model: str) -> int:
        found = self.blocks.get(model)
        if found is None:
            raise ConfigError(
                f"feature_cache.overhead.blocks: how many blocks {model} has is not said (of "
                f"{', '.join(self.blocks) or 'none'} it is); add '+feature_cache.overhead.blocks.{model}=24'"
            )
        return found
