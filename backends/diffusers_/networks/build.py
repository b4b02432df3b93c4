"""Turn a spec into a live model on a device, with random weights, or those of a local folder or the hub."""

import re
import zlib
from math import prod
from pathlib import Path
from typing import Any

import diffusers
import torch
from safetensors import SafetensorError, safe_open

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.denoise import ensure_resumable, swap_solver
from mezzotint.backends.diffusers_.device import Stopwatch, ensure_fits, usable_device
from mezzotint.backends.diffusers_.families import family_of
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import Architecture, ModelSpec, architecture
from mezzotint.backends.diffusers_.networks.random_weights import build_part, build_tokenizer, weight_bytes
from mezzotint.files.document import parse_json

_PLAIN = re.compile(r"[A-Za-z_]+(-\d+-of-\d+)?")


def build(spec: ModelSpec, device: str | torch.device = "cpu") -> LiveModel:
    """Build the model that ``spec`` names, all networks on ``device``.

    Raises:
        BackendError: before anything is allocated: no such device, unknown family or variant, weights that are not a
            pipeline folder, too little memory; afterwards: a solver that cannot be resumed from step K.
    """
    place = usable_device(device)
    watch = Stopwatch(place)
    family, shape = family_of(spec.family), architecture(spec.family, spec.variant, spec.scale)
    if spec.weights == "random":
        needed = weight_bytes(shape.parts.values(), spec.torch_dtype)
        ensure_fits(f"{shape.scale} {shape.variant} in {spec.dtype}", needed, place)
        pipe = _random_pipeline(spec, shape, family.pipeline, place)
    else:
        pipe = _open_checkpoint(spec, family.pipeline, place)
    if spec.scheduler is not None:
        pipe.scheduler = swap_solver(pipe.scheduler, spec.scheduler)
    ensure_resumable(pipe.scheduler)
    if family.upcasts_vae and pipe.vae.dtype == torch.float16 and pipe.vae.config.force_upcast:
        pipe.vae.to(torch.float32)
    return LiveModel(spec, shape, family, pipe, place, watch.lap())


def _random_pipeline(spec: ModelSpec, shape: Architecture, pipeline: str, device: torch.device) -> Any:
    seeds = {slot: (spec.seed * 1_000_003 + zlib.crc32(slot.encode())) % 2**63 for slot in shape.parts}
    networks = {slot: build_part(part, device, spec.torch_dtype, seeds[slot]) for slot, part in shape.parts.items()}
    tokenizers = {slot: build_tokenizer(kind, shape.text_tokens or 77) for slot, kind in shape.tokenizers.items()}
    scheduler = getattr(diffusers, shape.scheduler["class"])(**shape.scheduler["config"])
    slots: dict[str, Any] = {**networks, **tokenizers, "scheduler": scheduler}
    return getattr(diffusers, pipeline)(**slots, **_unwanted_slots(pipeline))


def _open_checkpoint(spec: ModelSpec, pipeline: str, device: torch.device) -> Any:
    """Load the stock ``pipeline`` with ``spec.weights`` onto ``device``.

    Raises:
        BackendError: there is no such folder and the hub is not allowed, ``model_index.json`` is missing, unreadable or
            of another family, memory is too small, or files are missing or damaged.
    """
    folder = Path(spec.weights).expanduser()
    if folder.is_dir():
        slots = _pipeline_slots(folder, spec.family, pipeline)
        needed = sum(folder_weight_bytes(folder / slot, spec.torch_dtype) for slot in slots)
        ensure_fits(f"{spec.family} from {folder}", needed, device)
    elif folder.exists() or not spec.allow_hub:
        instead = "one that holds model_index.json, weights='random', or a hub id with allow_hub=True"
        raise BackendError(f"weights {spec.weights!r} is not a folder; give {instead}")
    try:
        pipe = getattr(diffusers, pipeline).from_pretrained(
            str(folder) if folder.is_dir() else spec.weights,
            torch_dtype=spec.torch_dtype,
            local_files_only=folder.is_dir(),
            **_unwanted_slots(pipeline),
        )
    except (OSError, ValueError, RuntimeError, KeyError) as broken:
        raise BackendError(f"weights {spec.weights!r} could not be loaded as {pipeline}: {broken}") from broken
    return pipe.to(device)


def _unwanted_slots(pipeline: str) -> dict[str, Any]:
    """Return arguments that leave out components that do not make the image (the safety checker of SD1.5)."""
    if pipeline != "StableDiffusionPipeline":
        return {}
    return {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}


def folder_weight_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Return the bytes of one network's weights in ``dtype``, from the headers of its safetensors files.

    Copies in other precisions (``model.fp16.safetensors``) are passed over, as in loading. Without a safetensors file
    older formats count at their size on disk. Raises BackendError for a file that is cut short or damaged.
    """
    stored = [file for file in sorted(folder.glob("*.safetensors")) if _PLAIN.fullmatch(file.stem)]
    if not stored:
        return sum(file.stat().st_size for file in folder.glob("*.bin") if _PLAIN.fullmatch(file.stem))
    values = 0
    for file in stored:
        try:
            with safe_open(file, framework="pt") as opened:
                values += sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        except SafetensorError as broken:
            raise BackendError(f"{file} is not a whole safetensors file ({broken}); fetch it anew") from broken
    return int(values * dtype.itemsize)


def _pipeline_slots(folder: Path, family: str, pipeline: str) -> list[str]:
    index = folder / "model_index.json"
    if not index.is_file():
        instead = "the folder that save_pretrained wrote (or that the hub gave), or use weights='random'"
        raise BackendError(f"{folder} is not a pipeline folder: it has no model_index.json; point at {instead}")
    try:
        listed = parse_json(index.read_bytes())
        stored = listed["_class_name"]
    except (ValueError, KeyError, TypeError) as broken:
        raise BackendError(f"{index} is not a readable pipeline index ({broken!r}); fetch it anew") from broken
    if stored != pipeline:
        raise BackendError(f"{folder} holds a {stored}, family {family!r} needs a {pipeline}; name its own family")
    unwanted = _unwanted_slots(pipeline)
    return [slot for slot, value in listed.items() if isinstance(value, list) and slot not in unwanted]
