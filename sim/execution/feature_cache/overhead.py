"""Overhead of a feature cache: comparing, masking and filling in, block by block."""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class Overhead:
    """Seconds added to every step: per block of the denoiser, and per block and patch of the batch.

    In PatchedServe (8.2) it grows with the batch, and is larger on SD3 (24 blocks) than on SDXL (7).

    Args:
        blocks: number of blocks by model.
        block_s: seconds for each block.
        patch_s: additional seconds for each block and patch.
        patch_px: side of a patch in pixels.
        source: source of the seconds, for the summary.
    """

    blocks: dict[str, Count]
    block_s: Seconds = 0.0003
    patch_s: Seconds = 0.00001
    patch_px: Count = 256
    source: str = "assumed"

    def bind(self, run: Run) -> None:
        value = f"{self.block_s:g} a block, {self.patch_s:g} more for each patch of {self.patch_px} px"
        run.assume("seconds of a step that the feature cache itself takes", value, self.source)

    def seconds(self, active: Sequence[Request]) -> float:
        """Return the overhead in seconds of one step of ``active``."""
        patches = sum(request.width * request.height for request in active) / self.patch_px**2
        return max(self._blocks(request.model or "") for request in active) * (self.block_s + self.patch_s * patches)

    def _blocks(self, model: str) -> int:
        blocks = self.blocks.get(model)
        if blocks is None:
            raise ConfigError(
                f"feature_cache.overhead.blocks: no number of blocks for {model}, only for "
                f"{', '.join(self.blocks) or 'no model'}; add '+feature_cache.overhead.blocks.{model}=24'"
            )
        return blocks
