"""The protocol of quality metrics: one score per image."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import BackendError

Images = NDArray[np.uint8]
"""(n, height, width, 3), RGB in 0..255."""

Floats = NDArray[np.float64]
Prompts = Sequence[str] | None


@runtime_checkable
class Metric(Protocol):
    """Scores each image; higher is better.

    A metric with ``full_reference`` compares with reference images, another with prompts. ``name`` is its name in
    tables and files.
    """

    @property
    def name(self) -> str: ...

    @property
    def full_reference(self) -> bool: ...

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        """Return one score per image, (n,).

        Args:
            images: (n, h, w, 3).
            references: as many images of the same size; needed by a full-reference metric.
            prompts: n texts; needed by the others.

        Raises:
            BackendError: references or prompts are missing, or do not fit the images.
        """


def check_images(images: Images, what: str = "images") -> Images:
    """Return ``images``. Raises BackendError if they are not a batch of RGB images."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not images.size:
        found = f"{images.dtype} of shape {images.shape}, expected uint8 (n, height, width, 3) with n of 1 or more"
        raise BackendError(f"{what}: found {found}; hand over RGB images as decode gives them")
    return images
