"""Temporary files and folders beside what they will become, told from those whose writer is gone.

A writer holds a lock on its part (flock) for as long as it lives; the lock ends with the process, however that ends.
So a part whose lock can be taken is nobody's, and whoever next writes into the folder removes it.
"""

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OURS = re.compile(r"\.mezzotint-[0-9a-f]{16}\.part")

PATIENCE_S = 1.0
"""How long a part may be held by one who only looks whether its writer is gone, and removes it."""


class Busy(Exception):
    """A part that another process holds; the message is its path."""


def is_part(name: str) -> bool:
    """Whether a file or folder of that name is a part."""
    return _OURS.fullmatch(name) is not None


def part_path(directory: Path, digits: str | None = None) -> Path:
    """The path of a part in ``directory``: of 16 hex digits that are given, or of its own."""
    return directory / f".mezzotint-{digits or uuid.uuid4().hex[:16]}.part"


@contextmanager
def held_part(path: Path, *, folder: bool, wait: bool = False) -> Iterator[None]:
    """Make an empty part at ``path`` and hold it; what is left of it goes when the block ends.

    What a writer that is gone has left at ``path`` is removed first.

    Args:
        path: see ``part_path``; its folder exists.
        folder: make a folder, not a file.
        wait: until another process is done with ``path``.

    Raises:
        Busy: another process holds ``path``, and ``wait`` is false.
        OSError: it cannot be made.
    """
    lock = _made(path, folder, wait)
    try:
        yield
    finally:
        with suppress(OSError):  # it was renamed, and another writer's may lie there by now
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                _remove(path)
        os.close(lock)


def clear(directory: Path) -> None:
    """Remove the parts in ``directory`` whose writer is gone; what cannot be removed stays."""
    with suppress(OSError):
        for name in [entry.name for entry in os.scandir(directory) if is_part(entry.name)]:
            path = directory / name
            with suppress(OSError):
                lock = _locked(path, wait=False)
                if lock is not None:
                    _remove(path)
                    os.close(lock)


def hold(path: Path) -> int:
    """Take the lock of a file or folder that exists, waiting for it; returns a descriptor whose closing ends it."""
    lock = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _made(path: Path, folder: bool, wait: bool) -> int:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if folder:
                path.mkdir()
            else:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            new = True
        except FileExistsError:
            new = False
        try:
            # What is new may be held for a moment by whoever looks whether its writer is gone.
            lock = _locked(path, wait=wait or new)
        except FileNotFoundError:
            continue
        except OSError:
            if not new:
                raise Busy(str(path)) from None
            return os.open(path, os.O_RDONLY)  # no locks here: nobody can take it for a part of nobody's
        if lock is None:
            if not wait and not new and time.monotonic() > until:
                raise Busy(str(path))
            time.sleep(0.01)
            continue
        if new:
            return lock
        _remove(path)
        os.close(lock)


def _locked(path: Path, wait: bool) -> int | None:
    """The lock of ``path`` as a descriptor; None if another process has it, or it is not there any more.

    Raises:
        OSError: there is nothing at ``path``, or the file system has no locks.
    """
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        there = os.stat(path)
        if os.path.samestat(os.fstat(lock), there):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # it was renamed
            path.unlink()
