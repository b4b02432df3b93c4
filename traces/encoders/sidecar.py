"""Embeddings on disk, beside the trace that they belong to.

Two files share a stem: `.npy` holds (n, dim) float32 vectors, a row per request, and `.json` says whose they are and
has their SHA-256, which is checked whenever they are opened (a GB takes 0.8 s). The JSON is renamed into place
last, so vectors without it are an unfinished write. What is not whole, or is of something else, is made again.
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conf.atomic import atomic_write, check_target
from traces.encoders import disk_cache
from traces.encoders.unfinished import unfinished
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


def about(trace: Trace, encoder: str, dim: int) -> dict[str, Any]:
    """What the JSON says of the embeddings of a trace's prompts."""
    return {
        "schema": VERSION,
        "trace_digest": trace.digest,
        "encoder": encoder,
        "count": len(trace),
        "dim": dim,
        "dtype": "float32",
    }


Make = Callable[[Vectors], Iterable[Vectors]]
"""Given the rows that there are, (any, dim) float32, it gives blocks of those after them."""


def remembered(stems: Sequence[Path], about: Mapping[str, Any], make: Make) -> Vectors:
    """The vectors at one of `stems`, else made and kept at the first of them that can be written.

    They are kept as they are made: after an interruption the work goes on where it was (traces.encoders.unfinished).
    Where none can be written, they are made for this process alone, in a temporary file. That, and that what was kept
    cannot be used, is said on standard error.

    Args:
        stems: where they may lie, the preferred place first.
        about: what they are of, with the keys encoder, count and dim among others; others are not used.
        make: gives blocks of (any, dim) float32 rows that, with those that it is given, add up to `count`.

    Returns:
        (count, dim) float32, read-only and memory-mapped.

    Raises:
        TraceError: a value is not finite, $MEZZOTINT_CACHE_GIB is no number, or there is no temporary file either.
    """
    for stem in stems:
        found = _load(stem, about)
        if found is not None:
            return found
    disk_cache.most_bytes()  # a wrong setting is found before the work, not after it
    reason = ""
    for stem in stems:
        try:
            while not _store(stem, about, make):
                found = _load(stem, about)
                if found is not None:
                    return found
        except disk_cache.Unwritable as error:
            reason = reason or str(error)
            continue
        found = _load(stem, about)
        if found is not None:
            return found
        reason = reason or f"{vectors_path(stem)}: vanished as it was written"
    disk_cache.tell(f"{reason}; the embeddings are made for this run alone")
    return _unkept(about, make(np.empty((0, about["dim"]), np.float32)))


def _load(stem: Path, about: Mapping[str, Any]) -> Vectors | None:
    """The vectors at `stem`; None if there are none that are whole and are those of `about`."""
    vectors = vectors_path(stem)
    try:
        text = about_path(stem).read_text(encoding="utf-8")
        size = vectors.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _refused(about_path(stem), f"cannot be read ({error})")
        return None
    try:
        found = json.loads(text)
        odd = [key for key, value in about.items() if found[key] != value or type(found[key]) is not type(value)]
        digest = found["sha256"]
    except (ValueError, TypeError, KeyError, RecursionError):
        _refused(about_path(stem), "was damaged")
        return None
    if odd:
        _refused(about_path(stem), f"is of another {odd[0].replace('_', ' ')}")
        return None
    header = _header(about)
    if size != len(header) + about["count"] * about["dim"] * 4 or not _whole(vectors, header, digest):
        _refused(vectors, "was damaged")
        return None
    disk_cache.used(vectors, about_path(stem))
    shape = about["count"], about["dim"]
    try:
        return np.memmap(vectors, np.dtype("<f4"), "r", len(header), shape)
    except (OSError, ValueError) as error:  # removed by another process meanwhile
        _refused(vectors, f"cannot be read ({error})")
        return None


def _store(stem: Path, about: Mapping[str, Any], make: Make) -> bool:
    """Write vectors, going on with what there is of them; False where another process was at it meanwhile.

    Raises Unwritable where that cannot be, TraceError for a value that is not finite.
    """
    disk_cache.make_folder(stem.parent)
    check_target(vectors_path(stem), disk_cache.Unwritable)
    with unfinished(stem, about, _header(about)) as work:
        if work is None:
            return False
        for data in _checked(about, make(work.done())):
            work.append(data)
        work.finish(vectors_path(stem))
        with atomic_write(about_path(stem), disk_cache.Unwritable) as temporary:
            written = {**about, "sha256": work.sha256}
            temporary.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    disk_cache.make_room(stem)
    return True


def _unkept(about: Mapping[str, Any], blocks: Iterable[Vectors]) -> Vectors:
    """Vectors in a file that is gone when they are. Raises TraceError where there is no room for one."""
    try:
        with tempfile.TemporaryFile() as file:
            for data in _checked(about, blocks):
                file.write(data)
            file.flush()
            return np.memmap(file, np.dtype("<f4"), "r", shape=(about["count"], about["dim"]))
    except OSError as error:
        raise TraceError(
            f"{tempfile.gettempdir()}: embeddings cannot be written ({error.strerror}), neither here nor where they are"
            " kept; free the disk, or set MEZZOTINT_CACHE and TMPDIR"
        ) from error


def _checked(about: Mapping[str, Any], blocks: Iterable[Vectors]) -> Iterator[bytes]:
    for block in blocks:
        if not np.isfinite(block).all():
            raise TraceError(f"encoder {about['encoder']}: gave a vector that is not finite; mend the encoder")
        yield np.ascontiguousarray(block, "<f4").tobytes()


def _header(about: Mapping[str, Any]) -> bytes:
    """What an .npy file of these vectors begins with: no other is ever parsed."""
    header = io.BytesIO()
    facts = {"descr": "<f4", "fortran_order": False, "shape": (about["count"], about["dim"])}
    np.lib.format.write_array_header_1_0(header, facts)
    return header.getvalue()


def _whole(path: Path, header: bytes, digest: object) -> bool:
    """Whether the file has this header, and after it the content with this digest."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as file:
            if file.read(len(header)) != header:
                return False
            while data := file.read(READ_BYTES):
                total.update(data)
    except OSError:
        return False
    return total.hexdigest() == digest


def _refused(path: Path, found: str) -> None:
    disk_cache.tell(f"{path}: {found}; the embeddings are made again")
