"""Quality metrics of images: against the image of the full run, or against the prompt.

Needs the ``live`` extra. SSIM, MS-SSIM and PSNR need no weights; CLIPScore and PickScore read theirs from a folder.
"""

from mezzotint.backends.quality.clip import ClipScore, ClipWeights, PickScore
from mezzotint.backends.quality.metric import Images, Metric
from mezzotint.backends.quality.reference import MsSsim, Psnr, Ssim

__all__ = ["ClipScore", "ClipWeights", "Images", "Metric", "MsSsim", "PickScore", "Psnr", "Ssim"]
