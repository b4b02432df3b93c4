"""Full-reference metrics: closeness of an image to the one of the full run.

All compare uint8 images over 0..255, per channel. SSIM and MS-SSIM are torchmetrics', good to about 1e-5 on ``device``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mezzotint.backends.base import BackendError
from mezzotint.backends.quality.metric import Floats, Images, Prompts, check_images

PSNR_CAP_DB = 100.0
"""Upper bound of PSNR and score of identical images: one level of difference in one of 154,000 values."""

_KERNEL = 11  # the Gaussian window of SSIM: sigma 1.5, cut at 3.5 sigma
_SCALES = 5
_RANGE = 255.0


MIN_SIDE = _KERNEL * 2 ** (_SCALES - 1)
"""Pixels that the shorter side of an image needs for the halvings of MS-SSIM to hold a window."""


@dataclass(frozen=True, slots=True)
class Ssim:
    """Structural similarity: luminance, contrast and structure in Gaussian windows of 11 pixels.

    Scores are in -1..1; 1 means identical, 0 unrelated. Symmetric. Sides of 11 pixels or more.

    Source: Wang, Bovik, Sheikh and Simoncelli 2004, with their K1 = 0.01, K2 = 0.03 and sigma = 1.5.
    """

    device: str = "cpu"
    name: ClassVar[str] = "ssim"
    full_reference: ClassVar[bool] = True

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        references = _fitting(images, references, self.name, _KERNEL, "SSIM's window")
        from torchmetrics.functional.image import structural_similarity_index_measure as measure

        def inside(image: Any, reference: Any) -> Any:
            # torchmetrics averages over mirrored borders too; the definition has only windows that lie inside
            options = {"data_range": _RANGE, "reduction": "none", "return_full_image": True}
            border = _KERNEL // 2
            return measure(image, reference, **options)[1][..., border:-border, border:-border].mean()

        return _each(inside, images, references, self.device)


@dataclass(frozen=True, slots=True)
class MsSsim:
    """Multi-scale structural similarity over five halvings.

    Scores are in 0..1; 1 means identical. Negative terms of a scale count as 0, borders are mirrored. Symmetric. Sides
    of 176 pixels (``MIN_SIDE``) or more: the number of scales is not adapted to small images, as scores over
    other scales cannot be compared.

    Source: Wang, Simoncelli and Bovik 2003, with their five weights.
    """

    device: str = "cpu"
    name: ClassVar[str] = "ms-ssim"
    full_reference: ClassVar[bool] = True

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        why = f"MS-SSIM's {_SCALES} scales; SSIM takes smaller ones"
        references = _fitting(images, references, self.name, MIN_SIDE, why)
        from torchmetrics.functional.image import multiscale_structural_similarity_index_measure as measure

        options = {"data_range": _RANGE, "kernel_size": _KERNEL, "reduction": "none", "normalize": "relu"}
        return _each(lambda image, reference: measure(image, reference, **options), images, references, self.device)


@dataclass(frozen=True, slots=True)
class Psnr:
    """Peak signal-to-noise ratio, 10 log10(255^2 / mean squared error), in dB: 0..``PSNR_CAP_DB``.

    Identical images have no error and would score infinity; they score the cap, and nothing scores above it. Symmetric.
    """

    name: ClassVar[str] = "psnr"
    full_reference: ClassVar[bool] = True

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        references = _fitting(images, references, self.name, 1, "PSNR")
        error = np.square(images.astype(np.float64) - references).mean(axis=(1, 2, 3))
        floor = _RANGE**2 / 10 ** (PSNR_CAP_DB / 10)
        return np.asarray(10 * np.log10(_RANGE**2 / np.maximum(error, floor)), np.float64)


def _fitting(images: Images, references: Images | None, name: str, min_side: int, why: str) -> Images:
    """Return ``references``. Raises BackendError if there are none, or they do not match ``images``."""
    if references is None:
        raise BackendError(f"{name} compares with reference images and none were given; hand over references=")
    check_images(images)
    check_images(references, "references")
    if images.shape != references.shape:
        said = f"images of shape {images.shape} against references of {references.shape}"
        raise BackendError(f"{said}; make both at one size")
    height, width = images.shape[1:3]
    if min(height, width) < min_side:
        raise BackendError(f"images of {width}x{height} pixels: too small, the smallest side is {min_side} for {why}")
    return references


def _each(measure: Callable[[Any, Any], Any], images: Images, references: Images, device: str) -> Floats:
    """Apply ``measure`` to (1, 3, h, w) tensors one by one: a batch in float64 would fill a GPU."""
    import torch

    # float64 is twenty times slower on a CPU; on a GPU float32 may be TF32, in which the variances of SSIM drown
    dtype = torch.float32 if torch.device(device).type == "cpu" else torch.float64

    def tensor(image: Any) -> Any:
        # copied, since decoded images may be views that torch would warn about
        return torch.from_numpy(image.transpose(2, 0, 1)[None].copy()).to(device=device, dtype=dtype)

    with torch.no_grad():
        return np.array([float(measure(tensor(a), tensor(b))) for a, b in zip(images, references, strict=True)])
