"""Pipelines with real weights, from a local folder or the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from backends.diffusers_.architectures import FamilyEntry
from backends.diffusers_.errors import LiveError, require
from backends.diffusers_.memory import ensure_fits
from backends.diffusers_.spec import ModelSpec

_STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


def open_checkpoint(spec: ModelSpec, entry: FamilyEntry, device: torch.device, available: int | None) -> Any:
    """Load the stock pipeline of ``spec.weights`` onto ``device``.

    Raises:
        LiveError: no such folder and the hub is not allowed; a folder without ``model_index.json``, with one
        that
            cannot be read, or of another family; too little memory; files missing or damaged.
    """
    folder = Path(spec.weights).expanduser()
    if folder.is_dir():
        _ensure_pipeline_folder(folder, spec.family, entry)
        needed = folder_weight_bytes(folder, spec.torch_dtype)
        ensure_fits(f"{spec.family} from {folder}", needed, device, available)
    elif folder.exists() or not spec.allow_hub:
        raise LiveError(
            f"weights {spec.weights!r} is not a folder; give one that holds model_index.json, "
            "weights='random', or a hub id with allow_hub=True"
        )
    pipeline = getattr(require("diffusers"), entry.pipeline)
    try:
        pipe = pipeline.from_pretrained(
            str(folder) if folder.is_dir() else spec.weights,
            torch_dtype=spec.torch_dtype,
            local_files_only=folder.is_dir() or not spec.allow_hub,
        )
    except (OSError, ValueError, RuntimeError, KeyError) as broken:
        raise LiveError(
            f"weights {spec.weights!r} could not be loaded as {entry.pipeline}: {broken}"
        ) from broken
    return pipe.to(device)


def folder_weight_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Bytes that the safetensors files under ``folder`` take once they are in ``dtype``.

    Read from the files' headers, so nothing is loaded; other weight formats count at their size on disk.
    """
    total = 0
    for file in sorted(folder.rglob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        header.pop("__metadata__", None)
        for tensor in header.values():
            first, last = tensor["data_offsets"]
            stored = _STORED_BYTES.get(tensor["dtype"])
            total += last - first if stored is None else (last - first) // stored * dtype.itemsize
    return total + sum(file.stat().st_size for file in folder.rglob("*.bin"))


def _ensure_pipeline_folder(folder: Path, family: str, entry: FamilyEntry) -> None:
    index = folder / "model_index.json"
    if not index.is_file():
        raise LiveError(
            f"{folder} is not a pipeline folder: it has no model_index.json; point at the folder that "
            "save_pretrained wrote (or that the hub gave), or use weights='random'"
        )
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["_class_name"]
    except (ValueError, KeyError, TypeError) as broken:
        raise LiveError(
            f"{index} is not readable as a pipeline index ({broken!r}); fetch the folder anew"
        ) from broken
    if found != entry.pipeline:
        raise LiveError(
            f"{folder} holds a {found}, family {family!r} needs a {entry.pipeline}; name its own family"
        )
