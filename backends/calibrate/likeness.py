"""Similarity of a block's input from step to step, by patch, measured on a live denoiser."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_ import LiveModel
from mezzotint.backends.likeness import SimilarityCurve

PROMPTS = (
    "an engraving of a lighthouse above a rough sea at dusk",
    "a red cat asleep on a windowsill, watercolour",
    "portrait of an old clockmaker, oil on canvas",
    "a glass city in the desert, wide angle, golden hour",
)


@dataclass(slots=True)
class _Watch:
    """Compares the input of each block with its input at the step before, by patch."""

    across: int
    down: int
    threshold: float
    before: dict[int, torch.Tensor] = field(default_factory=dict)
    now: list[torch.Tensor] = field(default_factory=list)

    def enter(self, block: int, module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        """Hook of a block; its input is (rows, c, h, w) in a UNet, (rows, tokens, c) in a transformer."""
        x: torch.Tensor = given["hidden_states"] if "hidden_states" in given else args[0]
        if x.ndim == 3:
            tall = round((x.shape[1] * self.down / self.across) ** 0.5)
            x = x.unflatten(1, (tall, -1)).permute(0, 3, 1, 2)
        x = x.detach().float()
        if block in self.before:
            squared = (x - self.before[block]).square().mean(1)
            cells = squared.unflatten(1, (self.down, -1)).unflatten(3, (self.across, -1)).mean((2, 4))
            self.now.append(cells.flatten(1) <= self.threshold)
        self.before[block] = x

    def step(self) -> tuple[float, float]:
        """Return the shares of (patch, block) within the threshold, and of blocks with a whole image within it."""
        if not self.now:
            return 0.0, 0.0
        alike = torch.stack(self.now)  # (blocks, rows, patches); rows are images, doubled under guidance
        self.now = []
        return float(alike.float().mean()), float(alike.all(2).float().mean())


def blocks(model: LiveModel) -> list[Any]:
    """Return the denoiser's blocks that can be skipped: of a UNet down, middle and up blocks, of a transformer all.

    PatchedServe counts seven of SDXL.

    Raises:
        BackendError: the family has no such blocks.
    """
    network = model.denoiser
    if hasattr(network, "down_blocks"):
        return [*network.down_blocks, network.mid_block, *network.up_blocks]
    if hasattr(network, "transformer_blocks") and not hasattr(network, "single_transformer_blocks"):
        return list(network.transformer_blocks)
    raise BackendError(f"{model.spec.family}: which blocks can be left out is not known; take sd15, sdxl or sd3")


def measure(
    model: LiveModel, name: str, width: int, height: int, patch_px: int, threshold: float, steps: int, images: int
) -> SimilarityCurve:
    """Run ``images`` in full, each from its own seed, and compare every block at every step.

    Nothing is reused on the way, so errors do not add up (as in PatchedServe's Figure 4, not its Figure 15). The
    threshold is of the mean squared difference between what enters a block at a step and at the one before.

    Raises BackendError for patches that do not divide the size, or that are smaller than a cell of a block.
    """
    found = blocks(model)
    coarsest = model.pipe.vae_scale_factor * 2 ** (len(getattr(model.denoiser, "down_blocks", [0])) - 1)
    coarsest *= model.denoiser.config.get("patch_size") or 1
    if width % patch_px or height % patch_px or patch_px % coarsest:
        cell = f"{coarsest} px, a cell of {name}'s coarsest block"
        raise BackendError(f"patches of {patch_px} px: they have to divide {width}x{height} and be multiples of {cell}")
    total = np.zeros((steps, 2))
    for seed in range(images):
        watch = _Watch(width // patch_px, height // patch_px, threshold)
        steps_seen: list[tuple[float, float]] = []
        with ExitStack() as hooks:
            for index, block in enumerate(found):
                hook = block.register_forward_pre_hook(partial(watch.enter, index), with_kwargs=True)
                hooks.callback(hook.remove)
            prompts = model.encode([PROMPTS[seed % len(PROMPTS)]])
            noise = model.noise(width, height, [seed], steps)
            model.denoise(prompts, noise, steps, on_step=lambda _, __: steps_seen.append(watch.step()))  # noqa: B023
        total += np.array(steps_seen) / images
    patch_share, image_share = total.clip(0, 1).round(6).T.tolist()
    return SimilarityCurve(
        model=name,
        width=width,
        height=height,
        patch_px=patch_px,
        blocks=len(found),
        images=images,
        patch_share=patch_share,
        image_share=image_share,
    )
