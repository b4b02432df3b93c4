"""The life of a sweep's folder: one sweep at a time, and of one command, which goes on where it was interrupted.

The file ``.sweep`` in it holds the command; whoever runs it holds the file's lock (flock), which ends with the process
however that ends. A point that fails leaves its mark beside it, by which the command knows at its end: points may run
in processes, or on machines, that it hears nothing of.
"""

import fcntl
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tqdm import tqdm

from conf.part import clear, is_part
from sim.errors import ConfigError
from sim.rundir import FIGURES, REPORT, SUMMARY, check_place

COMMAND, HYDRAS = ".sweep", "multirun.yaml"
_FAILED = ".failed-"
LOOK_S = 0.5
"""Between two looks at how far a sweep is."""


@contextmanager
def claimed_sweep(folder: Path, words: Sequence[str]) -> Iterator[None]:
    """Claim the folder of a sweep until the block ends.

    Args:
        folder: made where it is absent; it goes again if nothing of the sweep was put there.
        words: what tells this sweep from others.

    Raises:
        ConfigError: another process runs a sweep there, or it holds something else than earlier points of this one.
    """
    check_place(folder)
    _refuse_other(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / COMMAND, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(f"run.dir: {folder} cannot be used ({error.strerror}); name another folder") from None
    try:
        if not _lock(lock):
            raise ConfigError(f"run.dir: another sweep is running in {folder}; wait for it, or name another folder")
        said = json.dumps(list(words)).encode()
        known = os.read(lock, 1 << 20)
        if known != said:
            if any(folder.glob(f"*/{SUMMARY}")):
                raise _other_sweep(folder)
            os.ftruncate(lock, 0)
            os.pwrite(lock, said, 0)
        clear(folder)
        for mark in folder.glob(f"{_FAILED}*"):
            mark.unlink(missing_ok=True)
        try:
            yield
        finally:
            _tidy(folder)
    finally:
        os.close(lock)


@contextmanager
def counted(folder: Path, points: int | None) -> Iterator[None]:
    """Show how many points of the sweep in ``folder`` are there while the block runs, where standard error is a
    terminal: points run in processes, or on machines, that nothing is heard of. ``points`` is None where not known."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    with tqdm(total=points, unit="run", desc=folder.name) as bar:

        def look() -> None:
            while not done.wait(LOOK_S):
                bar.update(sum(1 for _ in folder.glob(f"*/{SUMMARY}")) + len(failed(folder)) - bar.n)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            done.set()
            looking.join()
            bar.update(sum(1 for _ in folder.glob(f"*/{SUMMARY}")) + len(failed(folder)) - bar.n)


def is_claimed(folder: Path) -> bool:
    """Whether ``folder`` is that of a sweep."""
    return (folder / COMMAND).is_file()


def mark_failed(folder: Path, number: int) -> None:
    """Note that a point has failed."""
    (folder / f"{_FAILED}{number}").touch()


def failed(folder: Path) -> list[int]:
    """The numbers of the points that have failed."""
    return sorted(int(mark.name.removeprefix(_FAILED)) for mark in folder.glob(f"{_FAILED}*"))


def _lock(lock: int) -> bool:
    """Take the lock; whether nobody else has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _other_sweep(folder: Path) -> ConfigError:
    return ConfigError(f"run.dir: {folder} holds the runs of another sweep; remove it or name another folder")


def _refuse_other(folder: Path) -> None:
    """Refuse a folder that no sweep of ours was begun in and that holds something."""
    if not folder.is_dir() or is_claimed(folder):
        return
    if any(folder.glob(f"*/{SUMMARY}")):
        raise _other_sweep(folder)
    ours = {HYDRAS, REPORT, FIGURES}
    found = sorted(entry.name for entry in os.scandir(folder) if not is_part(entry.name) and entry.name not in ours)
    if found:
        raise ConfigError(f"run.dir: {folder} holds what is not a sweep's ({found[0]}); name a new folder")


def _tidy(folder: Path) -> None:
    """Remove what unfinished points left, and the sweep's own folder if it holds nothing else."""
    clear(folder)
    for entry in list(os.scandir(folder)):
        if entry.is_dir() and entry.name.isdigit():
            with suppress(OSError):
                os.rmdir(entry.path)
    if {entry.name for entry in os.scandir(folder)} == {COMMAND}:
        shutil.rmtree(folder, ignore_errors=True)
