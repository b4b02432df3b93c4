"""Turn a spec into a live model on a device."""

import zlib
from importlib import import_module
from typing import Any

import diffusers
import torch

from mezzotint.backends.diffusers_.device.memory import ensure_fits, usable_device, weight_bytes
from mezzotint.backends.diffusers_.device.stopwatch import Stopwatch
from mezzotint.backends.diffusers_.families.base import Family
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import Architecture, architecture, family_entry
from mezzotint.backends.diffusers_.networks.checkpoint import open_checkpoint, unwanted_slots
from mezzotint.backends.diffusers_.networks.components import with_random_weights
from mezzotint.backends.diffusers_.networks.spec import ModelSpec
from mezzotint.backends.diffusers_.networks.tokenizers import spelled
from mezzotint.backends.diffusers_.solvers import ensure_resumable, swapped


def build(spec: ModelSpec, device: str | torch.device = "cpu") -> LiveModel:
    """Build the model that ``spec`` names, all networks on ``device``.

    Raises:
        LiveError: before anything is allocated: no such device, unknown family or variant, weights that are not a
            pipeline folder, too little memory; afterwards: a solver that cannot be resumed from step K.
    """
    place = usable_device(device)
    watch = Stopwatch(place)
    entry = family_entry(spec.family)
    shape = architecture(spec.family, spec.variant, spec.scale)
    if spec.weights == "random":
        needed = weight_bytes(shape.parts.values(), spec.torch_dtype)
        ensure_fits(f"{shape.scale} {shape.variant} in {spec.dtype}", needed, place)
        pipe = _random_pipeline(spec, shape, entry.pipeline, place)
    else:
        pipe = open_checkpoint(spec, entry, place)
    if spec.scheduler is not None:
        pipe.scheduler = swapped(pipe.scheduler, spec.scheduler)
    ensure_resumable(pipe.scheduler)
    family = family_of(spec.family)
    if family.upcasts_vae and pipe.vae.dtype == torch.float16 and pipe.vae.config.force_upcast:
        pipe.vae.to(torch.float32)
    return LiveModel(spec, shape, family, pipe, place, watch.lap())


def _random_pipeline(spec: ModelSpec, shape: Architecture, pipeline: str, device: torch.device) -> Any:
    seeds = {slot: (spec.seed * 1_000_003 + zlib.crc32(slot.encode())) % 2**63 for slot in shape.parts}
    networks = {
        slot: with_random_weights(each, device, spec.torch_dtype, seeds[slot]) for slot, each in shape.parts.items()
    }
    tokenizers = {slot: spelled(kind, shape.text_tokens or 77) for slot, kind in shape.tokenizers.items()}
    scheduler = getattr(diffusers, shape.scheduler["class"])(**shape.scheduler["config"])
    slots: dict[str, Any] = {**networks, **tokenizers, "scheduler": scheduler}
    return getattr(diffusers, pipeline)(**slots, **unwanted_slots(pipeline))


def family_of(family: str) -> Family:
    """Return the adapter of ``family``, which calls its models. Raises LiveError if there is none."""
    module, _, name = family_entry(family).adapter.rpartition(".")
    adapter: Family = getattr(import_module(module), name)
    return adapter
