"""The denoise loop against the stock pipelines, and its laws: resume, batches, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.diffusers_.denoise import ensure_resumable  # noqa: E402
from mezzotint.backends.diffusers_.families.base import join  # noqa: E402

SOLVERS_WITH_STATE = [
    "DPMSolverMultistepScheduler",
    "UniPCMultistepScheduler",
    "PNDMScheduler",
    "LMSDiscreteScheduler",
    "HeunDiscreteScheduler",
    "DEISMultistepScheduler",
    "DPMSolverSinglestepScheduler",
    "IPNDMScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "DDPMScheduler",
    "LCMScheduler",
]
"""They keep history, or draw noise at every step."""

PROMPTS = ["a red cat on a mat", "Ein Schloß, 雪の夜"]


def test_full_run_equals_the_stock_pipeline(model: Any) -> None:
    steps = 6
    conditioning = model.encode(PROMPTS[:1])
    start = model.noise(64, 64, [3], steps)
    ours = model.denoise(conditioning, start, steps).latents

    arguments: dict[str, Any] = {"guidance_scale": conditioning.guidance, "output_type": "latent"}
    if model.architecture.text_tokens:
        arguments["max_sequence_length"] = model.architecture.text_tokens
    if model.spec.family == "sana":
        arguments |= {"complex_human_instruction": None, "use_resolution_binning": False}
    pipe = model.pipe
    pipe.set_progress_bar_config(disable=True)
    stock_start = start / getattr(model.pipe.scheduler, "init_noise_sigma", 1.0)
    if model.spec.family == "flux":
        stock_start = pipe._pack_latents(start, 1, start.shape[1], *start.shape[2:])
    elif model.spec.family in ("sd15", "sdxl"):
        pipe.scheduler.set_timesteps(steps)
        stock_start = start / pipe.scheduler.init_noise_sigma
    stock = pipe(PROMPTS[0], width=64, height=64, num_inference_steps=steps, latents=stock_start, **arguments)
    latents = stock.images
    if model.spec.family == "flux":
        latents = pipe._unpack_latents(latents, 64, 64, pipe.vae_scale_factor)
    torch.testing.assert_close(ours, latents, rtol=1e-4, atol=1e-4)


def test_resume_equals_the_full_run(model: Any) -> None:
    """At K in {2, 4, 10} of 20, a cut run gives the very same bits."""
    steps = 20
    conditioning = model.encode(PROMPTS[:1])
    full = model.denoise(conditioning, model.noise(64, 64, [1], steps), steps, capture=(2, 4, 10))
    assert len(full.step_s) == steps
    assert np.all(full.step_s > 0)
    for k in (2, 4, 10):
        rest = model.denoise(conditioning, full.captured[k], steps, first_step=k)
        assert len(rest.step_s) == steps - k
        assert torch.equal(rest.latents, full.latents)


def test_single_step_calls_equal_one_call(model: Any) -> None:
    """Interleaving runs step by step, as a step-level scheduler does, changes nothing."""
    steps = 4
    conditionings = [model.encode([prompt]) for prompt in PROMPTS]
    starts = [model.noise(64, 64, [seed], steps) for seed in (1, 2)]
    whole = [model.denoise(c, x, steps).latents for c, x in zip(conditionings, starts, strict=True)]
    states = list(starts)
    for step in range(steps):
        for each in (0, 1):
            states[each] = model.denoise(conditionings[each], states[each], steps, step, step + 1).latents
    assert all(torch.equal(a, b) for a, b in zip(states, whole, strict=True))


def test_batched_request_equals_the_request_alone(model: Any) -> None:
    steps, prompts, seeds = 8, [*PROMPTS, "dog"], [11, 12, 13]
    together = model.encode(prompts)
    batch = model.denoise(together, model.noise(64, 64, seeds, steps), steps, capture=(3,))
    single = [model.encode([prompt]) for prompt in prompts]
    for row, (prompt, seed) in enumerate(zip(single, seeds, strict=True)):
        alone = model.denoise(prompt, model.noise(64, 64, [seed], steps), steps, capture=(3,))
        torch.testing.assert_close(batch.captured[3][row], alone.captured[3][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(batch.latents[row], alone.latents[0], rtol=1e-4, atol=1e-4)
    regrouped = join([single[2], together.select([0])])
    mixed = model.denoise(regrouped, model.noise(64, 64, [13, 11], steps), steps).latents
    torch.testing.assert_close(mixed, batch.latents[[2, 0]], rtol=1e-4, atol=1e-4)


def test_prompt_seed_and_size_reach_the_image(model: Any) -> None:
    steps = 4
    noise = model.noise(64, 96, [5], steps)
    red = model.denoise(model.encode(["red"]), noise, steps).latents
    blue = model.denoise(model.encode(["blue"]), noise, steps).latents
    assert not torch.equal(red, blue)
    assert not torch.equal(noise, model.noise(64, 96, [6], steps))
    images, decode_s = model.decode(red)
    assert images.shape == (1, 96, 64, 3)
    assert images.dtype == np.uint8
    assert decode_s > 0


def test_global_random_state_is_unchanged(model: Any) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    steps = 2
    model.denoise(model.encode(["x"]), model.noise(64, 64, [9], steps), steps)
    assert torch.equal(torch.rand(3), expected)


def test_half_precision_stays_finite(model: Any) -> None:
    half = build(replace(model.spec, dtype="bfloat16"))
    networks = [each for each in half.pipe.components.values() if isinstance(each, torch.nn.Module)]
    dtypes = {weight.dtype for network in networks for weight in network.parameters()}
    assert dtypes == {torch.bfloat16}
    steps = 4
    done = half.denoise(half.encode(["x"]), half.noise(64, 64, [1], steps), steps, capture=(2,))
    assert torch.isfinite(done.latents.float()).all()
    again = half.denoise(half.encode(["x"]), done.captured[2], steps, 2)
    assert torch.equal(again.latents, done.latents)
    assert half.decode(done.latents)[0].std() > 0


def test_sdxl_decodes_in_float32_when_it_denoises_in_float16() -> None:
    """The autoencoder of SDXL overflows in float16."""
    model = build(ModelSpec("sdxl", scale="tiny", dtype="float16"))
    assert (model.denoiser.dtype, model.pipe.vae.dtype) == (torch.float16, torch.float32)
    done = model.denoise(model.encode(["x"]), model.noise(64, 64, [1], 2), 2)
    assert done.latents.dtype == torch.float16
    assert model.decode(done.latents)[0].std() > 0
    assert model.encode_images([np.zeros((64, 64, 3), np.uint8)], 64, 64)[0].dtype == torch.float16


@pytest.mark.parametrize(("first", "last"), [(-1, 4), (4, 4), (0, 5)])
def test_steps_out_of_order_are_refused(tiny: dict[str, Any], first: int, last: int) -> None:
    model = tiny["sdxl"]
    with pytest.raises(BackendError, match="cannot run steps"):
        model.denoise(model.encode(["x"]), model.noise(64, 64, [1], 4), 4, first, last)


def test_size_the_model_cannot_make_is_refused(model: Any) -> None:
    with pytest.raises(BackendError, match="multiples of"):
        model.noise(65, 64, [1], 4)


@pytest.mark.parametrize("name", SOLVERS_WITH_STATE)
def test_solver_with_history_or_noise_is_refused_with_an_alternative(name: str) -> None:
    instead = "FlowMatchEuler" if "FlowMatch" in name else "DDIMScheduler or EulerDiscreteScheduler"
    with pytest.raises(BackendError, match=rf"{name} keeps the outputs of earlier steps, or draws noise.*{instead}"):
        ensure_resumable(getattr(diffusers, name)())


def test_stochastic_flow_matching_is_refused() -> None:
    with pytest.raises(BackendError, match="draws noise"):
        ensure_resumable(diffusers.FlowMatchEulerDiscreteScheduler(stochastic_sampling=True))


def test_model_is_not_built_with_an_unsupported_solver() -> None:
    with pytest.raises(BackendError, match="UniPCMultistepScheduler keeps"):
        build(ModelSpec("sd15", scale="tiny", scheduler="UniPCMultistepScheduler"))
    with pytest.raises(BackendError, match="diffusers has no scheduler 'Magic'"):
        build(ModelSpec("sd15", scale="tiny", scheduler="Magic"))


@pytest.mark.parametrize("name", ["DDIMScheduler", "EulerDiscreteScheduler"])
@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
def test_resume_is_exact_for_every_solver_and_spacing(name: str, spacing: str) -> None:
    model = build(ModelSpec("sd15", scale="tiny", scheduler=name))
    model.pipe.scheduler = type(model.pipe.scheduler).from_config(model.pipe.scheduler.config, timestep_spacing=spacing)
    conditioning = model.encode(["x"])
    full = model.denoise(conditioning, model.noise(64, 64, [1], 7), 7, capture=(3,))
    assert torch.equal(model.denoise(conditioning, full.captured[3], 7, 3).latents, full.latents)
