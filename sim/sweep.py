"""The life of a sweep's folder: one sweep at a time, and of one command, which goes on where it was interrupted.

The file ``.sweep`` in it holds the command; whoever runs it holds the file's lock (flock), which ends with the process
however that ends. Points may run in processes, or on machines, whose output goes elsewhere. So each point leaves a note
with its line in the folder, and the command prints the lines: a sweep prints the same with every launcher.
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
from typing import TextIO

from tqdm import tqdm

from conf.atomic import atomic_write
from conf.part import clear, is_part
from sim.errors import ConfigError
from sim.rundir import FIGURES, REPORT, SUMMARY, check_place

COMMAND, HYDRAS = ".sweep", "multirun.yaml"
_DONE, _KEPT, _FAILED = ".done-", ".kept-", ".failed-"
"""Beginnings of a note's file name; the number of the point follows."""

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
        _remove(folder, _DONE, _KEPT, _FAILED)
        try:
            yield
        finally:
            _tidy(folder)
    finally:
        os.close(lock)


@contextmanager
def counted(folder: Path, points: int | None) -> Iterator[None]:
    """Print the line of each point of the sweep in ``folder`` as it ends, while the block runs.

    A failed point's line goes to standard error. A bar counts the points where standard error is a terminal.

    Args:
        folder: the sweep's folder.
        points: the number of points; None where not known.

    Raises:
        OSError: a line could not be written; raised after the block, so the points still run.
    """
    ended = threading.Event()
    seen: set[str] = set()
    unwritten: list[OSError] = []
    with tqdm(total=points, unit="run", desc=folder.name, disable=not sys.stderr.isatty()) as bar:

        def look() -> None:
            for note in sorted(_notes(folder, _DONE, _KEPT, _FAILED), key=_number):
                if note.name in seen:
                    continue
                seen.add(note.name)
                bar.update()
                stream = sys.stderr if note.name.startswith(_FAILED) else sys.stdout
                if not unwritten and (text := note.read_text(encoding="utf-8")):
                    try:
                        tqdm.write(text, file=stream)
                        stream.flush()
                    except OSError as error:
                        unwritten.append(error)

        def keep_looking() -> None:
            while not ended.wait(LOOK_S):
                look()

        looking = threading.Thread(target=keep_looking, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
            look()
    if unwritten:
        raise unwritten[0]


def is_claimed(folder: Path) -> bool:
    """Whether ``folder`` is that of a sweep."""
    return (folder / COMMAND).is_file()


def mark_done(folder: Path, number: int, line: str, *, kept: bool) -> None:
    """Note that a point has its run, and the line to print; ``kept`` if the run was there before the sweep began."""
    _leave(folder / f"{_KEPT if kept else _DONE}{number}", line, sys.stdout)


def mark_failed(folder: Path, number: int, line: str) -> None:
    """Note that a point has failed, and the line to print."""
    _leave(folder / f"{_FAILED}{number}", line, sys.stderr)


def ended_points(folder: Path) -> int:
    """The number of points that have a run or have failed."""
    return len(_notes(folder, _DONE, _KEPT, _FAILED))


def kept_points(folder: Path) -> int:
    """The number of points whose runs were there before the sweep began, as far as they were looked at."""
    return len(_notes(folder, _KEPT))


def failed(folder: Path) -> list[int]:
    """The numbers of the points that have failed."""
    return sorted(map(_number, _notes(folder, _FAILED)))


def _notes(folder: Path, *beginnings: str) -> list[Path]:
    return [note for beginning in beginnings for note in folder.glob(f"{beginning}*")]


def _number(note: Path) -> int:
    return int(note.name.rpartition("-")[2])


def _leave(note: Path, line: str, instead: TextIO) -> None:
    """Write a note as a whole; where only its name can be written, as on a full disk, print the line here."""
    try:
        with atomic_write(note, ConfigError) as temporary:
            temporary.write_text(line, encoding="utf-8")
    except ConfigError:
        print(line, file=instead)
        note.touch()


def _remove(folder: Path, *beginnings: str) -> None:
    for note in _notes(folder, *beginnings):
        note.unlink(missing_ok=True)


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
    _remove(folder, _DONE, _KEPT)
    for entry in list(os.scandir(folder)):
        if entry.is_dir() and entry.name.isdigit():
            with suppress(OSError):
                os.rmdir(entry.path)
    if {entry.name for entry in os.scandir(folder)} == {COMMAND}:
        shutil.rmtree(folder, ignore_errors=True)
