"""The life of a run directory: claimed before the run, written aside, put in its place as a whole. A run that was
killed leaves nothing but a hidden part, which the next one into the same folder removes; if all its files were written
by then, they are moved to their place."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from conf.atomic import READY, check_name, check_room, clear, contents, move_files, part
from conf.document import DocumentError, parse
from sim.core.errors import ConfigError

SUMMARY, REQUESTS, CLUSTER, CONFIG = "summary.json", "requests.parquet", "cluster.parquet", "config.yaml"
TIMELINE = "timeline.json.gz"
FILES = (SUMMARY, REQUESTS, CLUSTER, CONFIG, TIMELINE)
REPORT, FIGURES = "report.html", "figures"
"""What a report leaves in the directory of the run that it is about."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The run directory ``folder``, which this process alone may write; its files are written in ``staging``."""

    folder: Path
    staging: Path

    def publish(self) -> None:
        """Put what was written in its place; what else lies there by now, such as a report, stays beside it. Files of
        an earlier run are replaced, the summary first removed and last put there: without it there is no run.

        Raises ConfigError, naming the folder, where it cannot be put there.
        """
        place, ready = Path(os.path.realpath(self.folder)), self.staging
        try:
            if not place.exists():
                os.rename(ready, place)
                return
            if ready.parent.parent == place:  # an earlier run's: from here on a kill loses nothing
                ready = ready.rename(ready.with_name(READY))
            for name in set(FILES).difference(os.listdir(ready)):
                (place / name).unlink(missing_ok=True)
            move_files(ready, place)
        except OSError as error:
            raise _unusable(self.folder, error) from None


@contextmanager
def claimed(folder: Path, *, fresh: bool = False, wait: bool = False) -> Iterator[Claim]:
    """Claim a run directory until the block ends; of the block, ``Claim.publish`` is the last.

    Args:
        folder: the run directory, with its parents made where they are absent; a run there may be replaced.
        fresh: where ``folder`` is taken, claim folder-2, folder-3, ... instead.
        wait: for another process that has claimed it, instead of refusing.

    Raises ConfigError where the folder cannot be written, holds what is no run, or is claimed by another process.
    """
    number = 1
    while True:
        named = _numbered(folder, number)
        if fresh and os.path.lexists(named):
            number += 1
            continue
        check_place(named)
        place = Path(os.path.realpath(named))
        home = _home(place)
        try:
            with part(home, hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16], wait=wait) as own:
                if home != _home(place):  # another process has made it meanwhile
                    continue
                _refuse_other(named)
                staging = own / "run"
                staging.mkdir()
                yield Claim(named, staging)
                return
        except Timeout as busy:
            if not fresh:
                raise ConfigError(
                    f"run.dir: {named} is being written by another run; wait for it, or name another folder "
                    f"(if there is no such run, remove {Path(busy.lock_file).parent})"
                ) from None
            number += 1


def check_folder(folder: Path) -> None:
    """Raise ConfigError, before any long work, for a run directory that ``claimed`` would refuse. Makes nothing."""
    check_place(folder)
    clear(folder)
    _refuse_other(folder)


def check_place(folder: Path) -> None:
    """Refuse a folder that could not be made, or not be written in. Raises ConfigError."""
    check_name(folder, ConfigError)
    place = Path(os.path.realpath(folder))
    nearest = next(each for each in (place, *place.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"run.dir: {folder} cannot be used ({nearest} is no folder to write in); name another folder")
    check_room(nearest, ConfigError)


def unclaimed(folder: Path) -> Path:
    """Make ``folder``, or where it is taken folder-2, folder-3, ..., and return it. Raises ConfigError where it cannot
    be."""
    check_place(folder)
    for number in itertools.count(1):
        place = _numbered(folder, number)
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unusable(place, error) from None
        break
    return place


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


def _numbered(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def _home(place: Path) -> Path:
    """Return where the part of a run lies: in its folder if that is there, so that no folder is renamed over it."""
    return place if place.is_dir() else place.parent


def _refuse_other(folder: Path) -> None:
    found = contents(folder)
    is_run = holds_run(folder) or all((folder / name).is_file() for name in FILES[:4])  # a damaged one is one too
    if found and not is_run:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ConfigError(
            f"run.dir: {folder} holds what is not a run's ({found[0]}{more}); "
            "name a new folder, or that of an earlier run"
        )


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"run.dir: {folder} cannot be used ({error.strerror or error}); name another folder")
