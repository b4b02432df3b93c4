"""Sweep folders: one command claims the folder, and continues there after an interruption.

The file ``.sweep`` holds the command. Points may run in other processes or on other machines. Each leaves a note with
its result line, and the command prints the lines.
"""

import json
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from filelock import Timeout
from tqdm import tqdm

from mezzotint.files.atomic import atomic_write, clear, contents, part
from mezzotint.files.document import parse_json
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import FIGURES, REPORT, SUMMARY, check_place
from mezzotint.sim.run.termination import end_workers

COMMAND, HYDRA_FILE = ".sweep", "multirun.yaml"

POLL_S = 0.5
"""Seconds between two looks for new notes."""

_NOTE = ".point-{}-{}"
"""The file name of a note: the number of the point, and how the point ended."""


@contextmanager
def claimed_sweep(folder: Path, words: Sequence[str]) -> Iterator[Path]:
    """Claim the folder of the sweep ``words`` until the block ends; remove it then if it stayed empty.

    Yields a file that exists only as long as the claim, for workers that cannot see this process.

    Raises ConfigError if another process runs a sweep there, or the folder holds something else.
    """
    check_place(folder)
    _refuse_other(folder)
    command, text = folder / COMMAND, json.dumps(list(words)).encode()
    try:
        with part(folder, "sweep") as claim:
            alive = claim / uuid.uuid4().hex  # that of the next claim has another name
            alive.touch()
            if not is_claimed(folder) or command.read_bytes() != text:
                _refuse_runs(folder)
                command.write_bytes(text)
            _remove_notes(folder)
            try:
                yield alive.absolute()
            except KeyboardInterrupt:
                alive.unlink()
                end_workers()  # which would write into the folder during the cleanup
                raise
            finally:
                _remove_notes(folder)
                for name in filter(str.isdigit, contents(folder)):
                    clear(folder / name)
                    with suppress(OSError):  # not empty: it holds a run
                        (folder / name).rmdir()
                if contents(folder) == [COMMAND]:
                    command.unlink()
    except Timeout:
        raise ConfigError(
            f"run.dir: another sweep is running in {folder}; wait for it, or name another folder"
        ) from None
    finally:
        with suppress(OSError):  # not empty: it holds points
            folder.rmdir()


@contextmanager
def counted(folder: Path, points: int) -> Iterator[None]:
    """Print the result lines of a sweep's ``points`` as they end, while the block runs.

    Lines of failed points go to standard error. A bar counts the points if standard error is a terminal. An OSError on
    printing is raised after the block, so that the points still run.
    """
    ended = threading.Event()
    seen: set[Path] = set()
    unwritten: list[OSError] = []
    with tqdm(total=points, unit="run", desc=folder.name, disable=not sys.stderr.isatty()) as bar:

        def print_new() -> None:
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

        def poll() -> None:
            while not ended.wait(POLL_S):
                print_new()

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            ended.set()
            poller.join()
            print_new()
    if unwritten:
        raise unwritten[0]


def is_claimed(folder: Path) -> bool:
    """Return True if ``folder`` belongs to a sweep."""
    return (folder / COMMAND).is_file()


def command_of(folder: Path) -> list[str]:
    """Return the words of the command that claimed ``folder``; empty if there is none, or it cannot be read."""
    try:
        found = parse_json((folder / COMMAND).read_bytes())
    except (OSError, ValueError):  # ValueError: interrupted while it was written
        return []
    return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else []


def mark(folder: Path, number: int, end: Literal["done", "kept", "failed"], line: str) -> None:
    """Leave a note on the end of point ``number`` with its line; ``kept`` is a run from before this command."""
    note = folder / _NOTE.format(number, end)
    try:
        with atomic_write(note, ConfigError) as temporary:
            temporary.write_text(line, encoding="utf-8")
    except ConfigError:  # a full disk may still take an empty file
        print(line, file=sys.stderr if end == "failed" else sys.stdout)
        note.touch()


def finished_points(folder: Path) -> Counter[str]:
    """Return the number of points that are done, kept and failed."""
    return Counter(note.name.split("-")[2] for note in _notes(folder))


def _notes(folder: Path) -> list[Path]:
    return list(folder.glob(_NOTE.format("*", "*")))


def _remove_notes(folder: Path) -> None:
    for note in _notes(folder):
        note.unlink(missing_ok=True)


def _refuse_runs(folder: Path) -> None:
    if any(folder.glob(f"*/{SUMMARY}")):
        raise ConfigError(f"run.dir: {folder} holds the runs of another sweep; remove it or name another folder")


def _refuse_other(folder: Path) -> None:
    if is_claimed(folder):
        return
    _refuse_runs(folder)
    found = [name for name in contents(folder) if name not in (HYDRA_FILE, REPORT, FIGURES)]
    if found:
        raise ConfigError(f"run.dir: {folder} holds what is not a sweep's ({found[0]}); name a new folder")
