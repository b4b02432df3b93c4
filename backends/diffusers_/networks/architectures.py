"""Architectures that can be built: families, variants and parts, read from architectures.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from mezzotint.backends.diffusers_.errors import LiveError

Scale = Literal["tiny", "full"]


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
class FamilyEntry:
    """A family's adapter (dotted path of a Family), its stock pipeline class and its default variant."""

    adapter: str
    pipeline: str
    default: str


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


def families() -> dict[str, FamilyEntry]:
    """Return the live families by name."""
    return {name: FamilyEntry(**entry) for name, entry in _data("full")["families"].items()}


def family_entry(family: str) -> FamilyEntry:
    """Return the entry of one family. Raises LiveError if there is none."""
    known = families()
    if family not in known:
        raise LiveError(f"unknown model family {family!r}; live families are {', '.join(sorted(known))}")
    return known[family]


def architecture(family: str, variant: str | None = None, scale: Scale = "full") -> Architecture:
    """Look up a variant of a family.

    Args:
        family: ``sd15``, ``sdxl``, ``sd3``, ``flux`` or ``sana``.
        variant: a model of that family such as ``sd35_medium``; None takes the family's default. Tiny models
            come in one variant per family, named after it.
        scale: ``full`` for the published sizes, ``tiny`` for milliseconds a step on one core.

    Raises:
        LiveError: unknown family or scale, or a variant that this family does not have.
    """
    entry = family_entry(family)
    if scale not in ("tiny", "full"):
        raise LiveError(f"scale is {scale!r}; it must be 'tiny' or 'full'")
    data = _data(scale)
    chosen = variant or (entry.default if scale == "full" else family)
    variants = sorted(name for name, model in data["models"].items() if model["family"] == family)
    if chosen not in variants:
        raise LiveError(f"family {family!r} has no {scale} variant {chosen!r}; choose one of {', '.join(variants)}")
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
    return Part(name, entry["class"], dict(entry["config"]), entry.get("parameters_millions"))


@cache
def _data(scale: Scale) -> Any:
    name = "architectures.yaml" if scale == "full" else "tiny.yaml"
    return yaml.safe_load(files("mezzotint.backends.diffusers_.networks").joinpath(name).read_text(encoding="utf-8"))
