"""The disk cache of embeddings and neighbours: a size-limited LRU cache, keyed by content.

An entry is a folder, named by a hash of all that decides its content. It has a file of plain values for each array, and
a file `blocks`. For each block of rows, `blocks` holds a seal and the ends of the arrays in bytes. An interrupted
computation resumes after its last complete block.

A seal is a hash of the name of the entry and of all its content so far, keyed with the secret of the cache folder.
Blocks that are damaged, or from another entry or another cache folder, do not match theirs and are computed again.
"""

import hashlib
import hmac
import json
import math
import os
import secrets
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from mezzotint.files.atomic import part
from mezzotint.files.printable import printable
from mezzotint.traces.error import TraceError

GIB = 1 << 30
DEFAULT_GIB = 20.0
"""Size of the cache unless $MEZZOTINT_CACHE_GIB is set: ten million embeddings of 512 dimensions."""

BLOCKS, SECRET = "blocks", "secret"
SECRET_BYTES, SEAL_BYTES = 32, 32
FORMAT = 2
"""Version of the files of an entry."""

DAMAGED = "is damaged or from elsewhere"

Columns = Mapping[str, tuple[Any, tuple[int, ...]]]
"""Arrays of an entry: name -> type of the values and shape of a row."""

Arrays = dict[str, NDArray[Any]]
Make = Callable[[Arrays], Iterable[Sequence[NDArray[Any]]]]
"""Takes the rows computed so far, and yields the arrays of the following blocks."""


def home() -> Path:
    """Return the folder of the cache: $MEZZOTINT_CACHE, or the user's cache folder."""
    return Path(os.environ.get("MEZZOTINT_CACHE") or platformdirs.user_cache_dir("mezzotint"))


def secret() -> bytes:
    """Return the secret of the cache folder, random bytes that are made with it. Raises OSError if it cannot be."""
    path = home() / SECRET
    if not path.exists():
        with part(home(), SECRET, wait=True) as folder:
            if not path.exists():
                (folder / SECRET).write_bytes(secrets.token_bytes(SECRET_BYTES))
                os.replace(folder / SECRET, path)
    return path.read_bytes()[:SECRET_BYTES]


def keyed_hash(name: str, secret: bytes) -> hmac.HMAC:
    """Return a hash that has taken in ``name`` and takes in the content that is kept under it."""
    return hmac.new(secret, name.encode(), "sha256")


def compute_once(kind: str, facts: Mapping[str, Any], rows: int, columns: Columns, make: Make) -> Arrays:
    """Return the arrays of an entry, computing and storing the missing rows.

    If two processes need one entry, the second waits for the first. If the cache cannot be written, the arrays go into
    temporary files. A note on standard error reports this, and damaged entries; the arrays are the same.

    Args:
        kind: the folder of the entry: embeddings, images or neighbours.
        facts: all that decides the values, the version of the arithmetic included; plain JSON.
        rows: length of the first array once it is complete.
        columns: the arrays; they are returned read-only and memory-mapped.
        make: computes the arrays; the values of a block do not depend on the first block computed.

    Raises TraceError if $MEZZOTINT_CACHE_GIB is not a number, or temporary files cannot be written either.
    """
    limit = max_bytes()  # reject a wrong setting before the work
    folder = _folder(kind, facts)
    key = folder.name
    with suppress(OSError), ExitStack() as stack:
        entry = _Entry(folder, keyed_hash(key, secret()), rows, columns, stack)
        if entry.is_complete:
            return entry.arrays()
    try:
        with part(folder.parent, key, wait=True):  # another process may be computing it
            arrays = _compute(folder, keyed_hash(key, secret()), rows, columns, make)
        _evict(folder, limit)
        return arrays
    except OSError as error:
        note(f"{folder}: cannot be written ({error}); {kind} are computed for this run alone; set MEZZOTINT_CACHE")
    try:
        with tempfile.TemporaryDirectory(prefix="mezzotint-") as temporary:
            return _compute(Path(temporary), keyed_hash(key, b""), rows, columns, make)
    except OSError as error:
        raise TraceError(
            f"{tempfile.gettempdir()}: {kind} cannot be written ({error}), neither here nor in the cache; free "
            "the disk, or set MEZZOTINT_CACHE and TMPDIR"
        ) from error


def asked_before(kind: str, facts: Mapping[str, Any]) -> float:
    """Return how often this was called before for an entry that is not there; infinity for one that is.

    0 if the cache cannot be written.
    """
    folder = _folder(kind, facts)
    if folder.is_dir():
        return math.inf
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".asked").open("ab") as file:  # a byte for each call: processes may call at once
            file.write(b".")
            return file.tell() - 1
    return 0


def _folder(kind: str, facts: Mapping[str, Any]) -> Path:
    """Return the folder of an entry, named by a hash of ``facts``."""
    return home() / kind / hashlib.sha256(json.dumps([FORMAT, facts], sort_keys=True).encode()).hexdigest()[:32]


def max_bytes() -> float:
    """Return the size of the cache in bytes. Raises TraceError if $MEZZOTINT_CACHE_GIB is not a number of 0 or more."""
    given = os.environ.get("MEZZOTINT_CACHE_GIB") or str(DEFAULT_GIB)
    try:
        gib = float(given)
    except ValueError:
        gib = -1.0
    if not gib >= 0:
        raise TraceError(f"$MEZZOTINT_CACHE_GIB: found {given!r}, expected a number of GiB, 0 or more")
    return gib * GIB


def _compute(folder: Path, seal: hmac.HMAC, rows: int, columns: Columns, make: Make) -> Arrays:
    """Compute the missing blocks of an entry. Raises OSError if it cannot be written."""
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (BLOCKS, *columns):
            (folder / name).touch()
        entry = _Entry(folder, seal, rows, columns, stack, "r+b")
        if entry.is_damaged:
            note(f"{folder}: {DAMAGED}; computed again")
        if not entry.is_complete:
            for block in make(entry.arrays()):
                entry.append(block)
        return entry.arrays()


class _Entry:
    """An open entry and its complete blocks.

    Rows already there are overwritten with equal values, so processes that map them see no change.
    """

    def __init__(
        self, folder: Path, seal: hmac.HMAC, rows: int, columns: Columns, stack: ExitStack, mode: str = "rb"
    ) -> None:
        self._columns, self._seal = columns, seal
        self._ends_of = struct.Struct(f"<{len(columns)}Q")
        self._log, *self._files = [stack.enter_context((folder / name).open(mode)) for name in (BLOCKS, *columns)]
        with suppress(OSError):  # the entry may be another user's
            os.utime(folder)  # the time of last use, for eviction
        self._total = rows * _row_bytes(*next(iter(columns.values())))
        self._ends = [0] * len(columns)
        self.is_damaged = False
        self._verify()

    @property
    def is_complete(self) -> bool:
        return self._ends[0] == self._total

    def arrays(self) -> Arrays:
        """Return the rows so far, memory-mapped; they stay readable if the file is removed."""
        arrays: Arrays = {}
        for (name, (kind, shape)), file, end in zip(self._columns.items(), self._files, self._ends, strict=True):
            size = (end // _row_bytes(kind, shape), *shape)
            # A plain array: each slice of a memmap makes another memmap.
            arrays[name] = np.asarray(np.memmap(file, kind, "r", shape=size)) if end else np.empty(size, kind)
        return arrays

    def append(self, block: Sequence[NDArray[Any]]) -> None:
        """Append one block; its record is written last."""
        for at, (values, (kind, _), file) in enumerate(zip(block, self._columns.values(), self._files, strict=True)):
            data = np.ascontiguousarray(values, kind).tobytes()
            file.seek(self._ends[at])
            file.write(data)
            file.flush()
            self._ends[at] += len(data)
            self._seal.update(data)
        ends = self._ends_of.pack(*self._ends)
        self._seal.update(ends)
        self._log.write(self._seal.digest() + ends)
        self._log.flush()

    def _verify(self) -> None:
        """Check the blocks up to the first incomplete one; `blocks` is cut after the last complete one."""
        sizes = [os.fstat(file.fileno()).st_size for file in self._files]
        record_bytes, verified = SEAL_BYTES + self._ends_of.size, 0
        while not self.is_complete and len(record := self._log.read(record_bytes)) == record_bytes:
            ends = self._ends_of.unpack(record[SEAL_BYTES:])
            seal = self._seal.copy()
            if fits := all(old <= new <= size for old, new, size in zip(self._ends, ends, sizes, strict=True)):
                for file, old, new in zip(self._files, self._ends, ends, strict=True):
                    seal.update(file.read(new - old))
                seal.update(record[SEAL_BYTES:])
            if not fits or not hmac.compare_digest(seal.digest(), record[:SEAL_BYTES]):
                self.is_damaged = True
                break
            self._seal, self._ends = seal, list(ends)
            verified += record_bytes
        if self._log.writable():
            self._log.seek(verified)
            self._log.truncate()


def _row_bytes(kind: Any, shape: tuple[int, ...]) -> int:
    return int(np.dtype(kind).itemsize * np.prod(shape, dtype=np.int64))


def _evict(newest: Path, limit: float) -> None:
    """Remove the least recently used entries until at most ``limit`` bytes are left; ``newest`` stays."""
    entries = []
    for blocks in home().glob(f"*/{'[0-9a-f]' * 32}/{BLOCKS}"):
        with suppress(OSError):  # removed by another process meanwhile
            size = sum(file.stat().st_size for file in blocks.parent.iterdir())
            entries.append((blocks.parent.stat().st_mtime, blocks.parent, size))
    total = sum(size for _, _, size in entries)
    for _, folder, size in sorted(entries):
        if total > limit and folder != newest:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def note(text: str) -> None:
    """Print ``text`` as a line on standard error."""
    print(f"mezzotint: note: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)
