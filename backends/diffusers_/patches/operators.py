"""The operators of a UNet on a batch of patches, exact but for the order of sums.

Pixel-wise operators run unchanged. A convolution reads the border of each patch from its neighbours (PatchedServe,
4.2.1), a GroupNorm takes the statistics of the whole image, and attention runs on whole images, a size at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from diffusers.models.attention_processor import Attention
from torch import nn

from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.patches.layout import Layout

Forward = Callable[..., torch.Tensor]


def with_halo(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Pad patches (p, c, h, w) with a pixel of the neighbours on every side, zeros beyond an image's edge."""
    none = x.new_zeros((1, *x.shape[1:]))
    edges = torch.cat([x[:, :, -1:], none[:, :, -1:]]), torch.cat([x[:, :, :1], none[:, :, :1]])
    tall = torch.cat([edges[0][layout.up], x, edges[1][layout.down]], dim=2)
    none = tall.new_zeros((1, *tall.shape[1:]))  # the columns of stitched rows bring the corners with them
    sides = torch.cat([tall[..., -1:], none[..., -1:]]), torch.cat([tall[..., :1], none[..., :1]])
    return torch.cat([sides[0][layout.left], tall, sides[1][layout.right]], dim=3)


def convolved(conv: nn.Conv2d, layout: Layout) -> Forward:
    """Return ``conv``, of 3x3, over whole images."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        if any(edge % conv.stride[0] for edge in x.shape[-2:]):
            said = f"patches of {layout.side} latents are {x.shape[-1]} wide where the UNet halves them"
            raise LiveError(f"{said}; take patches whose side is a larger power of two")
        return F.conv2d(with_halo(x, layout), conv.weight, conv.bias, conv.stride, 0, conv.dilation, conv.groups)

    return forward


def normed(norm: nn.GroupNorm, layout: Layout) -> Forward:
    """Return ``norm`` with the mean and variance of whole images."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        grouped = x.float().unflatten(1, (norm.num_groups, -1)).flatten(2)
        centred = grouped - over_image(grouped.mean(2), layout)[..., None]
        variance = over_image(centred.square().mean(2), layout)[..., None]
        y = (centred * torch.rsqrt(variance + norm.eps)).view(x.shape)
        if norm.affine:
            y = y * norm.weight[:, None, None] + norm.bias[:, None, None]
        return y.to(x.dtype)

    return forward


def over_image(means: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Average the means of patches, (p, g), over their images; return a row per patch."""
    total = means.new_zeros((len(layout.share), means.shape[1])).index_add_(0, layout.image, means)
    return (total * layout.share[:, None])[layout.image]


def attended(attention: Forward, layout: Layout) -> Forward:
    """Return ``attention`` over whole images, a size at a time; encoder states have a row per image."""

    def forward(x: torch.Tensor, encoder_hidden_states: torch.Tensor | None = None, **more: Any) -> torch.Tensor:
        made = []
        for grid in layout.grids:
            patches = x[grid.first : grid.first + grid.patches]
            images = patches.reshape(grid.images, -1, x.shape[-1])
            states = encoder_hidden_states
            states = None if states is None else states[grid.row : grid.row + grid.images]
            made.append(attention(images, encoder_hidden_states=states, **more).reshape(patches.shape))
        return made[0] if len(made) == 1 else torch.cat(made)

    return forward


@contextmanager
def patched(network: nn.Module, layout: Layout) -> Iterator[None]:
    """Make ``network`` read patches of ``layout`` instead of images within the context.

    Raises:
        LiveError: a convolution is neither 1x1 nor 3x3 with a border of one pixel.
    """
    replaced: list[nn.Module] = []
    try:
        for module in network.modules():
            forward: Forward
            if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1):
                if module.kernel_size != (3, 3) or module.padding != (1, 1) or module.dilation != (1, 1):
                    raise LiveError(f"{module}: patches have a border of one pixel; this convolution needs another")
                forward = convolved(module, layout)
            elif isinstance(module, nn.GroupNorm):
                forward = normed(module, layout)
            elif isinstance(module, Attention):
                forward = attended(module.forward, layout)
            else:
                continue
            module.forward = forward
            replaced.append(module)
        yield
    finally:
        for module in replaced:
            del module.forward
