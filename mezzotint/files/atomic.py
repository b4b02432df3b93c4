"""Files and folders that appear whole or not at all.

A writer works in a part: a hidden folder next to the target, with a lock that ends with the process. The next writer
into the same folder removes the parts of killed writers. Callers give the error class to raise.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout

REMEDY = "free the disk or name another path"
LEAST_FREE = 1 << 20
"""Minimum free bytes on a disk to begin a write."""

READY = "ready"
"""Folder of finished files in a part; they are moved to the target even if the writer was killed."""

_PART = ".mezzotint-{}.part"
_LOCK, _CONTENT = "lock", "content"

_PATIENCE_S = 1.0
"""Seconds to wait for a lock that another process may hold briefly to check for a dead writer."""


def check_target(path: Path, error: type[Exception]) -> None:
    """Raise ``error`` if a file could not be written, before long work on its content."""
    check_name(path, error)
    if path.is_dir():
        raise error(f"{path}: is a folder, expected the name of a file to write; add a file name to it")
    if path.exists() and not path.is_file():
        raise error(f"{path}: is a device or a pipe, which the finished file would replace; name a file to write")
    if not path.parent.is_dir():
        raise error(f"{path}: the folder {path.parent} does not exist; make it first or name another path")
    check_room(path.parent, error)


def check_ours(path: Path, error: type[Exception], what: str, *marks: bytes) -> None:
    """Raise ``error`` if ``path`` is a file that the command did not write.

    Args:
        what: what the command writes, with its article.
        marks: what every file of that kind begins with, then what else it holds.
    """
    if not path.is_file():
        return
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise error(f"{path}: cannot be read ({cause.strerror}); name another path") from None
    start, *others = marks
    if content and not (content.startswith(start) and all(mark in content for mark in others)):
        raise error(f"{path}: is not {what} and would be overwritten; name another path, or remove it first")


def check_name(path: Path, error: type[Exception]) -> None:
    """Refuse a path that the file system cannot hold, such as one with a name of 300 characters. Raises error."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as cause:  # a name too long, a loop of links; a null character
        reason = getattr(cause, "strerror", None) or str(cause)
        raise error(f"{str(path)[:120]}: cannot be used ({reason}); name another path") from None


def output_folder(folder: Path, error: type[Exception]) -> None:
    """Make the folder of ``-o`` and its parents if missing. Raises error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise error(f"{folder}: cannot be used ({cause.strerror}); name another folder with -o") from None


def check_room(folder: Path, error: type[Exception]) -> None:
    """Refuse a read-only folder, or one on a full disk. Raises error."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise error(f"{folder}: cannot be written in (permission denied); name another path")
    disk = shutil.disk_usage(folder)
    if disk.total and disk.free < LEAST_FREE:
        raise error(f"{folder}: its disk is full; {REMEDY}")


@contextmanager
def part(directory: Path, name: str | None = None, *, wait: bool = False) -> Iterator[Path]:
    """Make a part in ``directory``, hold its lock, and remove the part when the block ends.

    Args:
        directory: made with its parents where it is absent, and removed again if it is empty at the end.
        name: tells two writers of the same target that they are two; None: no other writer has this part.
        wait: wait for another process that holds the part.

    Raises:
        Timeout: another process holds the part, and ``wait`` is false.
        OSError: it cannot be made.
    """
    clear(directory)
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    folder = directory / _PART.format(name or uuid.uuid4().hex[:16])
    lock = FileLock(folder / _LOCK, timeout=-1 if wait else _PATIENCE_S)
    while True:
        is_new = True
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            is_new = False
        try:
            lock.acquire()
        except FileNotFoundError:  # another process has just removed the part
            continue
        except OSError as error:
            if isinstance(error, Timeout) or not is_new:
                raise Timeout(lock.lock_file) from None
            # Else a file system without locks, where nobody can take a part for that of a killed writer.
        if {entry.name for entry in os.scandir(folder)} <= {_LOCK}:
            break
        _settle(folder)  # what a killed writer left while this one waited
        lock.release()
    try:
        yield folder
    finally:
        _settle(folder)
        lock.release()
        for each in missing:
            with suppress(OSError):  # not empty
                each.rmdir()


def move_files(source: Path, target: Path) -> None:
    """Move the files of one folder into another by name, after deleting those that they replace."""
    names = sorted(os.listdir(source))
    for name in reversed(names):
        (target / name).unlink(missing_ok=True)
    for name in names:
        os.replace(source / name, target / name)


def clear(directory: Path) -> None:
    """Remove the parts of dead writers in ``directory``; finished files are moved into ``directory``."""
    for folder in directory.glob(_PART.format("*")):
        with suppress(OSError), FileLock(folder / _LOCK, timeout=0):  # held by its writer, or no locks here
            _settle(folder)


def _settle(folder: Path) -> None:
    if (folder / READY).is_dir():
        move_files(folder / READY, folder.parent)
    shutil.rmtree(folder, ignore_errors=True)


def contents(folder: Path) -> list[str]:
    """Return the sorted names in a folder without parts; none if there is no such folder."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(name for name in names if not fnmatch(name, _PART.format("*")))


@contextmanager
def atomic_write(path: Path, error: type[Exception]) -> Iterator[Path]:
    """Give a temporary path on the same disk; rename it to `path` if the block succeeds.

    A reader never sees half a file. Of racing writers one leaves its whole file. Raises ``error``.
    """
    check_target(path, error)
    try:
        with part(path.parent) as folder:
            yield folder / _CONTENT
            os.replace(folder / _CONTENT, path)
    except OSError as cause:
        raise error(f"{path}: cannot be written ({cause.strerror or str(cause)}); {REMEDY}") from cause


@contextmanager
def atomic_files(paths: Sequence[Path], error: type[Exception], gone: Sequence[Path] = ()) -> Iterator[list[Path]]:
    """Give a temporary path for each of ``paths``; rename all of them, in that order, if the block succeeds.

    If one cannot be written, as on a full disk, ``error`` is raised and all earlier files stay.

    Args:
        paths: the files to be written; the last is the one that says that all are there.
        gone: files of an earlier set that this one lacks; removed with the renaming.
    """
    with ExitStack() as parts:
        temporaries = [parts.enter_context(atomic_write(path, error)) for path in reversed(paths)]
        yield temporaries[::-1]
        for path in gone:
            path.unlink(missing_ok=True)
