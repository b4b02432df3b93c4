"""Files and folders that appear whole or not at all, whoever writes them.

What cannot be written is told as the error of the package that writes: each names its own.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REMEDY = "free the disk or name another path"


def check_target(path: Path, error: type[Exception]) -> None:
    """Refuse a path that could not be written, before any long work is spent on its content.

    Args:
        path: the file to be written.
        error: what to raise, with one line of text.

    Raises:
        error: `path` is a folder, a device or a pipe, or its parent is missing or not a folder.
    """
    if path.is_dir():
        raise error(f"{path}: is a folder, expected the name of a file to write; add a file name to it")
    if path.exists() and not path.is_file():
        raise error(f"{path}: is a device or a pipe, which the finished file would replace; name a file to write")
    if not path.parent.is_dir():
        raise error(f"{path}: the folder {path.parent} does not exist; make it first or name another path")


@contextmanager
def atomic_write(path: Path, error: type[Exception]) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to `path` if the block succeeds.

    A reader therefore never sees half a file, and writers that race leave the file of one of them,
    whole. The temporary file is removed if the block fails in any way.

    Args:
        path: the file to be written.
        error: what to raise, with one line of text.

    Raises:
        error: the folder is missing, the disk is full, or permission is lacking.
    """
    check_target(path, error)
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as cause:
        raise _unwritable(path, cause, error, REMEDY) from cause
    finally:
        with suppress(OSError):  # it was renamed, or could never be made
            temporary.unlink()


@contextmanager
def atomic_folder(path: Path, error: type[Exception], remedy: str = REMEDY) -> Iterator[Path]:
    """Give a temporary folder beside `path`; rename it to `path` if the block succeeds.

    Where another process was faster, its folder stays: use this where both would write the same.

    Args:
        path: the folder to be made, with its parents.
        error: what to raise, with one line of text.
        remedy: what its text says to do.

    Raises:
        error: the disk is full, or permission is lacking.
    """
    temporary = _temporary(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as cause:
        if not path.is_dir():
            raise _unwritable(path, cause, error, remedy) from cause
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder on the disk of `path`; it is removed, with all in it, when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")


def _unwritable(path: Path, cause: OSError, error: type[Exception], remedy: str) -> Exception:
    return error(f"{path}: cannot be written ({cause.strerror or str(cause)}); {remedy}")
