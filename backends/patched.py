"""Patches: images of different sizes cut into squares of one size, which then share a batch (PatchedServe, 4)."""

from collections.abc import Iterable, Sequence
from math import ceil, gcd
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_S = 1e9
"""Thirty years: a measurement above that is a mistake, and sums of such lose their digits."""

Size = tuple[int, int]
"""Width and height in pixels."""

Seconds = Annotated[float, Field(ge=0, le=MAX_S)]


class PatchTiming(BaseModel):
    """What a step takes of a batch of patches: base_s + patch_s * patches + size_s * (sizes - 1) + halo_s * borders.

    All is at patches of ``side`` pixels; at another side a patch takes its share of the pixels, a border its length.

    Attributes:
        base_s: of any step, whatever is in it.
        patch_s: for each patch: what the operators take that all patches share, and self-attention in its image.
        size_s: for each further size: its self-attention is a batch of its own.
        halo_s: for each side shared by two patches of an image: splitting, stitching, the halo of convolutions.
        source: who measured or assumed it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    side: Annotated[int, Field(gt=0, le=65_536)]
    base_s: Seconds
    patch_s: Annotated[float, Field(gt=0, le=MAX_S)]
    size_s: Seconds
    halo_s: Seconds
    source: str

    def step_s(self, sizes: Sequence[Size], side: int) -> float:
        """Seconds of one step of images of ``sizes``, cut into patches of ``side`` pixels."""
        patches, kinds, borders = counted(sizes, side)
        scale = side / self.side
        return self.base_s + self.patch_s * patches * scale**2 + self.size_s * kinds + self.halo_s * borders * scale


def cut(size: Size, side: int) -> tuple[int, int]:
    """Patches of ``side`` pixels across and down an image of ``size``; the last ones reach over its edge where the side
    does not divide it, and are computed in full."""
    return ceil(size[0] / side), ceil(size[1] / side)


def counted(sizes: Sequence[Size], side: int) -> tuple[int, int, int]:
    """Return what a step of images of ``sizes`` depends on: patches, further sizes, sides of patches at others."""
    grids = [cut(size, side) for size in sizes]
    borders = sum(2 * ((across - 1) * down + across * (down - 1)) for across, down in grids)
    return sum(across * down for across, down in grids), len(set(sizes)) - 1, borders


def common_side(sizes: Iterable[Size], least: int) -> int:
    """Return the side of patches that images of ``sizes`` have in common: their greatest common divisor, but not below
    ``least``, to whose multiples images are padded: patches of a few pixels would be mostly border."""
    return max(gcd(*(edge for size in sizes for edge in size)), least)
