"""Layout of a batch of patches: images of several sizes cut into squares, and the neighbours of each square."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mezzotint.backends.diffusers_.errors import LiveError


@dataclass(frozen=True, slots=True)
class Grid:
    """Images of one size, each cut into ``down`` x ``across`` patches.

    Attributes:
        first: number of their first patch in the batch.
        row: number of their first image in the batch.
    """

    images: int
    down: int
    across: int
    first: int
    row: int

    @property
    def patches(self) -> int:
        return self.images * self.down * self.across


@dataclass(frozen=True, slots=True)
class Layout:
    """A batch of patches, sorted by image size so that a reshape restores the images (PatchedServe, 4.1).

    Attributes:
        side: of a patch, in latents.
        grids: the images of each size.
        image: patch -> its image in the batch, (patches,).
        left, right, up, down: patch -> its neighbour. At an image's edge it is the number of patches, the index of a
            row of zeros after the batch.
        share: image -> one over its number of patches, (images,).
    """

    side: int
    grids: tuple[Grid, ...]
    image: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    share: torch.Tensor

    def split(self, latents: Sequence[torch.Tensor]) -> torch.Tensor:
        """Cut images (n, c, h, w) of each size into patches (p, c, side, side)."""
        cut = []
        for grid, images in zip(self.grids, latents, strict=True):
            rows = images.unflatten(2, (grid.down, -1)).unflatten(4, (grid.across, -1))
            cut.append(rows.permute(0, 2, 4, 1, 3, 5).flatten(0, 2))
        return cut[0] if len(cut) == 1 else torch.cat(cut)

    def join(self, patches: torch.Tensor) -> list[torch.Tensor]:
        """Invert ``split``."""
        whole = []
        for grid in self.grids:
            rows = patches[grid.first : grid.first + grid.patches].unflatten(0, (grid.images, grid.down, grid.across))
            whole.append(rows.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3))
        return whole


def layout(sizes: Sequence[tuple[int, int, int]], side: int, device: torch.device | None = None) -> Layout:
    """Return the layout of images (count, height, width) in latents, an entry per size, in patches of ``side``.

    Raises:
        LiveError: the side does not divide a size.
    """
    grids: list[Grid] = []
    first = row = 0
    for images, height, width in sizes:
        if height % side or width % side:
            raise LiveError(f"patches of {side} latents do not divide an image of {width}x{height} latents")
        grids.append(Grid(images, height // side, width // side, first, row))
        first += grids[-1].patches
        row += images
    beside: dict[str, list[torch.Tensor]] = {"left": [], "right": [], "up": [], "down": []}
    image = []
    for grid in grids:
        shape = (grid.images, grid.down, grid.across)
        index = grid.first + torch.arange(grid.patches).view(shape)
        padded = torch.full((grid.images, grid.down + 2, grid.across + 2), first)
        padded[:, 1:-1, 1:-1] = index
        beside["left"].append(padded[:, 1:-1, :-2].flatten())
        beside["right"].append(padded[:, 1:-1, 2:].flatten())
        beside["up"].append(padded[:, :-2, 1:-1].flatten())
        beside["down"].append(padded[:, 2:, 1:-1].flatten())
        image.append((grid.row + torch.arange(grid.images)).repeat_interleave(grid.down * grid.across))
    share = torch.cat([torch.full((grid.images,), 1.0 / (grid.down * grid.across)) for grid in grids])
    sides = {name: torch.cat(parts).to(device) for name, parts in beside.items()}
    return Layout(side, tuple(grids), torch.cat(image).to(device), share=share.to(device), **sides)
