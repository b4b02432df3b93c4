"""Models by role, such as large and small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mezzotint.sim.core.errors import ConfigError

PIXELS = 8
"""Image pixels per latent pixel on a side: the VAE of every latent diffusion model shrinks by 8 or more."""

MAX_FRAMES = 100_000
"""Most frames of a video: an hour of film."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model in a role.

    Args:
        name: its name in the profiles.
        steps: denoising steps of a request in full.
        width, height: size of its images in pixels.
        frames: frames of its videos; 1 is an image.
        guidance: which requests evaluate the denoiser twice a step, with and without the prompt (true classifier-free
            guidance, CFG). ``scale``: those with a guidance scale above 1 (Stable Diffusion, SANA, Wan).
            ``negative-prompt``: those with a negative prompt and no scale of 1 or less (Qwen-Image). ``distilled``:
            none, since the scale is an input of the network (FLUX).
        architecture: name of the model whose profile it costs as, of a fine-tune with weights of its own; None is its
            own name.
    """

    name: str
    steps: int
    width: int
    height: int
    frames: int = 1
    guidance: Literal["scale", "negative-prompt", "distilled"] = "scale"
    architecture: str | None = None

    def __post_init__(self) -> None:
        sides = (self.width, self.height)
        if not 0 < self.frames <= MAX_FRAMES:
            raise ConfigError(
                f"models: {self.name}: expected 1 to {MAX_FRAMES:,} frames, found {self.frames}; 1 is an image"
            )
        if not (0 < self.steps <= 10_000 and all(0 < side <= 65_536 and side % PIXELS == 0 for side in sides)):
            raise ConfigError(
                f"models: {self.name}: expected 1 to 10,000 steps, and sides of {PIXELS} to 65,536 pixels in multiples "
                f"of {PIXELS}, found {self}"
            )


def in_role(models: Mapping[str, Model], role: str) -> Model:
    """Return the model in ``role``. Raises ConfigError if there is none."""
    if role not in models:
        raise ConfigError(
            f"models: the system needs a model in role {role!r}, found only {', '.join(models)}; choose another models="
        )
    return models[role]


def reference(models: Mapping[str, Model]) -> Model:
    """Return the reference model of latency limits and savings: that of the first role, the largest."""
    return next(iter(models.values()))
