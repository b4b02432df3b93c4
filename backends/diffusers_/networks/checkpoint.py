"""Pipelines with real weights, from a local folder or the hub."""

import re
from math import prod
from pathlib import Path
from typing import Any

import diffusers
import torch
from safetensors import SafetensorError, safe_open

from mezzotint.backends.diffusers_.device.memory import ensure_fits
from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.networks.architectures import FamilyEntry
from mezzotint.backends.diffusers_.networks.spec import ModelSpec
from mezzotint.files.document import parse_json

_PLAIN = re.compile(r"[A-Za-z_]+(-\d+-of-\d+)?")


def open_checkpoint(spec: ModelSpec, entry: FamilyEntry, device: torch.device) -> Any:
    """Load the stock pipeline of ``spec.weights`` onto ``device``.

    Raises:
        LiveError: there is no such folder and the hub is not allowed, ``model_index.json`` is missing, unreadable or of
            another family, memory is too small, or files are missing or damaged.
    """
    folder = Path(spec.weights).expanduser()
    if folder.is_dir():
        slots = _pipeline_slots(folder, spec.family, entry)
        needed = sum(folder_weight_bytes(folder / slot, spec.torch_dtype) for slot in slots)
        ensure_fits(f"{spec.family} from {folder}", needed, device)
    elif folder.exists() or not spec.allow_hub:
        instead = "one that holds model_index.json, weights='random', or a hub id with allow_hub=True"
        raise LiveError(f"weights {spec.weights!r} is not a folder; give {instead}")
    pipeline = getattr(diffusers, entry.pipeline)
    try:
        pipe = pipeline.from_pretrained(
            str(folder) if folder.is_dir() else spec.weights,
            torch_dtype=spec.torch_dtype,
            local_files_only=folder.is_dir(),
            **unwanted_slots(entry.pipeline),
        )
    except (OSError, ValueError, RuntimeError, KeyError) as broken:
        raise LiveError(f"weights {spec.weights!r} could not be loaded as {entry.pipeline}: {broken}") from broken
    return pipe.to(device)


def unwanted_slots(pipeline: str) -> dict[str, Any]:
    """Return arguments that leave out components that do not make the image (the safety checker of SD1.5)."""
    if pipeline != "StableDiffusionPipeline":
        return {}
    return {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}


def folder_weight_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Return the bytes of one network's weights in ``dtype``, from the headers of its safetensors files.

    Copies in other precisions (``model.fp16.safetensors``) are passed over, as in loading. Without a safetensors file
    older formats count at their size on disk. Raises LiveError for a file that is cut short or damaged.
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
            raise LiveError(f"{file} is not a whole safetensors file ({broken}); fetch it anew") from broken
    return int(values * dtype.itemsize)


def _pipeline_slots(folder: Path, family: str, entry: FamilyEntry) -> list[str]:
    index = folder / "model_index.json"
    if not index.is_file():
        instead = "the folder that save_pretrained wrote (or that the hub gave), or use weights='random'"
        raise LiveError(f"{folder} is not a pipeline folder: it has no model_index.json; point at {instead}")
    try:
        listed = parse_json(index.read_bytes())
        found = listed["_class_name"]
    except (ValueError, KeyError, TypeError) as broken:
        raise LiveError(f"{index} is not a readable pipeline index ({broken!r}); fetch it anew") from broken
    if found != entry.pipeline:
        raise LiveError(f"{folder} holds a {found}, family {family!r} needs a {entry.pipeline}; name its own family")
    unwanted = unwanted_slots(entry.pipeline)
    return [slot for slot, value in listed.items() if isinstance(value, list) and slot not in unwanted]
