"""Embeddings on disk, beside the trace that they belong to.

Two files share a stem: `.npy` holds (n, dim) float32 vectors, a row per request, and `.json` says whose
they are. The JSON is renamed into place last, so vectors without it are an unfinished write and are
made again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conf.atomic import atomic_write
from traces.encoders import disk_cache
from traces.error import TraceError
from traces.table.trace import Trace

VERSION = 1
READ_BYTES = 1 << 24
"""Vectors are verified in pieces of this size, read and not mapped, so that memory stays small."""

Vectors = npt.NDArray[np.float32]


def candidates(trace: Trace, encoder: str, home: Path | None) -> list[Path]:
    """Stems of the places where the embeddings may lie, the preferred one first.

    Beside the trace's file if it has one; else, and if that folder cannot be written, in a cache
    folder by the trace's digest: `home`, or $MEZZOTINT_CACHE, or the user's own cache folder.
    """
    stems = [(home or disk_cache.home()) / f"{trace.digest}.{encoder}"]
    if home is None and trace.path is not None:
        beside = trace.path.with_name(f"{trace.path.stem}.{encoder}")
        stems.insert(0 if os.access(trace.path.parent, os.W_OK) else 1, beside)
    return stems


def vectors_path(stem: Path) -> Path:
    """The file of the vectors."""
    return stem.with_name(stem.name + ".npy")


def about_path(stem: Path) -> Path:
    """The file that says whose vectors they are."""
    return stem.with_name(stem.name + ".json")


def load(stem: Path, trace: Trace, encoder: str, dim: int) -> Vectors | None:
    """The embeddings at `stem`, read-only and memory-mapped, (n, dim); None if there are none.

    Raises:
        TraceError: they are of another trace, encoder or type, cut short, changed since they were
            written, or hold a value that is not finite.
    """
    return load_about(stem, _about(trace, encoder, dim))


def load_about(stem: Path, expected: Mapping[str, Any]) -> Vectors | None:
    """As `load`, for the vectors that `store_about` wrote with `expected`."""
    vectors, about = vectors_path(stem), about_path(stem)
    if not about.exists() or not vectors.exists():
        return None
    found = _read_about(about)
    for key, value in expected.items():
        if found.get(key) != value:
            raise TraceError(
                f"{about}: found {key} {found.get(key)!r}, expected {value!r}; these are embeddings of something"
                f" else, delete {about.name} and {vectors.name} to have them made again"
            )
    try:
        mapped = np.load(vectors, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _refused(vectors, f"cannot be read ({error})", "a whole array") from error
    shape = expected["count"], expected["dim"]
    if mapped.dtype != np.float32 or mapped.shape != shape or not mapped.flags.c_contiguous:
        raise _refused(vectors, f"found {mapped.dtype} {mapped.shape}", f"float32 {shape} by rows")
    _verify(vectors, int(mapped.offset), found.get("sha256"))
    disk_cache.used(vectors, about)
    checked: Vectors = mapped
    return checked


def store(stem: Path, trace: Trace, encoder: str, dim: int, blocks: Iterable[Vectors]) -> None:
    """Write embeddings: `blocks` of (any, dim) float32 rows that add up to one for each request.

    Raises:
        TraceError: a value is not finite, the files cannot be written, or $MEZZOTINT_CACHE_GIB is no number.
    """
    store_about(stem, _about(trace, encoder, dim), blocks)


def store_about(stem: Path, about: Mapping[str, Any], blocks: Iterable[Vectors]) -> None:
    """As `store`, for vectors of anything: `about` says of what, with the keys encoder, count and dim among others."""
    disk_cache.most_bytes()  # a wrong setting is found before the work, not after it
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(
            f"{stem.parent}: cannot be made ({error.strerror}); set MEZZOTINT_CACHE to a folder that can"
        ) from error
    total = hashlib.sha256()
    header = {"descr": "<f4", "fortran_order": False, "shape": (about["count"], about["dim"])}
    with atomic_write(vectors_path(stem), TraceError) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            if not np.isfinite(block).all():
                raise TraceError(f"encoder {about['encoder']}: gave a vector that is not finite; mend the encoder")
            data = np.ascontiguousarray(block, "<f4").tobytes()
            total.update(data)
            file.write(data)
    with atomic_write(about_path(stem), TraceError) as temporary:
        written = {**about, "sha256": total.hexdigest()}
        temporary.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    disk_cache.make_room(stem)


def _about(trace: Trace, encoder: str, dim: int) -> dict[str, Any]:
    return {
        "schema": VERSION,
        "trace_digest": trace.digest,
        "encoder": encoder,
        "count": len(trace),
        "dim": dim,
        "dtype": "float32",
    }


def _read_about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise _refused(path, f"cannot be read ({error})", "JSON") from error
    if not isinstance(found, dict):
        raise _refused(path, f"found {type(found).__name__}", "a JSON object")
    return found


def _verify(path: Path, offset: int, digest: object) -> None:
    total = hashlib.sha256()
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.read(READ_BYTES):
                total.update(data)
                if not np.isfinite(np.frombuffer(data[: len(data) // 4 * 4], "<f4")).all():
                    raise _refused(path, "found a value that is not finite", "finite float32")
    except OSError as error:
        raise _refused(path, f"cannot be read ({error})", "a whole array") from error
    if total.hexdigest() != digest:
        raise _refused(path, "found other bytes than were written", "those its JSON names")


def _refused(path: Path, found: str, expected: str) -> TraceError:
    return TraceError(f"{path}: {found}, expected {expected}; delete the file to have the embeddings made again")
