"""CLIPScore and PickScore are transformers' own logits, and missing weights are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.quality import ClipScore, ClipWeights, PickScore  # noqa: E402
from tests.backends.quality.lab import noisy, pictures  # noqa: E402

PROMPTS = ["a red cat", "a lighthouse at dusk, oil on canvas " * 6, "x"]


def test_clip_scores_equal_the_model_logits(clip_folder: Path) -> None:
    """logits_per_image of CLIPModel is exp(logit_scale) x cosine: PickScore; 100 x cosine is CLIPScore."""
    images = pictures(3, 48)
    model = transformers.CLIPModel.from_pretrained(clip_folder)
    tokenizer = transformers.CLIPTokenizer.from_pretrained(clip_folder)
    prepare = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, resample=3
    )
    with torch.no_grad():
        logits = model(
            **tokenizer(PROMPTS, padding=True, truncation=True, max_length=77, return_tensors="pt"),
            pixel_values=prepare(list(images), return_tensors="pt")["pixel_values"],
        ).logits_per_image.diagonal()
    clip = ClipWeights(str(clip_folder))
    np.testing.assert_allclose(PickScore(clip).score(images, prompts=PROMPTS), logits, rtol=1e-4, atol=1e-4)
    scale = float(model.logit_scale.detach().exp())
    np.testing.assert_allclose(
        ClipScore(clip).score(images, prompts=PROMPTS), 100 * logits / scale, rtol=1e-4, atol=1e-4
    )


def test_clip_score_does_not_depend_on_its_batch(clip_folder: Path) -> None:
    """The padding of a short prompt beside a long one changes nothing."""
    clip, images = ClipScore(ClipWeights(str(clip_folder))), pictures(3, 40)
    alone = [clip.score(images[i : i + 1], prompts=PROMPTS[i : i + 1])[0] for i in range(3)]
    np.testing.assert_allclose(clip.score(images, prompts=PROMPTS), alone, atol=1e-4)


def test_image_vectors_are_unit_and_similar_images_are_close(clip_folder: Path) -> None:
    clip, images = ClipWeights(str(clip_folder)), pictures(4, 40)
    vectors = clip.image_vectors(images)
    np.testing.assert_allclose((vectors**2).sum(axis=1), 1, rtol=1e-12)
    near = (vectors * clip.image_vectors(noisy(images, 2))).sum(axis=1)
    far = (vectors * clip.image_vectors(noisy(images, 80))).sum(axis=1)
    assert (far < near).all()


def test_missing_clip_weights_are_named(tmp_path: Path, clip_folder: Path) -> None:
    image = pictures(1, 32)
    with pytest.raises(match=r"openai/clip-vit-large-patch14.*--clip.*--allow-hub"):
        ClipScore(ClipWeights()).score(image, prompts=["a"])
    with pytest.raises(BackendError, match=r"yuvalkirstain/PickScore_v1"):
        PickScore(ClipWeights(str(tmp_path / "none"))).score(image, prompts=["a"])
    with pytest.raises(match=r"found no config\.json"):
        ClipScore(ClipWeights(str(tmp_path))).score(image, prompts=["a"])
    with pytest.raises(match=r"one prompt per image"):
        ClipScore(ClipWeights(str(clip_folder))).score(image)
    shutil.copytree(clip_folder, tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"half")
    for metric in (ClipScore, PickScore):
        with pytest.raises(match=r"cut.*cannot be read as a CLIP model"):
            metric(ClipWeights(str(tmp_path / "cut"))).score(image, prompts=["a"])
