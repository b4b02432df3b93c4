"""The life of a run directory: claimed before the run, written aside, put in its place as a whole.

A directory is one run's or absent. A reader finds either the run that was there before or the new one, and a run
that was killed leaves nothing but a hidden part, which the next one into the same folder removes.
"""

import ctypes
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from conf.atomic import check_name, check_room
from conf.document import DocumentError, parse
from conf.part import Busy, clear, held_part, hold, is_part, part_path
from sim.errors import ConfigError

SUMMARY, REQUESTS, CLUSTER, CONFIG = "summary.json", "requests.parquet", "cluster.parquet", "config.yaml"
TIMELINE = "timeline.json.gz"
FILES = (SUMMARY, REQUESTS, CLUSTER, CONFIG, TIMELINE)
REPORT, FIGURES = "report.html", "figures"
"""What a report leaves in the directory of the run that it is about."""

_AT_FDCWD, _EXCHANGE = -100, 2
"""Of renameat2(2)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run directory that this process alone may write.

    Attributes:
        folder: where the run will be, as it was asked for.
        staging: where its files are written.
    """

    folder: Path
    staging: Path

    def publish(self) -> None:
        """Put what was written in its place; what else lies there by now, such as a report, stays beside it.

        Raises:
            ConfigError: it cannot be put there; the message names the folder.
        """
        folder = Path(os.path.realpath(self.folder))
        try:
            if self.staging.parent == folder:
                _move_in(self.staging, folder)
            elif folder.is_dir() and any(os.scandir(folder)):
                _take_along(folder, self.staging)
                _exchange(self.staging, folder)
            else:
                os.replace(self.staging, folder)
        except OSError as error:
            raise _unusable(self.folder, error) from None


@contextmanager
def claimed(folder: Path, *, fresh: bool = False, wait: bool = False) -> Iterator[Claim]:
    """Claim a run directory until the block ends; of the block, ``Claim.publish`` is the last.

    A run that is there already may be replaced; nothing else may.

    Args:
        folder: the run directory, with its parents made where they are absent.
        fresh: where ``folder`` is taken, claim folder-2, folder-3, ... instead.
        wait: for another process that has claimed it, instead of refusing.

    Raises:
        ConfigError: the folder cannot be written, holds what is no run, or is claimed by another process.
    """
    number = 0
    while True:
        number += 1
        place = _numbered(folder, number)
        with ExitStack() as made:
            staging = _staging(place, made, create=True)
            try:
                made.enter_context(held_part(staging, folder=True, wait=wait))
            except Busy as busy:
                if fresh:
                    continue
                raise ConfigError(
                    f"run.dir: {place} is being written by another run; wait for it, or name another folder "
                    f"(if there is no such run, remove {busy})"
                ) from None
            except OSError as error:
                raise _unusable(place, error) from None
            if fresh and os.path.lexists(place):
                continue
            _refuse_other(place)
            yield Claim(place, staging)
            return


def check_folder(folder: Path) -> None:
    """Refuse, before any long work, a run directory that ``claimed`` would refuse. Makes nothing.

    Raises:
        ConfigError: see ``claimed``.
    """
    check_place(folder)
    _refuse_other(folder)


def check_place(folder: Path) -> None:
    """Refuse a folder that could not be made, or not be written in. Raises ConfigError."""
    _staging(folder, ExitStack(), create=False)


def unclaimed(folder: Path) -> Path:
    """Make ``folder``, or where it is taken folder-2, folder-3, ..., and return it.

    Raises:
        ConfigError: it cannot be made.
    """
    check_place(folder)
    number = 0
    while True:
        number += 1
        place = _numbered(folder, number)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _unusable(place, error) from None
        return place


def _numbered(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def holds_run(folder: Path) -> bool:
    """Whether a finished run lies in ``folder``."""
    try:
        said = json.loads((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and "schema" in said and (folder / CONFIG).is_file()


def config_of(folder: Path) -> object:
    """The configuration that the run in ``folder`` was made with; None where it cannot be read."""
    try:
        return parse((folder / CONFIG).read_bytes())
    except (OSError, DocumentError):
        return None


def others(folder: Path) -> list[str]:
    """What lies in ``folder`` and is no part of a run, by name; empty too where there is no such folder."""
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(folder) if not is_part(entry.name))
    if not holds_run(folder) and not set(FILES[:4]) <= set(names):  # a damaged run is one too
        return names
    return [name for name in names if name not in (*FILES, REPORT) and not (name == FIGURES and _drawn(folder / name))]


def _drawn(figures: Path) -> bool:
    names = [entry.name for entry in os.scandir(figures)] if figures.is_dir() else [""]
    return all(name.endswith((".png", ".svg")) or is_part(name) for name in names)


def _refuse_other(folder: Path) -> None:
    found = others(folder)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ConfigError(
            f"run.dir: {folder} holds what is not a run's ({found[0]}{more}), which a run would replace; "
            "name a new folder, or that of an earlier run"
        )


def _staging(folder: Path, made: ExitStack, *, create: bool) -> Path:
    """Where the run of ``folder`` is written: beside it, or in it where it cannot be renamed.

    The parents that are made for it are removed again by ``made``, unless something was put there.
    """
    check_name(folder, ConfigError)
    place = Path(os.path.realpath(folder))
    if place.exists() and not place.is_dir():
        raise ConfigError(f"run.dir: {folder} cannot be used (it is no folder); name another one")
    digits = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]
    inside = place.is_dir() and not _can_be_renamed(place)
    home = place if inside else place.parent
    nearest = home
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"run.dir: {folder} cannot be used ({nearest} is no folder to write in); name another folder")
    check_room(nearest, ConfigError)
    if create:
        missing = [each for each in (home, *home.parents) if each != nearest and each.is_relative_to(nearest)]
        try:
            for each in reversed(missing):
                with suppress(FileExistsError):
                    each.mkdir()
                    made.callback(_remove_empty, each)
        except OSError as error:
            raise _unusable(folder, error) from None
        clear(home)
    return part_path(home, digits)


def _can_be_renamed(place: Path) -> bool:
    """Not so a mount, a folder that somebody stands in (us), or one in a folder that cannot be written in."""
    here = Path(os.path.realpath(os.curdir))
    return not os.path.ismount(place) and not here.is_relative_to(place) and os.access(place.parent, os.W_OK | os.X_OK)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"run.dir: {folder} cannot be used ({error.strerror or error}); name another folder")


def _take_along(old: Path, staging: Path) -> None:
    """What lies in ``old`` and is no file of a run goes with the folder, as far as the new run has none."""
    for entry in os.scandir(old):
        new = staging / entry.name
        if entry.name in FILES or is_part(entry.name) or new.exists():
            continue
        if entry.name == FIGURES and entry.is_dir():
            shutil.copytree(entry.path, new)
        elif entry.name == REPORT:
            shutil.copy2(entry.path, new)
        else:  # made by the run itself: a live backend's images, by the thousand
            os.rename(entry.path, new)


def _move_in(staging: Path, folder: Path) -> None:
    """Put the files of ``staging`` into ``folder``, in which it lies; meanwhile there is no summary, so no run."""
    (folder / SUMMARY).unlink(missing_ok=True)
    for name in FILES[:0:-1]:
        if (staging / name).exists():
            os.replace(staging / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    os.replace(staging / SUMMARY, folder / SUMMARY)


def _exchange(staging: Path, folder: Path) -> None:
    """Swap two folders, at one instant where the system can."""
    old = hold(folder)  # so that nobody takes it for a part that is nobody's, once it lies where that was
    try:
        if not _exchanged(staging, folder):
            # Two renames then; a reader may find no folder in between, never a mixed one.
            aside = part_path(staging.parent)
            os.rename(folder, aside)
            os.rename(staging, folder)
            os.rename(aside, staging)
        shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(old)


def _exchanged(one: Path, other: Path) -> bool:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
