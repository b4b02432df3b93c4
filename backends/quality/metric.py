"""What a quality metric is: one number per image."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from backends.quality.errors import QualityError

Images = NDArray[np.uint8]
"""(n, height, width, 3), RGB in 0..255."""

Floats = NDArray[np.float64]


@runtime_checkable
class Metric(Protocol):
    """Scores images one by one, the better the higher.

    Attributes:
        name: as it is written in tables and files.
        full_reference: whether it compares with a reference image; otherwise it compares with the prompt.
    """

    @property
    def name(self) -> str: ...

    @property
    def full_reference(self) -> bool: ...

    def score(
        self, images: Images, *, references: Images | None = None, prompts: Sequence[str] | None = None
    ) -> Floats:
        """One score per image, (n,).

        Args:
            images: (n, h, w, 3).
            references: as many images of the same size; needed by a full-reference metric.
            prompts: n texts; needed by the others.

        Raises:
            QualityError: what is needed is not given, or does not fit.
        """


def checked(images: Images, what: str = "images") -> Images:
    """``images`` if they are a batch of RGB images.

    Raises:
        QualityError: another dtype or shape, or none at all.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not images.size:
        raise QualityError(
            f"{what}: found {images.dtype} of shape {images.shape}, expected uint8 (n, height, width, 3) with n of "
            "1 or more; hand over RGB images as decode gives them"
        )
    return images
