"""How good an image is: against the image that the full run would have made, or against its prompt.

Needs the ``live`` extra. SSIM, MS-SSIM and PSNR need no weights; CLIPScore and PickScore read theirs from a
local folder, and say which where there is none.
"""

from backends.quality.clip import ClipScore, ClipWeights, PickScore
from backends.quality.errors import QualityError
from backends.quality.metric import Floats, Images, Metric
from backends.quality.reference import (
    PSNR_CAP_DB,
    MsSsim,
    Psnr,
    Ssim,
    least_side,
    ms_ssim,
    psnr,
    ssim,
)

__all__ = [
    "PSNR_CAP_DB",
    "ClipScore",
    "ClipWeights",
    "Floats",
    "Images",
    "Metric",
    "MsSsim",
    "PickScore",
    "Psnr",
    "QualityError",
    "Ssim",
    "least_side",
    "ms_ssim",
    "psnr",
    "ssim",
]
