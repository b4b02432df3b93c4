"""Images of different sizes through one pass of a UNet, cut into patches of one size (PatchedServe, section 4).

Exact but for the order of sums. Pixel-wise operators run unchanged. A convolution reads the border of each patch from
its neighbours (4.2.1). A GroupNorm takes the statistics of the whole image, and attention runs on whole images.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from diffusers.models.attention_processor import Attention
from torch import nn

from mezzotint.backends.base import BackendError

Forward = Callable[..., torch.Tensor]


class Grid(NamedTuple):
    """Images of one size, each cut into ``down`` x ``across`` patches."""

    images: int
    down: int
    across: int

    @property
    def patches(self) -> int:
        return self.images * self.down * self.across


@dataclass(frozen=True, slots=True)
class Layout:
    """A batch of patches, sorted by image size so that a reshape restores the images (PatchedServe, 4.1).

    Attributes:
        grids: the images of each size.
        image: patch -> its image in the batch, (patches,).
        share: image -> one over its number of patches, (images,).
    """

    grids: tuple[Grid, ...]
    image: torch.Tensor
    share: torch.Tensor

    def split(self, latents: Sequence[torch.Tensor], halo: int = 0) -> torch.Tensor:
        """Cut images (n, c, h, w) of each size into patches (p, c, side, side).

        Args:
            halo: pixels of the neighbours on every side, zeros beyond an image's edge; they enlarge the patches.
        """
        cut = []
        for grid, images in zip(self.grids, latents, strict=True):
            side = images.shape[2] // grid.down
            padded = F.pad(images, [halo] * 4) if halo else images
            windows = padded.unfold(2, side + 2 * halo, side).unfold(3, side + 2 * halo, side)
            cut.append(windows.permute(0, 2, 3, 1, 4, 5).flatten(0, 2))
        return torch.cat(cut)

    def join(self, patches: torch.Tensor) -> list[torch.Tensor]:
        """Invert ``split`` without a halo."""
        whole = []
        for grid, of_size in zip(self.grids, self.by_size(patches), strict=True):
            rows = of_size.unflatten(0, grid)
            whole.append(rows.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3))
        return whole

    def by_size(self, patches: torch.Tensor) -> Sequence[torch.Tensor]:
        parts: Sequence[torch.Tensor] = patches.split([grid.patches for grid in self.grids])
        return parts

    def mean_over_image(self, means: torch.Tensor) -> torch.Tensor:
        """Average the means of patches, (p, g), over their images; return a row per patch."""
        total = means.new_zeros((len(self.share), means.shape[1])).index_add_(0, self.image, means)
        return (total * self.share[:, None])[self.image]


def arrange(sizes: Sequence[tuple[int, int, int]], side: int, device: torch.device | None = None) -> Layout:
    """Return the layout of images (count, height, width) in latents, an entry per size, in patches of ``side``.

    Raises:
        BackendError: the side does not divide a size.
    """
    for _, height, width in sizes:
        if height % side or width % side:
            raise BackendError(f"patches of {side} latents do not divide an image of {width}x{height} latents")
    grids = tuple(Grid(images, height // side, width // side) for images, height, width in sizes)
    patches = torch.tensor([grid.down * grid.across for grid in grids for _ in range(grid.images)], device=device)
    return Layout(grids, torch.arange(len(patches), device=device).repeat_interleave(patches), 1 / patches)


def convolve(conv: nn.Conv2d, layout: Layout) -> Forward:
    """Return ``conv``, of 3x3, over whole images."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        if any(edge % conv.stride[0] for edge in x.shape[-2:]):
            said = f"patches are {x.shape[-1]} latents wide where the UNet halves them"
            raise BackendError(f"{said}; take patches whose side is a larger power of two")
        haloed = layout.split(layout.join(x), halo=1)
        return F.conv2d(haloed, conv.weight, conv.bias, conv.stride, 0, conv.dilation, conv.groups)

    return forward


def normalise(norm: nn.GroupNorm, layout: Layout) -> Forward:
    """Return ``norm`` with the mean and variance of whole images."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        grouped = x.float().unflatten(1, (norm.num_groups, -1)).flatten(2)
        centred = grouped - layout.mean_over_image(grouped.mean(2))[..., None]
        variance = layout.mean_over_image(centred.square().mean(2))[..., None]
        y = (centred * torch.rsqrt(variance + norm.eps)).view(x.shape)
        if norm.affine:
            y = y * norm.weight[:, None, None] + norm.bias[:, None, None]
        return y.to(x.dtype)

    return forward


def attend(attention: Forward, layout: Layout) -> Forward:
    """Return ``attention`` over whole images, a size at a time; encoder states have a row per image."""

    def forward(x: torch.Tensor, encoder_hidden_states: torch.Tensor | None = None, **more: Any) -> torch.Tensor:
        counts = [grid.images for grid in layout.grids]
        states = [None] * len(counts) if encoder_hidden_states is None else encoder_hidden_states.split(counts)
        made = []
        for images, patches, text in zip(counts, layout.by_size(x), states, strict=True):
            whole = patches.reshape(images, -1, x.shape[-1])
            made.append(attention(whole, encoder_hidden_states=text, **more).reshape(patches.shape))
        return torch.cat(made)

    return forward


@contextmanager
def read_patches(network: nn.Module, layout: Layout) -> Iterator[None]:
    """Make ``network`` read patches of ``layout`` instead of images within the context.

    Raises:
        BackendError: a convolution is neither 1x1 nor 3x3 with a border of one pixel.
    """
    replaced: list[nn.Module] = []
    try:
        for module in network.modules():
            forward: Forward
            if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
                if module.kernel_size != (3, 3) or module.padding != (1, 1) or module.dilation != (1, 1):
                    raise BackendError(f"{module}: patches have a border of one pixel; this convolution needs another")
                forward = convolve(module, layout)
            elif isinstance(module, nn.GroupNorm):
                forward = normalise(module, layout)
            elif isinstance(module, Attention):
                forward = attend(module.forward, layout)
            else:
                continue
            module.forward = forward
            replaced.append(module)
        yield
    finally:
        for module in replaced:
            del module.forward
