"""Feature similarity: the share of blocks whose input is close to that of the step before, so that output is reused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import MinLen

from mezzotint.settings.ranges import Count, Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.protocols import Run


@dataclass(slots=True)
class AssumedFeatureSimilarity:
    """An assumed similarity, by model and side of a square image, equal at every step but the first.

    It is interpolated linearly in pixels; outside the given sides it is that of the nearest. An image of n patches
    counts as n ** ``independence`` independent ones.

    Args:
        shares: model -> side in pixels -> share of (patch, block) pairs that are similar to the step before.
        independence: 0 if the patches of an image are similar all or none; 1 if each is independent.
        patch_px: side of a patch in pixels.
        source: source of the shares, for the summary.
    """

    shares: dict[str, Annotated[dict[Count, Share], MinLen(1)]]
    independence: Share = 0.35
    patch_px: int = 256
    source: str = "assumed"

    def bind(self, run: Run) -> None:
        for role in run.models:
            name = run.models[role].name
            if name in self.shares:
                by_side = ", ".join(f"{side}: {share:g}" for side, share in sorted(self.shares[name].items()))
                key = f"share of patch-blocks of {name} like those of the step before, by side"
                run.assume(key, by_side, self.source)
        run.assume("how independently the patches of an image are alike", self.independence, self.source)

    def patch_shares(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        """Return the similar share of (patch, block) pairs at each of ``steps`` steps; 0 at the first."""
        share = self._interpolate(model, width * height)
        return [0.0] + [share] * (steps - 1)

    def image_shares(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        """Return, for each step, the share of blocks for which all patches of an image are similar; 0 at the first."""
        count = max(width * height / self.patch_px**2, 1.0)
        share = self._interpolate(model, width * height) ** (count**self.independence)
        return [0.0] + [share] * (steps - 1)

    def _interpolate(self, model: str, pixels: int) -> float:
        if model not in self.shares:
            raise ConfigError(
                f"feature_cache.likeness.shares: none for {model} (found {', '.join(self.shares) or 'none'}); add "
                f"'+feature_cache.likeness.shares.{model}={{1024: 0.5}}', or choose another feature_cache="
            )
        by_side = sorted(self.shares[model].items())
        return float(np.interp(pixels, [side**2 for side, _ in by_side], [share for _, share in by_side]))
