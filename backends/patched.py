"""Patches: images of different sizes, cut into squares of one size that share a batch (PatchedServe, 4)."""

from collections.abc import Iterable, Sequence
from math import ceil, gcd
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_S = 1e9
"""Upper bound of a measurement, thirty years; sums of longer times would lose precision."""

Size = tuple[int, int]
"""Width and height in pixels."""

Seconds = Annotated[float, Field(ge=0, le=MAX_S)]


class PatchTiming(BaseModel):
    """Seconds of a step of patches: base_s + patch_s * patches + size_s * (sizes - 1) + halo_s * borders.

    The terms are those of patches of ``side`` pixels. At another side, ``patch_s`` scales with the pixels of a patch
    and ``halo_s`` with the length of a border.

    Attributes:
        side: of a patch, in pixels.
        base_s: per step.
        patch_s: per patch: operators over all patches, and self-attention within its image.
        size_s: per image size after the first, whose self-attention is a batch of its own.
        halo_s: per border, counted from both of its patches: splitting, stitching, the halo of convolutions.
        source: who measured or assumed the terms.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    side: Annotated[int, Field(gt=0, le=65_536)]
    base_s: Seconds
    patch_s: Annotated[float, Field(gt=0, le=MAX_S)]
    size_s: Seconds
    halo_s: Seconds
    source: str

    def step_s(self, sizes: Sequence[Size], side: int) -> float:
        """Return the seconds of one step of images of ``sizes``, cut into patches of ``side`` pixels."""
        patches, kinds, borders = count_patches(sizes, side)
        scale = side / self.side
        return self.base_s + self.patch_s * patches * scale**2 + self.size_s * kinds + self.halo_s * borders * scale


def cut(size: Size, side: int) -> tuple[int, int]:
    """Return the numbers of patches across and down an image; patches over its edge are computed in full."""
    return ceil(size[0] / side), ceil(size[1] / side)


def count_patches(sizes: Sequence[Size], side: int) -> tuple[int, int, int]:
    """Return the counts that a step of images of ``sizes`` depends on: patches, sizes after the first, borders."""
    grids = [cut(size, side) for size in sizes]
    borders = sum(2 * ((across - 1) * down + across * (down - 1)) for across, down in grids)
    return sum(across * down for across, down in grids), len(set(sizes)) - 1, borders


def common_side(sizes: Iterable[Size], min_side: int) -> int:
    """Return the greatest common divisor of all sides in ``sizes``, or ``min_side`` if that is larger.

    Images are then padded to multiples of ``min_side``: patches of a few pixels would be mostly border.
    """
    return max(gcd(*(edge for size in sizes for edge in size)), min_side)
