"""The command line: ``mezzotint VERB``."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sim.commands import command_of, overview, run_command
from sim.ending import Terminated, end_workers, interruption, told_to_stop
from sim.errors import ConfigError
from sim.refusal import OUTPUT_GONE, USAGE_ERROR, check_memory_limit, is_refused, refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0, or 2 for anything that the user can put right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    status = 0
    try:
        here = os.getcwd()
        if arguments is None:
            _leave_working_directory(here)
        try:
            status = _done(given)
        finally:
            sys.stdout.flush()  # while it can still be told that it cannot be written
    except BrokenPipeError:
        _let_go_of_output()
        return OUTPUT_GONE
    except OSError as error:
        status = status or refuse(error)
        _let_go_of_output()
    return status


def _done(given: Sequence[str]) -> int:
    """Do what was asked for; returns the exit status."""
    try:
        try:
            if given[:1] == ["--version"]:
                from importlib.metadata import version

                print(f"mezzotint {version('mezzotint')}")
                return 0
            check_memory_limit()
            with told_to_stop():
                words = command_of(given)
                if words is not None:
                    return run_command(words, given[len(words.split()) :])
                if given and given[0] not in ("-h", "--help"):
                    raise ConfigError(f"{given[0]}: is no command; `mezzotint --help` lists them")
                print(overview())
                return 0 if given else USAGE_ERROR
        except BrokenPipeError:
            raise
        except Exception as error:
            if (stop := interruption(error)) is not None:
                raise stop from None
            if is_refused(error):
                return refuse(error)
            raise
    except KeyboardInterrupt as stop:
        end_workers()
        print("mezzotint: interrupted", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130


def _let_go_of_output() -> None:
    """What is still held for standard output would be tried, and fail, again at the end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Connect every standard stream that the caller closed (``>&-``) to the null device, as if it were ignored.

    Python sets a closed stream to None, which libraries do not expect, and the next open file would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _leave_working_directory(here: str) -> None:
    """``python -m sim.cli`` puts the working directory before all else, where any file could pass for a library."""
    root = str(Path(__file__).parents[1])
    if sys.path[:1] == [here] != [root] and not sys.flags.safe_path:
        del sys.path[0]
    if root not in sys.path:
        sys.path.append(root)  # worker processes of a sweep take the path over before they import anything of ours


if __name__ == "__main__":
    sys.exit(main())
