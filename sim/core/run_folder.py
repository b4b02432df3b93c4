"""Run folders: claimed before the run, written in a hidden staging folder, and published as a whole.

A killed run leaves only its staging folder. The next run in the same folder removes it, or publishes its files if all
were written.
"""

import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from mezzotint.files.atomic import READY, check_name, check_room, clear, contents, move_files, part
from mezzotint.files.document import DocumentError, parse, parse_json
from mezzotint.sim.core.errors import ConfigError

SUMMARY, REQUESTS, CLUSTER, CONFIG = "summary.json", "requests.parquet", "cluster.parquet", "config.yaml"
TIMELINE, ATTEMPTS = "timeline.json.gz", "attempts.parquet"
FILES = (SUMMARY, REQUESTS, CLUSTER, CONFIG, TIMELINE, ATTEMPTS)
REPORT, FIGURES = "report.html", "figures"
"""Files that a report adds to the folder of a run."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on the run folder ``folder`` by this process; files are written in ``staging``."""

    folder: Path
    staging: Path

    def publish(self) -> None:
        """Move the staged files into the folder, over those of an earlier run; other files, such as a report, stay.

        The old summary is removed first and the new one moved last, since a folder without a summary holds no run.
        Raises ConfigError if the folder cannot be written.
        """
        place, ready = Path(os.path.realpath(self.folder)), self.staging
        try:
            if not place.exists():
                os.rename(ready, place)
                return
            if ready.parent.parent == place:  # over an earlier run: after this, a kill loses nothing
                ready = ready.rename(ready.with_name(READY))
            for name in set(FILES).difference(os.listdir(ready)):
                (place / name).unlink(missing_ok=True)
            move_files(ready, place)
        except OSError as error:
            raise _unusable(self.folder, error) from None


@contextmanager
def claim_folder(folder: Path, *, fresh: bool = False, wait: bool = False) -> Iterator[Claim]:
    """Claim a run folder until the block ends, with ``Claim.publish`` as its last call.

    Args:
        folder: the run folder; absent parents are made, and a run there may be replaced.
        fresh: if ``folder`` exists, claim folder-2, folder-3, ... instead.
        wait: wait for a process that has claimed it, instead of raising.

    Raises ConfigError if the folder cannot be written, holds something other than a run, or is claimed.
    """
    for number in itertools.count(1):
        named = _add_number(folder, number) if fresh else folder
        if fresh and os.path.lexists(named):
            continue
        check_place(named)
        place = Path(os.path.realpath(named))
        home = _home(place)
        try:
            with part(home, hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16], wait=wait) as own:
                if home != _home(place):  # another process has made it since
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


def check_folder(folder: Path) -> None:
    """Raise ConfigError for a run folder that ``claim_folder`` would refuse; creates nothing."""
    check_place(folder)
    clear(folder)
    _refuse_other(folder)


def check_place(folder: Path) -> None:
    """Raise ConfigError for a folder that cannot be made or written in."""
    check_name(folder, ConfigError)
    place = Path(os.path.realpath(folder))
    nearest = next(each for each in (place, *place.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"run.dir: {folder} cannot be used ({nearest} is no folder to write in); name another folder")
    check_room(nearest, ConfigError)


def make_free_folder(folder: Path) -> Path:
    """Make ``folder``, or folder-2, folder-3, ... if it exists, and return it.

    Raises ConfigError if it cannot be made.
    """
    check_place(folder)
    for number in itertools.count(1):
        place = _add_number(folder, number)
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unusable(place, error) from None
        break
    return place


def holds_run(folder: Path) -> bool:
    """Return True if ``folder`` holds a finished run."""
    try:
        summary = parse_json((folder / SUMMARY).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and "schema" in summary and (folder / CONFIG).is_file()


def config_of(folder: Path) -> object:
    """Return the configuration of the run in ``folder``; None if it cannot be read."""
    try:
        return parse((folder / CONFIG).read_bytes())
    except (OSError, DocumentError):
        return None


def _add_number(folder: Path, number: int) -> Path:
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


def _home(place: Path) -> Path:
    """Return the parent of the staging folder: the run folder if it exists, so that none is renamed over it."""
    return place if place.is_dir() else place.parent


def _refuse_other(folder: Path) -> None:
    found = contents(folder)
    is_run = holds_run(folder) or all((folder / name).is_file() for name in FILES[:4])  # or a damaged one
    if found and not is_run:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ConfigError(
            f"run.dir: {folder} holds what is not a run's ({found[0]}{more}); "
            "name a new folder, or that of an earlier run"
        )


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"run.dir: {folder} cannot be used ({error.strerror or error}); name another folder")
