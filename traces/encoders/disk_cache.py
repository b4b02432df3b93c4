"""The disk cache of what is remembered from run to run and lies beside no trace: embeddings and neighbours, by content.

All of it can be made again. So there is only so much: what was used longest ago goes when there is more. So what was
damaged is made again, and where nothing can be kept nothing is, both of which are said: the answers are the same.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

from traces.error import TraceError

GIB = 1 << 30
MOST_GIB = 20.0
"""What is kept unless $MEZZOTINT_CACHE_GIB says otherwise: ten million embeddings of 512 dimensions."""

_VECTORS = re.compile(r"[0-9a-f]{32,64}\.[\w.-]+\.(npy|json)")
_LISTS = re.compile(r"[0-9a-f]{32}")


class Unwritable(TraceError):
    """What should be remembered cannot be written where it belongs."""


def home() -> Path:
    """$MEZZOTINT_CACHE, or the user's own cache folder."""
    return Path(os.environ.get("MEZZOTINT_CACHE") or platformdirs.user_cache_dir("mezzotint"))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it. Raises Unwritable where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable(
            f"{folder}: cannot be made ({error.strerror}); set MEZZOTINT_CACHE to a folder that can"
        ) from error


def used(*paths: Path) -> None:
    """Note that these files or folders are of use now; what lies elsewhere stays as it is."""
    for path in paths:
        if path.is_relative_to(home()):
            with suppress(OSError):  # another user's, or gone: it is as it was
                os.utime(path)


def tell(what: str) -> None:
    """Say in a line on standard error what became of something remembered; it changes no result."""
    print(f"mezzotint: note: {' '.join(what.split())}", file=sys.stderr, flush=True)


def make_room(newest: Path) -> None:
    """Remove what was used longest ago until what is kept takes no more than it may; ``newest`` stays.

    Only what Mezzotint wrote is counted or removed. A run that has a removed file open goes on reading it.

    Args:
        newest: what was just written, a folder or a stem (what files are called before .npy and .json). Where it
            lies elsewhere, there is nothing to do.

    Raises:
        TraceError: $MEZZOTINT_CACHE_GIB is not a number of 0 or more.
    """
    if not newest.is_relative_to(home()):
        return
    allowed = most_bytes()
    items: dict[Path, list[Path]] = {}
    for path in _entries():
        items.setdefault(path if path.is_dir() else path.with_suffix(""), []).append(path)
    states = {item: _state(paths) for item, paths in items.items()}
    total = sum(size for _, size in states.values())
    for item in sorted(items, key=lambda item: (states[item][0], item)):
        if total <= allowed:
            break
        if item != newest:
            for path in sorted(items[item]):  # the JSON first, without which vectors are an unfinished write
                remove(path)
            total -= states[item][1]


def most_bytes() -> float:
    """How much may be kept. Raises TraceError: see ``make_room``."""
    given = os.environ.get("MEZZOTINT_CACHE_GIB") or str(MOST_GIB)
    try:
        gib = float(given)
    except ValueError:
        gib = -1.0
    if not gib >= 0:
        raise TraceError(f"$MEZZOTINT_CACHE_GIB: found {given!r}, expected a number of GiB, 0 or more")
    return gib * GIB


def _entries() -> list[Path]:
    """What Mezzotint wrote there: files of vectors, and folders of neighbours."""
    there: list[Path] = []
    for folder in (home(), home() / "images", home() / "neighbours"):
        with suppress(OSError):  # it is not there, or another user's
            there += folder.iterdir()
    return [path for path in there if (_LISTS if path.is_dir() else _VECTORS).fullmatch(path.name)]


def _state(paths: Sequence[Path]) -> tuple[float, int]:
    """When they were last used, and their size in bytes."""
    try:
        files = [file for path in paths for file in (path.iterdir() if path.is_dir() else (path,))]
        return max(path.stat().st_mtime for path in paths), sum(file.stat().st_size for file in files)
    except OSError:  # removed by another process meanwhile
        return 0.0, 0


def remove(path: Path) -> None:
    """Remove a file or a folder of the cache at once, so that nobody finds half of it; what cannot go stays."""
    if path.is_dir():
        leaving = path.with_name(f".{path.name}.{os.getpid()}.part")
        with suppress(OSError):
            os.replace(path, leaving)
            shutil.rmtree(leaving, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
