"""The command line: ``mezzotint VERB``."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from mezzotint.files.printable import printable_output
from mezzotint.sim.run.commands import command_of, overview, refuse_words, run_command, words_after
from mezzotint.sim.run.refusal import OUTPUT_GONE, USAGE_ERROR, check_memory_limit, is_refused, refuse
from mezzotint.sim.run.termination import Terminated, end_workers, interruptible, interruption

HELP = ("-h", "--help")

COMPLETION = ("--install-completion", "--show-completion")
"""Typer's options that write the shell's script into its start-up file, or print it."""

COMPLETING = "_MEZZOTINT_COMPLETE"
"""Environment variable of that script, which asks what may follow the words so far."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0, or 2 for anything that the user can put right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    with printable_output():  # names come from files of others
        return _status(given)


def _status(given: Sequence[str]) -> int:
    status = 0
    try:
        os.getcwd()  # raises here, since libraries fail obscurely without a working directory
        try:
            status = _dispatch(given)
        finally:
            sys.stdout.flush()  # a failure to write must be reported
    except BrokenPipeError:
        _discard_output()
        return OUTPUT_GONE
    except OSError as error:
        status = status or refuse(error)
        _discard_output()
    return status


def _dispatch(given: Sequence[str]) -> int:
    """Run the command or print the help that ``given`` asks for. Returns the exit status."""
    try:
        if given[:1] == ["--version"]:
            from importlib.metadata import version

            print(f"mezzotint {version('mezzotint')}")
            return 0
        if COMPLETING in os.environ or (given and given[0] in COMPLETION):
            from mezzotint.sim.run.completion import complete  # slow to import, and seldom needed

            complete(given)
        check_memory_limit()
        with interruptible():
            words = command_of(given)
            if words is not None:
                return run_command(words, given[len(words.split()) :])
            if not given or given[0] in HELP:
                print(overview())
                return 0 if given else USAGE_ERROR
            if len(given) > 1 and given[1] in HELP and words_after(given[0]):
                print(overview(given[0]))
                return 0
            refuse_words(given)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if (stop := interruption(error)) is not None:
            end_workers()
            print("mezzotint: interrupted", file=sys.stderr)
            return 143 if isinstance(stop, Terminated) else 130
        if isinstance(error, Exception) and is_refused(error):
            return refuse(error)
        raise


def _discard_output() -> None:
    """Redirect standard output to the null device: Python would retry and fail to write its buffer at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Connect every standard stream that the caller closed (``>&-``) to the null device.

    Libraries do not expect the None that Python puts there, and the next open file would take the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
