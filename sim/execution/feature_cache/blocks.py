"""Block caching: a block reuses its output of the step before, by patch or by whole batch (PatchedServe, section 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

import numpy as np
from annotated_types import MinLen

from mezzotint.backends.base import Cost
from mezzotint.settings.ranges import Count, Seconds, Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.workload import serves_videos
from mezzotint.sim.execution.feature_cache.step_costs import MixedStepCosts, PerStepCosts
from mezzotint.sim.protocols import Run, StepCosts

Step = Callable[[Sequence[Request]], Cost]


def reused_shares(similar: Sequence[float], max_in_a_row: int) -> list[float]:
    """Return the share reused at each step, if a similar block is reused, but at most ``max_in_a_row`` steps in a row.

    Similarity is taken as independent from step to step. The number of reuses in a row is then a Markov chain of
    ``max_in_a_row`` + 1 states. For a constant share s it settles at E / (1 + E), E = s + s^2 + ... + s^max_in_a_row.

    Args:
        similar: similar share at each step.
        max_in_a_row: PatchedServe's N less one ("cannot skip the same block for N consecutive steps").
    """
    in_a_row = [1.0] + [0.0] * max_in_a_row
    shares = []
    for share in similar:
        one_more = [share * before for before in in_a_row[:max_in_a_row]]
        shares.append(sum(one_more))
        in_a_row = [1.0 - shares[-1], *one_more]
    return shares


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


@dataclass(slots=True)
class BlockCaching:
    """A block whose input is similar to that of the step before reuses its output.

    Args:
        likeness: feature similarity, the shares of similar (patch, block) pairs.
        overhead: cost of comparing, masking and filling in.
        consecutive: maximum number of steps in a row in which a block is reused.
    """

    likeness: AssumedFeatureSimilarity
    overhead: Overhead
    consecutive: Count = 2

    def bind(self, run: Run) -> None:
        self.likeness.bind(run)
        self.overhead.bind(run)
        if serves_videos(run.workload, run.models):
            raise ConfigError(
                "feature_cache: found videos, and the similarity of blocks is that of images; choose "
                "feature_cache=none, or one that skips whole steps"
            )
        what = "steps in a row in which a block is reused, at most"
        run.assume(what, self.consecutive, "assumed; PatchedServe does not print N")


@dataclass(slots=True)
class PatchLevel(BlockCaching):
    """Each patch reuses the output of a block if its input is similar to that of the step before (PatchedServe, 5.1).

    A step of a batch takes (1 - s) of its full seconds plus the overhead. The share s of patch-blocks reused is
    weighted by the pixels of the requests. Arguments as of `BlockCaching`.
    """

    _sums: dict[tuple[str, int, int, int, int], list[float]] = field(init=False, default_factory=dict, repr=False)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        pixels = sum(request.width * request.height for request in active)
        rows = [
            (
                self._reused_sums(request),
                request.steps - request.skipped - request.steps_left,
                request.width * request.height / pixels,
            )
            for request in active
        ]
        return MixedStepCosts(step(active), self.overhead.seconds(active), rows, count)

    def _reused_sums(self, request: Request) -> list[float]:
        model = request.model or ""
        key = (model, request.width, request.height, request.steps, request.skipped)
        sums = self._sums.get(key)
        if sums is None:
            similar = self.likeness.patch_shares(*key[:4])[request.skipped :]
            sums = self._sums[key] = [0.0, *accumulate(reused_shares([0.0, *similar[1:]], self.consecutive))]
        return sums


@dataclass(slots=True)
class WholeImage(BlockCaching):
    """A block is reused only if all patches of all images of the batch are similar: block caching without patches.

    PatchedServe compares itself with it (8.2). Requests are similar independently of each other. Reuses in a row count
    from the last change of the batch, since a request that joins has nothing to reuse. Arguments as of `BlockCaching`.
    """

    _similar: dict[tuple[str, int, int, int], Sequence[float]] = field(init=False, default_factory=dict, repr=False)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        similar_in_all = [1.0] * count
        for request in active:
            key = (request.model or "", request.width, request.height, request.steps)
            similar = self._similar.get(key)
            if similar is None:
                similar = self._similar[key] = self.likeness.image_shares(*key)
            step_index = request.steps - request.steps_left
            similar_ahead = list(similar[step_index : step_index + count])
            if step_index == request.skipped:
                similar_ahead[0] = 0.0
            similar_in_all = [one * other for one, other in zip(similar_in_all, similar_ahead, strict=True)]
        shares = reused_shares(similar_in_all, self.consecutive)
        full, extra_s = step(active), self.overhead.seconds(active)
        power_w = None if full.joules is None or full.seconds <= 0.0 else full.joules / full.seconds
        steps_s = [full.seconds * (1.0 - share) + extra_s for share in shares]
        costs = [Cost(step_s, None if power_w is None else power_w * step_s) for step_s in steps_s]
        return PerStepCosts(costs, [shares] * len(active))
