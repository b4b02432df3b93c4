"""Step times of batches of patches on the device at hand, and a linear fit.

The batches are random and of several sizes; PatchedServe trains its latency predictor on 300 of them (6.1.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from mezzotint.backends.diffusers_ import LiveModel, stages
from mezzotint.backends.patched import PatchTiming, Size, count_patches

PROMPT = "an engraving of a lighthouse above a rough sea at dusk"


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of patches: the sizes in each, and the median seconds of a step."""

    side: int
    sizes: list[tuple[Size, ...]]
    seconds: np.ndarray

    def fit(self) -> tuple[PatchTiming, float]:
        """Fit non-negative terms by least squares of the relative error.

        Returns:
            The terms, and the median relative error.
        """
        rows = np.array([(1, *count_patches(batch, self.side)) for batch in self.sizes])
        terms, _ = nnls(rows / self.seconds[:, None], np.ones(len(rows)))
        error = float(np.median(np.abs(rows @ terms / self.seconds - 1)))
        largest = max(map(len, self.sizes))
        said = f"fitted on {len(rows)} random batches of up to {largest} images, median error {error:.1%}"
        base_s, patch_s, size_s, halo_s = (float(term) for term in terms)
        timing = PatchTiming(
            side=self.side, base_s=base_s, patch_s=max(patch_s, 1e-12), size_s=size_s, halo_s=halo_s, source=said
        )
        return timing, error


def measure(
    model: LiveModel, sizes: Sequence[Size], side: int, max_batch: int, batches: int = 24, steps: int = 3, seed: int = 0
) -> Batches:
    """Time steps of random batches of 1 to ``max_batch`` images of ``sizes``, in patches of ``side`` pixels.

    Args:
        batches: number of batches; the first are each size alone.
        steps: timed steps of each batch, after an untimed one.

    Raises:
        BackendError: a family that steps no patches, or a side that does not divide a size.
    """
    rng = np.random.default_rng(seed)
    kinds = list(dict.fromkeys(sizes))
    drawn: list[tuple[Size, ...]] = [(kind,) for kind in kinds]
    while len(drawn) < max(batches, len(kinds)):
        count = int(rng.integers(1, max_batch + 1))
        drawn.append(tuple(sorted(kinds[at] for at in rng.integers(len(kinds), size=count))))
    seconds = []
    for batch in drawn:
        works = stages.in_flight(model, batch, steps + 1, PROMPT)
        took = [stages.run_patched_step(model, works, side) for _ in range(steps + 1)]
        seconds.append(float(np.median(took[1:])))
    return Batches(side, drawn, np.array(seconds))
