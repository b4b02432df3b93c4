"""Scores of an image for its prompt, out of CLIP models: CLIPScore and PickScore.

The models are transformers' CLIPModel, run in float32. Images are prepared as CLIP's are (shorter side to the
model's size, bicubic; centre crop; CLIP's mean and deviation), prompts are cut at the model's length (77 tokens).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from backends.diffusers_.device.logs import quiet
from backends.quality.errors import QualityError
from backends.quality.metric import Floats, Images, checked

VIT_L14 = "openai/clip-vit-large-patch14"
PICKSCORE = "yuvalkirstain/PickScore_v1"
PICKSCORE_TOKENIZER = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"

_BATCH = 32


@dataclass(slots=True)
class ClipWeights:
    """A CLIP model and its tokenizer; read at first use and kept.

    Args:
        weights: a local folder as ``save_pretrained`` writes it (config, weights and tokenizer), or a hub id.
        tokenizer: a folder or hub id of its own, None for the weights' own.
        device: where to compute.
        allow_hub: whether a hub id may be fetched.

    Raises (at first use):
        QualityError: the weights or the tokenizer are not there, are damaged, or are not a CLIP model.
    """

    weights: Annotated[str, Path] = VIT_L14
    tokenizer: str | None = None
    device: str = "cpu"
    allow_hub: bool = False
    _loaded: tuple[Any, Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    def image_vectors(self, images: Images) -> Floats:
        """Embed images, (n, h, w, 3), as (n, d) rows of length 1."""
        import torch

        checked(images)
        model, _, prepare = self._load()
        rows = []
        with torch.no_grad():
            for start in range(0, len(images), _BATCH):
                block = list(images[start : start + _BATCH])
                pixels = prepare(images=block, return_tensors="pt", input_data_format="channels_last")["pixel_values"]
                pooled = model.vision_model(pixel_values=pixels.to(self.device)).pooler_output
                rows.append(_unit(model.visual_projection(pooled)))
        return np.concatenate(rows)

    def text_vectors(self, prompts: Sequence[str]) -> Floats:
        """Embed prompts as (n, d) rows of length 1."""
        import torch

        model, tokenizer, _ = self._load()
        length = model.config.text_config.max_position_embeddings
        rows = []
        with torch.no_grad():
            for start in range(0, len(prompts), _BATCH):
                block = list(prompts[start : start + _BATCH])
                tokens = tokenizer(block, padding=True, truncation=True, max_length=length, return_tensors="pt")
                pooled = model.text_model(
                    input_ids=tokens["input_ids"].to(self.device),
                    attention_mask=tokens["attention_mask"].to(self.device),
                ).pooler_output
                rows.append(_unit(model.text_projection(pooled)))
        return np.concatenate(rows)

    def cosines(self, images: Images, prompts: Sequence[str] | None) -> Floats:
        """Cosine of each image and its prompt, (n,) in -1..1: MoDM's text-to-image similarity (MoDM, 3.2).

        Raises:
            QualityError: not one prompt per image.
        """
        if prompts is None or len(prompts) != len(images):
            raise QualityError(
                f"{len(images)} images and {'no' if prompts is None else len(prompts)} prompts; give one prompt per "
                "image as prompts="
            )
        return np.asarray((self.image_vectors(images) * self.text_vectors(prompts)).sum(axis=1), np.float64)

    @property
    def gain(self) -> float:
        """What the model multiplies cosines by before its softmax: exp(logit_scale)."""
        return float(self._load()[0].logit_scale.detach().exp())

    def _load(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            import transformers

            model = self._model(transformers)
            tokenizer = self._read(transformers.AutoTokenizer, self.tokenizer or self.weights, "a CLIP tokenizer")
            # by name, so that images are prepared alike whether or not torchvision is installed
            processor = getattr(transformers, "CLIPImageProcessorPil", transformers.CLIPImageProcessor)
            side = model.config.vision_config.image_size
            prepare = processor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
            self._loaded = model.float().eval().to(self.device), tokenizer, prepare
        return self._loaded

    def _model(self, transformers: Any) -> Any:
        config = self._read(transformers.AutoConfig, self.weights, "a CLIP model")
        if config.model_type != "clip":
            raise QualityError(f"{self.weights}: holds a model of type {config.model_type!r}, expected a CLIP model")
        model, info = self._read(transformers.CLIPModel, self.weights, "a CLIP model", output_loading_info=True)
        # what a file lacks is otherwise filled with random numbers, and only a log line says so
        if info["missing_keys"]:
            raise QualityError(
                f"{self.weights}: lacks {len(info['missing_keys'])} of the model's tensors; download the folder anew"
            )
        return model

    def _read(self, kind: Any, where: str, what: str, **options: Any) -> Any:
        from safetensors import SafetensorError

        folder = Path(where).expanduser()
        local = folder.is_dir()
        if not local and not self.allow_hub:
            wanted = where if where in (VIT_L14, PICKSCORE, PICKSCORE_TOKENIZER) else f"{VIT_L14} or {PICKSCORE}"
            raise QualityError(
                f"{where}: {what} is needed and there is no such folder; download {wanted} (config.json, "
                "model.safetensors and the tokenizer's files) into one folder and name it (weights=; on the command "
                "line --clip or --pickscore), or allow the hub (allow_hub=True; --allow-hub)"
            )
        try:
            with quiet("transformers"):
                return kind.from_pretrained(str(folder) if local else where, local_files_only=local, **options)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as broken:
            reason = " ".join(str(broken).split())[:200]
            raise QualityError(
                f"{where}: cannot be read as {what} ({reason}); it must hold config.json, model.safetensors and the "
                "tokenizer's files, whole"
            ) from broken


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
    higher_is_better: ClassVar[bool] = True
    full_reference: ClassVar[bool] = False

    def score(
        self, images: Images, *, references: Images | None = None, prompts: Sequence[str] | None = None
    ) -> Floats:
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
    higher_is_better: ClassVar[bool] = True
    full_reference: ClassVar[bool] = False

    def score(
        self, images: Images, *, references: Images | None = None, prompts: Sequence[str] | None = None
    ) -> Floats:
        return self.clip.gain * self.clip.cosines(images, prompts)


def _unit(rows: Any) -> Floats:
    """(n, d) tensor -> float64 rows of length 1."""
    plain = np.asarray(rows.double().cpu().numpy(), np.float64)
    return np.asarray(plain / np.linalg.norm(plain, axis=1, keepdims=True), np.float64)
