"""How often what enters a block is like what entered it a step before, so that its output may be reused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from backends.likeness import SimilarityTable
from backends.likeness import read
from conf.ranges import Count, Share
from sim.core.errors import ConfigError
from sim.protocols import Run


@dataclass(slots=True)
class Assumed:
    """The same at every step but the first: what a file says, by model and by side of a square image.

    Between the sides that are given it is linear in pixels, outside them that of the nearest. An image of n patches
    counts as n ** ``independence`` that are alike independently.

    Args:
        shares: model -> side in pixels -> share of (patch, block) that are alike.
        independence: 0: the patches of an image are alike all or none; 1: each on its own.
        patch_px: side of a patch.
        source: where the shares are from, for the summary.
    """

    shares: dict[str, Annotated[dict[Count, Share], MinLen(1)]]
    independence: Share = 0.35
    patch_px: int = 256
    source: str = "assumed"

    def bind(self, run: Run) -> None:
        for role in run.models:
            name = run.models[role].name
            if name in self.shares:
                said = ", ".join(f"{side}: {share:g}" for side, share in sorted(self.shares[name].items()))
                run.assume(f"share of patch-blocks of {name} like those of the step before, by side", said, self.source)
        run.assume("how independently the patches of an image are alike", self.independence, self.source)

    def patches(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        """For each of ``steps`` the share of (patch, block) that are alike; 0 at the first."""
        share = self._at(model, width * height)
        return [0.0] + [share] * (steps - 1)

    def images(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        """The share of blocks for which all patches of an image are alike."""
        count = max(width * height / self.patch_px**2, 1.0)
        share = self._at(model, width * height) ** (count**self.independence)
        return [0.0] + [share] * (steps - 1)

    def _at(self, model: str, pixels: int) -> float:
        if model not in self.shares:
            raise ConfigError(
                f"feature_cache.likeness.shares: none for {model} (there are {', '.join(self.shares) or 'none'}); add "
                f"'+feature_cache.likeness.shares.{model}={{1024: 0.5}}', or choose another feature_cache="
            )
        by_side = sorted(self.shares[model].items())
        return float(np.interp(pixels, [side**2 for side, _ in by_side], [share for _, share in by_side]))


@dataclass(slots=True)
class Measured:
    """What `mezzotint calibrate likeness` wrote: by model, size and step, at the threshold that it was measured with.

    A schedule of another length takes the measured step that lies at the same share of its way; a size between
    measured ones is interpolated in pixels, one outside them takes the nearest.

    Args:
        path: the file.
        names: model of this run -> model in the file, where they are not called the same.
    """

    path: str
    names: dict[str, str] = field(default_factory=dict)
    _table: SimilarityTable = field(init=False, repr=False)

    def open(self) -> SimilarityTable:
        """The table in the file."""
        try:
            self._table = read(Path(self.path))
        except ValueError as error:
            raise ConfigError(f"feature_cache.likeness.path: {error}") from None
        return self._table

    def bind(self, run: Run) -> None:
        self.open()
        run.assume("share of patch-blocks like those of the step before", self.path, self._table.measured_on)

    def patches(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        return self._at(model, width * height, steps, "patch_share")

    def images(self, model: str, width: int, height: int, steps: int) -> Sequence[float]:
        return self._at(model, width * height, steps, "image_share")

    def _at(self, model: str, pixels: int, steps: int, column: str) -> list[float]:
        name = self.names.get(model, model)
        curves: Mapping[int, Any] = self._table.curves(name, column)
        if not curves:
            raise ConfigError(
                f"{self.path}: nothing was measured of {name} (of {', '.join(self._table.models)}); name the model to "
                f"take instead with '+feature_cache.likeness.names.{model}=NAME', or measure it"
            )
        known = sorted(curves)
        rows = [np.asarray(curves[size]) for size in known]
        # Step 0 has none before it; the others are laid over each other by their share of the way.
        at = [
            row[1 + np.minimum(np.arange(steps - 1) * (len(row) - 1) // max(steps - 1, 1), len(row) - 2)]
            for row in rows
        ]
        return [0.0, *(float(np.interp(pixels, known, shares)) for shares in np.array(at).T)]
