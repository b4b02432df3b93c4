"""Embeddings that are being made: what there is of them is kept as they grow, so that an interrupted work goes on.

Two files, as those of finished embeddings are: `<stem>.unfinished.npy`, which is renamed when it is whole, and
`<stem>.unfinished.json`, which says how many of its rows are good, and their SHA-256. Who makes them holds the lock of
the first (flock), which ends with the process.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from filelock import lock_descriptor

from conf.atomic import atomic_write, check_target
from traces.encoders import disk_cache

if TYPE_CHECKING:
    from hashlib import _Hash

READ_BYTES = 1 << 24

Vectors = npt.NDArray[np.float32]


@dataclass(slots=True)
class Unfinished:
    """Rows of float32 that are appended to a file and, once all are there, are the finished one.

    Args:
        path: the .npy file, which the process holds.
        about: whose vectors they are; with the keys count and dim.
        header: what the .npy file begins with.
    """

    path: Path
    about: Mapping[str, Any]
    header: bytes
    rows: int = field(init=False, default=0)
    _total: "_Hash" = field(init=False, repr=False)
    _file: BinaryIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._file = self.path.open("r+b")
        self._total = hashlib.sha256()
        if not self._resumed():
            self.rows, self._total = 0, hashlib.sha256()
        self._file.seek(0)
        self._file.write(self.header)
        self._file.seek(len(self.header) + self.rows * self._row_bytes)
        self._file.truncate()

    @property
    def sha256(self) -> str:
        """Of the rows that are there."""
        return self._total.hexdigest()

    def done(self) -> Vectors:
        """The rows that are there, (rows, dim) float32, read-only."""
        if not self.rows:
            return np.empty((0, self.about["dim"]), np.float32)
        return np.memmap(self.path, np.dtype("<f4"), "r", len(self.header), (self.rows, self.about["dim"]))

    def append(self, data: bytes) -> None:
        """Add whole rows, and note that they are good. Raises Unwritable."""
        self._file.write(data)
        self._file.flush()
        self._total.update(data)
        self.rows += len(data) // self._row_bytes
        with atomic_write(_note(self.path), disk_cache.Unwritable) as temporary:
            temporary.write_text(json.dumps(self._said(), indent=1) + "\n", encoding="utf-8")

    def finish(self, path: Path) -> None:
        """Make it the finished file at ``path``."""
        self._file.flush()
        os.replace(self.path, path)
        _note(self.path).unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove it."""
        for path in (_note(self.path), self.path):
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Leave it as it is."""
        with suppress(OSError):  # a disk that is full: what was noted as good is there
            self._file.close()

    @property
    def _row_bytes(self) -> int:
        return int(self.about["dim"]) * 4

    def _said(self) -> dict[str, Any]:
        return {**self.about, "rows": self.rows, "sha256": self.sha256}

    def _resumed(self) -> bool:
        """Whether the file has the rows that its note says; then they count as there."""
        try:
            said = json.loads(_note(self.path).read_text(encoding="utf-8"))
            self.rows = int(said["rows"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return False
        left = self.rows * self._row_bytes
        if not 0 <= self.rows <= self.about["count"] or self._file.read(len(self.header)) != self.header:
            return False
        while left > 0 and (data := self._file.read(min(left, READ_BYTES))):
            self._total.update(data)
            left -= len(data)
        return left == 0 and bool(said == self._said())


@contextmanager
def unfinished(stem: Path, about: Mapping[str, Any], header: bytes) -> Iterator[Unfinished | None]:
    """What there is of the embeddings of ``stem``, to be appended to and finished.

    What an error ends is removed; after an interruption it stays.

    Args:
        stem: of the finished files.
        about, header: see Unfinished. What is there of something else is begun again.

    Yields:
        None where another process was making them, once it is done or gone.

    Raises:
        Unwritable: it cannot be written.
    """
    path = stem.with_name(f"{stem.name}.unfinished.npy")
    check_target(path, disk_cache.Unwritable)
    try:
        path.touch()
        lock = _held(path)
        if lock is None:
            yield None
            return
        try:
            work = Unfinished(path, about, header)
            try:
                yield work
            except Exception:
                work.drop()
                raise
            finally:
                work.close()
        finally:
            os.close(lock)
    except OSError as error:
        raise disk_cache.Unwritable(f"{path}: cannot be written ({error.strerror}); free the disk") from error


def _held(path: Path) -> int | None:
    """The lock of ``path``; None, after a wait, where another process had it."""
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        disk_cache.tell(f"{path}: another process is making these embeddings; waiting for it")
        os.close(lock)
        with suppress(FileNotFoundError), path.open("rb") as file:  # unless it is done
            lock_descriptor(file.fileno())
        return None
    except OSError:  # a file system without locks
        return lock
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    os.close(lock)
    return None


def _note(path: Path) -> Path:
    return path.with_suffix(".json")
