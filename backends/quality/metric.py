"""What a quality metric is: one number per image."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from backends.base import BackendError

Images = NDArray[np.uint8]
"""(n, height, width, 3), RGB in 0..255."""

Floats = NDArray[np.float64]
Prompts = Sequence[str] | None


class QualityError(BackendError):
    """A metric cannot be had: the message names the images or the weights, and what to do."""


@runtime_checkable
class Metric(Protocol):
    """Scores images one by one, the better the higher: each with its reference where ``full_reference``, else with its
    prompt. Tables and files call it ``name``."""

    @property
    def name(self) -> str: ...

    @property
    def full_reference(self) -> bool: ...

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        """One score per image, (n,).

        Args:
            images: (n, h, w, 3).
            references: as many images of the same size; needed by a full-reference metric.
            prompts: n texts; needed by the others.

        Raises:
            QualityError: what is needed is not given, or does not fit.
        """


def checked(images: Images, what: str = "images") -> Images:
    """Return ``images``. Raises QualityError where they are no batch of RGB images."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not images.size:
        found = f"{images.dtype} of shape {images.shape}, expected uint8 (n, height, width, 3) with n of 1 or more"
        raise QualityError(f"{what}: found {found}; hand over RGB images as decode gives them")
    return images
