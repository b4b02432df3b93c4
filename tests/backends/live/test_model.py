"""A finished image of one family is refined by another from step K (MoDM), in exactly T - K steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")


PAIRS = [
    ("sd3", "sana"),
    ("sana", "sdxl"),
    ("flux", "sd15"),
    ("sdxl", "sd3"),
    ("sd15", "flux"),
    ("sana", "sana"),
    ("sd3", "sdxl"),
]
STEPS = 20


@pytest.fixture(scope="module")
def cached(tiny: dict[str, Any]) -> dict[str, np.ndarray]:
    """One finished image per family, 64 x 64."""
    images = {}
    for family, model in tiny.items():
        done = model.denoise(model.encode(["a lighthouse"]), model.noise(64, 64, [2], 4), 4)
        images[family] = model.decode(done.latents)[0][0]
    return images


@pytest.mark.parametrize(("maker", "refiner"), PAIRS)
def test_family_refines_the_image_of_another(
    tiny: dict[str, Any], cached: dict[str, np.ndarray], maker: str, refiner: str
) -> None:
    model, k = tiny[refiner], 12
    conditioning = model.encode(["a lighthouse at dusk"])
    refined = model.refine(conditioning, [cached[maker]], 64, 64, [9], k, STEPS)
    assert len(refined.step_s) == STEPS - k
    image = model.decode(refined.latents)[0]
    assert image.shape == (1, 64, 64, 3)
    again = model.refine(conditioning, [cached[maker]], 64, 64, [9], k, STEPS)
    assert torch.equal(refined.latents, again.latents)
    other = model.refine(conditioning, [255 - cached[maker]], 64, 64, [9], k, STEPS)
    assert not torch.equal(refined.latents, other.latents)


def test_skipping_more_steps_stays_closer_to_the_cached_image(model: Any, cached: Any) -> None:
    """Noise falls as K grows: the state at K is the clean latent plus noise at step K's level."""
    clean = model.encode_images([cached["sd3"]], 64, 64)[0]
    distances = [(model.noise_to_step(clean, k, STEPS, [4]) - clean).norm().item() for k in (0, 5, 10, 15, 19)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0] / 4


def test_noise_at_step_zero_equals_a_full_run(model: Any) -> None:
    """At K = 0 the state has the noise level that a full run starts from, for any image."""
    clean = torch.zeros(1, *model.latent_shape(64, 64))
    entered = model.noise_to_step(clean, 0, STEPS, [4])
    torch.testing.assert_close(entered, model.noise(64, 64, [4], STEPS), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("family", ["sd15", "sdxl", "sd3", "flux"])
def test_refinement_equals_the_stock_img2img_pipeline(tiny: dict[str, Any], cached: Any, family: str) -> None:
    """diffusers' img2img at strength (T - K) / T is the oracle where a family has one (SANA has none)."""
    model, k = tiny[family], 15
    stock = {
        "sd15": "StableDiffusionImg2ImgPipeline",
        "sdxl": "StableDiffusionXLImg2ImgPipeline",
        "sd3": "StableDiffusion3Img2ImgPipeline",
        "flux": "FluxImg2ImgPipeline",
    }[family]
    pipe = getattr(diffusers, stock)(**model.pipe.components)
    pipe.set_progress_bar_config(disable=True)
    conditioning = model.encode(["a barn"])
    clean = model.encode_images([cached["sana"]], 64, 64)[0]
    arguments = {"max_sequence_length": 24} if model.architecture.text_tokens else {}
    theirs = pipe(
        "a barn",
        image=clean,  # given latents, the stock pipelines skip the autoencoder's random sample
        strength=(STEPS - k) / STEPS,
        num_inference_steps=STEPS,
        guidance_scale=conditioning.guidance,
        generator=torch.Generator().manual_seed(4),
        output_type="latent",
        **({"height": 64, "width": 64} if family in ("sd3", "flux") else {}),
        **arguments,
    ).images
    if family == "flux":
        theirs = pipe._unpack_latents(theirs, 64, 64, pipe.vae_scale_factor)
    ours = model.denoise(conditioning, model.noise_to_step(clean, k, STEPS, [4]), STEPS, k).latents
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_cached_image_of_another_size_is_resized(tiny: dict[str, Any], cached: Any) -> None:
    model = tiny["sana"]
    refined = model.refine(model.encode(["x"]), [cached["sd15"]], 96, 128, [1], 10, STEPS)
    assert model.decode(refined.latents)[0].shape == (1, 128, 96, 3)
