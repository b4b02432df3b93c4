"""Specification of a live model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import torch

from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.networks.architectures import Scale

Dtype = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Specification of one live model; equal specs build equal models.

    Attributes:
        family: ``sd15``, ``sdxl``, ``sd3``, ``flux`` or ``sana``.
        variant: a model of the family, None for its default. If weights are read, variant and scale only choose the
            defaults (guidance, prompt length, ControlNets).
        weights: ``"random"``, a local folder as ``save_pretrained`` writes it, or a hub id.
        scale: ``full`` or ``tiny``.
        dtype: of all networks.
        scheduler: a diffusers scheduler class to run with instead of the model's own.
        seed: of random weights.
        allow_hub: allow ``weights`` to be fetched from the hub.
    """

    family: str
    variant: str | None = None
    weights: Annotated[str, Path] = "random"
    scale: Scale = "full"
    dtype: Dtype = "float32"
    scheduler: str | None = None
    seed: int = 0
    allow_hub: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return ``dtype`` as torch has it. Raises LiveError for an unsupported one."""
        if self.dtype not in get_args(Dtype):
            raise LiveError(f"dtype is {self.dtype!r}; it must be one of {', '.join(get_args(Dtype))}")
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype
