"""Sampling parameters of a request, beyond size and steps, that change what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import RequestBasis, Work
from mezzotint.sim.core.model import Model


class Sampling(NamedTuple):
    """Sampling parameters that requests share.

    Attributes:
        images: images that the request makes as one batch.
        guided: True for a guidance scale above 1, False for one of 1 or less, None without one.
        negative: True with a negative prompt.
        input_images: images that the request brings, and the VAE encodes.
        strength: share of the steps that run on an input image; None is all.
    """

    images: int = 1
    guided: bool | None = None
    negative: bool = False
    input_images: int = 0
    strength: float | None = None

    def skipped(self, steps: int) -> int:
        """Return the first steps that are not run: as in diffusers, all but int(steps * strength), at least one."""
        return 0 if self.strength is None else steps - max(min(int(steps * self.strength), steps), 1)

    def cfg(self, model: Model) -> bool | None:
        """Return True if the request runs with true classifier-free guidance on ``model``; None if it does not say."""
        if model.guidance == "distilled" or (self.guided is None and not self.negative):
            return None
        if model.guidance == "negative-prompt":
            return self.negative and self.guided is not False
        return self.negative if self.guided is None else self.guided


@dataclass(frozen=True, slots=True)
class SamplingColumn:
    """Sampling parameters of every trace row, (preload + rows,), as a code into ``kinds``; None is a usual request."""

    kinds: Sequence[Sampling | None]
    codes: NDArray[np.int32]

    @property
    def images(self) -> NDArray[np.int64]:
        """Images of every row's request."""
        return np.array([1 if kind is None else kind.images for kind in self.kinds])[self.codes]


def usual_cfg(model: Model, basis: RequestBasis) -> bool:
    """Return True if the seconds of ``basis`` are those of ``model`` with CFG; where it does not say, by its rule."""
    if model.guidance == "distilled":
        return False
    return model.guidance == "scale" if basis.cfg is None else basis.cfg


def cfg_beside_usual(sampling: Sampling, model: Model, basis: RequestBasis) -> bool | None:
    """Return ``Work.cfg`` of a request on ``model``."""
    cfg = sampling.cfg(model)
    return None if cfg is None or cfg == usual_cfg(model, basis) else cfg


def sampled(work: Work, sampling: Sampling, model: Model, basis: RequestBasis) -> Work:
    """Return ``work``, of a request on ``model``, with its sampling parameters but the steps that a strength skips."""
    cfg = cfg_beside_usual(sampling, model, basis)
    return replace(work, images=sampling.images, cfg=cfg, input_images=sampling.input_images)
