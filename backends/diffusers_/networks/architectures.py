"""Architectures that can be built: variants of families and their parts, read from architectures.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
import yaml

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.families import family_of

Scale = Literal["tiny", "full"]
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
        """Return ``dtype`` as torch has it. Raises BackendError for an unsupported one."""
        if self.dtype not in get_args(Dtype):
            raise BackendError(f"dtype is {self.dtype!r}; it must be one of {', '.join(get_args(Dtype))}")
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


@dataclass(frozen=True, slots=True)
class Part:
    """One network of a pipeline.

    Attributes:
        name: its key under ``components`` in the data file.
        class_name: ``diffusers.<class>`` or ``transformers.<class>``.
        config: the arguments that build it.
        parameters_millions: published count; None if unpublished (tiny models).
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    parameters_millions: float | None


@dataclass(frozen=True, slots=True)
class Architecture:
    """Everything needed to build one variant of a family with random weights.

    Attributes:
        name: in the simulator, such as ``sd3.5-large``; tiny ones end in ``-tiny``.
        parts: pipeline slot (``unet``, ``vae``, ``text_encoder_2``...) to network.
        tokenizers: pipeline slot to tokenizer kind (``clip``, ``t5``, ``gemma``).
        scheduler: ``class`` and ``config`` of the single-step solver it runs with.
        guidance: default guidance scale.
        text_tokens: length in tokens that T5 or Gemma prompts are padded to; 0 where only CLIP reads them.
        controlnets: ControlNets of this architecture, the usual one first.
    """

    family: str
    variant: str
    name: str
    scale: Scale
    parts: Mapping[str, Part]
    tokenizers: Mapping[str, str]
    scheduler: Mapping[str, Any]
    guidance: float
    text_tokens: int
    controlnets: tuple[Part, ...]


def architecture(family: str, variant: str | None = None, scale: Scale = "full") -> Architecture:
    """Look up a variant of a family.

    Args:
        family: ``sd15``, ``sdxl``, ``sd3``, ``flux`` or ``sana``.
        variant: a model of that family such as ``sd35_medium``; None takes the family's default. Tiny models
            come in one variant per family, named after it.
        scale: ``full`` for the published sizes, ``tiny`` for milliseconds a step on one core.

    Raises:
        BackendError: unknown family or scale, or a variant that this family does not have.
    """
    default = family_of(family).default
    if scale not in ("tiny", "full"):
        raise BackendError(f"scale is {scale!r}; it must be 'tiny' or 'full'")
    data = _data(scale)
    chosen = variant or (default if scale == "full" else family)
    variants = sorted(name for name, model in data["models"].items() if model["family"] == family)
    if chosen not in variants:
        raise BackendError(f"family {family!r} has no {scale} variant {chosen!r}; choose one of {', '.join(variants)}")
    model = data["models"][chosen]
    name = model.get("name", chosen.replace("_", "-"))
    return Architecture(
        family=family,
        variant=chosen,
        name=f"{name}-tiny" if scale == "tiny" else name,
        scale=scale,
        parts={slot: part(name, scale) for slot, name in model["parts"].items()},
        tokenizers=dict(model["tokenizers"]),
        scheduler=model["scheduler"],
        guidance=float(model["guidance"]),
        text_tokens=int(model.get("text_tokens", 0)),
        controlnets=tuple(part(name, scale) for name in model.get("controlnets", ())),
    )


def part(name: str, scale: Scale = "full") -> Part:
    """Return one network by its name in the data file."""
    entry = _data(scale)["components"][name]
    return Part(name, entry["class"], entry["config"], entry.get("parameters_millions"))


@cache
def _data(scale: Scale) -> Any:
    name = "architectures.yaml" if scale == "full" else "tiny.yaml"
    return yaml.safe_load(files("mezzotint.backends.diffusers_.networks").joinpath(name).read_text(encoding="utf-8"))
