"""Sweep folders: one command claims the folder, and continues there after an interruption.

The file ``.sweep`` holds the command. Points may run in other processes or on other machines.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import Timeout

from mezzotint.files.atomic import atomic_write, clear, contents, part
from mezzotint.files.document import parse_json
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import FIGURES, REPORT, SUMMARY, check_place
from mezzotint.sim.run.termination import end_workers

COMMAND, HYDRA_FILE, FAILED = ".sweep", "multirun.yaml", "failed.txt"
"""``failed.txt`` has a line for each point that failed in the last command."""


@contextmanager
def claim_sweep(folder: Path, words: Sequence[str]) -> Iterator[Path]:
    """Claim the folder of the sweep ``words`` until the block ends; remove it then if it stayed empty.

    Yields a folder for temporary files; it exists only as long as the claim.

    Raises ConfigError if another process runs a sweep there, or the folder holds something else.
    """
    check_place(folder)
    _refuse_other(folder)
    command, text = folder / COMMAND, json.dumps(list(words)).encode()
    try:
        with part(folder, "sweep") as claim:
            if not is_claimed(folder) or command.read_bytes() != text:
                _refuse_runs(folder)
                command.write_bytes(text)
            try:
                yield claim
            except KeyboardInterrupt:
                end_workers()  # which would write into the folder during the cleanup
                raise
            finally:
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


def is_claimed(folder: Path) -> bool:
    """Return True if ``folder`` belongs to a sweep."""
    return (folder / COMMAND).is_file()


def command_of(folder: Path) -> list[str]:
    """Return the words of the command that claimed ``folder``; empty if there is none, or it cannot be read."""
    try:
        words = parse_json((folder / COMMAND).read_bytes())
    except (OSError, ValueError):  # ValueError: interrupted while it was written
        return []
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else []


def record_failures(folder: Path, lines: Sequence[str]) -> None:
    """Write ``lines``, one of each point that failed, into the sweep's folder; without any, remove what was there."""
    path = folder / FAILED
    if not lines:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path, ConfigError) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def failures(folder: Path) -> list[str]:
    """Return the lines of the points of the sweep in ``folder`` that failed; none if it is no sweep's."""
    try:
        text = (folder / FAILED).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines() if is_claimed(folder) else []


def _refuse_runs(folder: Path) -> None:
    if any(folder.glob(f"*/{SUMMARY}")):
        raise ConfigError(f"run.dir: {folder} holds the runs of another sweep; remove it or name another folder")


def _refuse_other(folder: Path) -> None:
    if is_claimed(folder):
        return
    _refuse_runs(folder)
    others = [name for name in contents(folder) if name not in (HYDRA_FILE, FAILED, REPORT, FIGURES)]
    if others:
        raise ConfigError(f"run.dir: {folder} holds what is not a sweep's ({others[0]}); name a new folder")
