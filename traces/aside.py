"""Files that appear whole or not at all."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.error import TraceError


def check_target(path: Path) -> None:
    """Refuse a path that could not be written, before any long work is spent on its content.

    Raises:
        TraceError: `path` is a folder, a device or a pipe, or its parent is missing or not a folder.
    """
    if path.is_dir():
        raise TraceError(f"{path}: is a folder, expected the name of a file to write; add a file name to it")
    if path.exists() and not path.is_file():
        raise TraceError(f"{path}: is a device or a pipe, which the finished file would replace; name a file to write")
    if not path.parent.is_dir():
        raise TraceError(f"{path}: the folder {path.parent} does not exist; make it first or name another path")


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to `path` if the block succeeds.

    A reader therefore never sees half a file, and writers that race leave the file of one of them,
    whole. The temporary file is removed if the block fails in any way.

    Raises:
        TraceError: the folder is missing, the disk is full, or permission is lacking.
    """
    check_target(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"{path}: cannot be written ({reason}); free the disk or name another path") from error
    finally:
        with suppress(OSError):  # it was renamed, or could never be made
            temporary.unlink()


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """Give a temporary folder on the disk of `path`; it is removed, with all in it, when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
