"""The folder for what is remembered from run to run and lies beside no trace: embeddings and neighbours, by content.

All of it can be made again, so there is only so much: what was used longest ago goes when there is more.
"""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import platformdirs

from traces.error import TraceError

GIB = 1 << 30
MOST_GIB = 20.0
"""What is kept unless $MEZZOTINT_CACHE_GIB says otherwise: ten million embeddings of 512 dimensions."""

_VECTORS = re.compile(r"[0-9a-f]{32,64}\.[\w.-]+\.(npy|json)")
_LISTS = re.compile(r"[0-9a-f]{32}")


def home() -> Path:
    """$MEZZOTINT_CACHE, or the user's own cache folder."""
    return Path(os.environ.get("MEZZOTINT_CACHE") or platformdirs.user_cache_dir("mezzotint"))


def used(item: Path) -> None:
    """Note that ``item`` (a folder, or a stem: what its files are called before .npy and .json) is of use now."""
    for path in _paths(item):
        with suppress(OSError):  # another user's, or gone: it is as it was
            os.utime(path)


def make_room(newest: Path) -> None:
    """Remove what was used longest ago until what is kept takes no more than it may; ``newest`` stays.

    Only what Mezzotint wrote is counted or removed. A run that has a removed file open goes on reading it.

    Raises:
        TraceError: $MEZZOTINT_CACHE_GIB is not a number of 0 or more.
    """
    allowed = most_bytes()
    found: dict[Path, tuple[float, int]] = {}
    for path in _kept():
        item = path if path.is_dir() else path.with_name(path.name.removesuffix(path.suffix))
        with suppress(OSError):  # removed by another process meanwhile
            at, size = found.get(item, (0.0, 0))
            found[item] = max(at, path.stat().st_mtime), size + _size(path)
    total = sum(size for _, size in found.values())
    for item, (_, size) in sorted(found.items(), key=lambda each: (each[1][0], each[0])):
        if total <= allowed:
            break
        if item != newest:
            for path in _paths(item):
                _remove(path)
            total -= size


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


def _kept() -> list[Path]:
    """What Mezzotint wrote there: files of vectors, and folders of neighbours."""
    folders = (home(), home() / "images", home() / "neighbours")
    there = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    return [path for path in there if (_LISTS if path.is_dir() else _VECTORS).fullmatch(path.name)]


def _paths(item: Path) -> list[Path]:
    """The files or the folder of ``item``; the JSON first, without which vectors are an unfinished write."""
    return [item] if item.is_dir() else [item.with_name(f"{item.name}{suffix}") for suffix in (".json", ".npy")]


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.iterdir()) if path.is_dir() else path.stat().st_size


def _remove(path: Path) -> None:
    if path.is_dir():
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")  # at once, so that nobody finds half of it
        with suppress(OSError):
            os.replace(path, aside)
            shutil.rmtree(aside, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
