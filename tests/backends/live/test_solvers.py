"""Only solvers whose whole state is the latent are run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.diffusers_.denoise import ensure_resumable  # noqa: E402

HISTORY = [
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
]
NOISY = ["EulerAncestralDiscreteScheduler", "DDPMScheduler", "LCMScheduler"]


@pytest.mark.parametrize("name", [*HISTORY, *NOISY])
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
