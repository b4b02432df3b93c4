"""The life of a sweep's folder: one sweep at a time, and of one command, which goes on where it was interrupted. The
file ``.sweep`` holds the command. Points may run in processes or on other machines: each leaves a note with its line,
and the command prints the lines."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from filelock import Timeout
from tqdm import tqdm

from conf.atomic import atomic_write, clear, contents, part
from sim.core.errors import ConfigError
from sim.core.run_folder import FIGURES, REPORT, SUMMARY, check_place
from sim.run.termination import end_workers

COMMAND, HYDRAS = ".sweep", "multirun.yaml"

LOOK_S = 0.5
"""Between two looks at how far a sweep is."""

_NOTE = ".point-{}-{}"
"""The file name of a note: the number of the point, and how the point ended."""


@contextmanager
def claimed_sweep(folder: Path, words: Sequence[str]) -> Iterator[None]:
    """Claim the folder of a sweep, told from others by ``words``, until the block ends. It goes again if nothing of the
    sweep was put there. Raises ConfigError where another process runs a sweep there, or it holds something else."""
    check_place(folder)
    _refuse_other(folder)
    command, said = folder / COMMAND, json.dumps(list(words)).encode()
    try:
        with part(folder, "sweep"):
            if not is_claimed(folder) or command.read_bytes() != said:
                _refuse_runs(folder)
                command.write_bytes(said)
            _forget(folder)
            try:
                yield
            except KeyboardInterrupt:
                end_workers()  # which would write into the folder while it is tidied
                raise
            finally:
                _forget(folder)
                for name in filter(str.isdigit, contents(folder)):
                    clear(folder / name)
                    with suppress(OSError):  # it holds a run
                        (folder / name).rmdir()
                if contents(folder) == [COMMAND]:
                    command.unlink()
    except Timeout:
        raise ConfigError(
            f"run.dir: another sweep is running in {folder}; wait for it, or name another folder"
        ) from None
    finally:
        with suppress(OSError):  # something of the sweep is there
            folder.rmdir()


@contextmanager
def counted(folder: Path, points: int) -> Iterator[None]:
    """Print the line of each of ``points`` points of the sweep in ``folder`` as it ends, while the block runs.

    A failed point's line goes to standard error. A bar counts the points where standard error is a terminal. An OSError
    of a line that could not be written is raised after the block, so the points still run.
    """
    ended = threading.Event()
    seen: set[Path] = set()
    unwritten: list[OSError] = []
    with tqdm(total=points, unit="run", desc=folder.name, disable=not sys.stderr.isatty()) as bar:

        def look() -> None:
            for note in sorted(set(_notes(folder)) - seen, key=lambda note: int(note.name.split("-")[1])):
                seen.add(note)
                bar.update()
                if not unwritten and (text := note.read_text(encoding="utf-8")):
                    stream = sys.stderr if note.name.endswith("failed") else sys.stdout
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
    """Return True if ``folder`` is that of a sweep."""
    return (folder / COMMAND).is_file()


def mark(folder: Path, number: int, end: Literal["done", "kept", "failed"], line: str) -> None:
    """Note how point ``number`` ended, and the line to print; ``kept``: its run was there before the sweep began."""
    note = folder / _NOTE.format(number, end)
    try:
        with atomic_write(note, ConfigError) as temporary:
            temporary.write_text(line, encoding="utf-8")
    except ConfigError:  # a full disk may still take a name
        print(line, file=sys.stderr if end == "failed" else sys.stdout)
        note.touch()


def finished_points(folder: Path) -> Counter[str]:
    """Return the number of points by how they ended: done, kept or failed."""
    return Counter(note.name.split("-")[2] for note in _notes(folder))


def _notes(folder: Path) -> list[Path]:
    return list(folder.glob(_NOTE.format("*", "*")))


def _forget(folder: Path) -> None:
    for note in _notes(folder):
        note.unlink(missing_ok=True)


def _refuse_runs(folder: Path) -> None:
    if any(folder.glob(f"*/{SUMMARY}")):
        raise ConfigError(f"run.dir: {folder} holds the runs of another sweep; remove it or name another folder")


def _refuse_other(folder: Path) -> None:
    if is_claimed(folder):
        return
    _refuse_runs(folder)
    found = [name for name in contents(folder) if name not in (HYDRAS, REPORT, FIGURES)]
    if found:
        raise ConfigError(f"run.dir: {folder} holds what is not a sweep's ({found[0]}); name a new folder")
