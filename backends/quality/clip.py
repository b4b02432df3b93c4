"""Scores of an image for its prompt from CLIP models: CLIPScore and PickScore."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from mezzotint.backends.base import BackendError
from mezzotint.backends.quality.metric import Floats, Images, Prompts, check_images
from mezzotint.networks.clip import VIT_L14, ClipModel

PICKSCORE = "yuvalkirstain/PickScore_v1"
PICKSCORE_TOKENIZER = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"

_BATCH = 32


@dataclass(slots=True)
class ClipWeights:
    """A CLIP model that scores images.

    Args:
        weights, tokenizer, device, allow_hub: see mezzotint.networks.clip.ClipModel.

    Raises (at first use):
        BackendError: the weights or the tokenizer are not there, are damaged, or are not a CLIP model.
    """

    weights: Annotated[str, Path] = VIT_L14
    tokenizer: str | None = None
    device: str = "cpu"
    allow_hub: bool = False
    model: ClipModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.model = ClipModel(self.weights, BackendError, self.tokenizer, self.allow_hub, self.device)

    def image_vectors(self, images: Images) -> Floats:
        """Embed images, (n, h, w, 3), as (n, d) rows of length 1."""
        check_images(images)
        channels = {"input_data_format": "channels_last"}
        return _units(images, lambda block: self.model.image_vectors(block, **channels))

    def text_vectors(self, prompts: Sequence[str]) -> Floats:
        """Embed prompts as (n, d) rows of length 1."""
        return _units(prompts, self.model.text_vectors)

    def cosines(self, images: Images, prompts: Prompts) -> Floats:
        """Return the cosine of each image and its prompt, (n,) in -1..1: MoDM's text-to-image similarity (3.2).

        Raises:
            BackendError: not one prompt per image.
        """
        if prompts is None or len(prompts) != len(images):
            said = f"{len(images)} images and {'no' if prompts is None else len(prompts)} prompts"
            raise BackendError(f"{said}; give one prompt per image as prompts=")
        return np.asarray((self.image_vectors(images) * self.text_vectors(prompts)).sum(axis=1), np.float64)


@dataclass(frozen=True, slots=True)
class ClipScore:
    """100 x the cosine of the CLIP vectors of an image and its prompt.

    In -100..100: 100 would mean parallel vectors, real images of their prompt score 25 to 35 with ViT-L/14, and 0
    or less means unrelated. Not clipped at 0, so that a mean is one.

    Source: Hessel et al. 2021, without their factor 2.5; MoDM, section 7.1 (Q is this with ViT-L/14).

    Args:
        clip: the model; ``openai/clip-vit-large-patch14`` in the papers.
    """

    clip: ClipWeights
    name: ClassVar[str] = "clipscore"
    full_reference: ClassVar[bool] = False

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        return 100.0 * self.clip.cosines(images, prompts)


@dataclass(frozen=True, slots=True)
class PickScore:
    """The preference score of a CLIP-H tuned on people's choices: its exp(logit_scale) x the cosine.

    Unbounded in principle; PickScore v1 has a scale of 100, so it is in -100..100 and images mostly score 18 to 24.
    Only differences between images of one prompt mean anything: one more point is e times the odds to be chosen.

    Source: Kirstain et al. 2023 (Pick-a-Pic), section 4.

    Args:
        clip: ``yuvalkirstain/PickScore_v1``, whose tokenizer is that of ``laion/CLIP-ViT-H-14-laion2B-s32B-b79K``.
    """

    clip: ClipWeights
    name: ClassVar[str] = "pickscore"
    full_reference: ClassVar[bool] = False

    def score(self, images: Images, references: Images | None = None, prompts: Prompts = None) -> Floats:
        return self.clip.model.gain * self.clip.cosines(images, prompts)


def _units(items: Sequence[str] | Images, embed: Callable[[Any], Any]) -> Floats:
    """Embed items in batches, as float64 rows of length 1."""
    blocks = [embed(items[start : start + _BATCH]) for start in range(0, len(items), _BATCH)]
    rows = np.concatenate([block.double().cpu().numpy() for block in blocks])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float64)
