"""A linear fit of the seconds of measured batches of patches."""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import nnls

from mezzotint.backends.patched import PatchTiming, Size, count_patches


def fit(side: int, seconds: Mapping[tuple[Size, ...], float]) -> PatchTiming:
    """Fit non-negative terms to batches of patches of ``side`` pixels, by least squares of the relative error.

    Args:
        seconds: the sizes of a batch's images -> seconds of its step.
    """
    took = np.array(list(seconds.values()))
    rows = np.array([(1, *count_patches(mix, side)) for mix in seconds])
    terms, _ = nnls(rows / took[:, None], np.ones(len(rows)))
    error = float(np.median(np.abs(rows @ terms / took - 1)))
    said = f"fitted on {len(rows)} batches of up to {max(map(len, seconds))} images, median error {error:.1%}"
    base_s, patch_s, size_s, halo_s = (float(f"{term:.6g}") for term in terms)
    return PatchTiming(side=side, base_s=base_s, patch_s=max(patch_s, 1e-12), size_s=size_s, halo_s=halo_s, source=said)
