"""What a step of a batch of patches takes on the device at hand: random batches of several sizes, and a line through
them (PatchedServe trains its predictor of step times on 300 such batches, 6.1.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from backends.base import Work
from backends.diffusers_ import LiveModel, stages
from backends.patched import PatchTiming, Size, counted

PROMPT = "an engraving of a lighthouse above a rough sea at dusk"


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches that were stepped: the sizes in each, and the median seconds of a step of it."""

    side: int
    sizes: list[tuple[Size, ...]]
    seconds: np.ndarray

    def fit(self) -> tuple[PatchTiming, float]:
        """The line, none of whose terms is negative, with the least squares of relative errors; and the median of what
        it is off by, relative."""
        rows = np.array([(1, *counted(batch, self.side)) for batch in self.sizes])
        terms, _ = nnls(rows / self.seconds[:, None], np.ones(len(rows)))
        error = float(np.median(np.abs(rows @ terms / self.seconds - 1)))
        most = max(map(len, self.sizes))
        said = f"fitted on {len(rows)} random batches of up to {most} images, median error {error:.1%}"
        base_s, patch_s, size_s, halo_s = (float(term) for term in terms)
        timing = PatchTiming(
            side=self.side, base_s=base_s, patch_s=max(patch_s, 1e-12), size_s=size_s, halo_s=halo_s, source=said
        )
        return timing, error


def measure(
    model: LiveModel, sizes: Sequence[Size], side: int, most: int, batches: int = 24, steps: int = 3, seed: int = 0
) -> Batches:
    """Step random batches of 1 to ``most`` images of ``sizes``, cut into patches of ``side`` pixels.

    Args:
        batches: how many; each size alone is the first of them.
        steps: timed ones of each; one before them is not.

    Raises:
        BackendError: a family that steps no patches, or a side that does not divide a size.
    """
    rng = np.random.default_rng(seed)
    kinds = list(dict.fromkeys(sizes))
    drawn: list[tuple[Size, ...]] = [(kind,) for kind in kinds]
    while len(drawn) < max(batches, len(kinds)):
        count = int(rng.integers(1, most + 1))
        drawn.append(tuple(sorted(kinds[at] for at in rng.integers(len(kinds), size=count))))
    conditioning = model.encode([PROMPT])
    seconds = []
    for batch in drawn:
        works = [Work("", width, height, steps + 1) for width, height in batch]
        for row, work in enumerate(works):
            noise = model.noise(work.width, work.height, [row], steps + 1)
            work.state = stages.InFlight(conditioning, noise)
        took = [stages.patched(model, works, side) for _ in range(steps + 1)]
        seconds.append(float(np.median(took[1:])))
    return Batches(side, drawn, np.array(seconds))
