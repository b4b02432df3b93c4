"""Errors and warnings of the command line: one line each on standard error; after an error, exit status 2."""

import re
import sys

from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from conf.printable import printable
from sim.ending import interruption

USAGE_ERROR = 2

_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
"""How OmegaConf begins where a resolver failed: with a class of Python's, and without the key."""

_KEY = re.compile(r"Incompatible key type '\w+'")

LONGEST = 1000
"""Characters of a message; it begins with what is wrong and ends with what to do."""


def refuse(error: Exception, where: str = "") -> int:
    """Say in one line what ``error`` is, and before it ``where`` it was met; returns the exit status.

    Raises KeyboardInterrupt where the error is what a library made of one: a ``finally`` of OmegaConf's fails on what
    was begun, and what it says is no fault of the user's.
    """
    if (stop := interruption(error)) is not None:
        raise stop from None
    while not str(error) and isinstance(error.__cause__, Exception):  # Hydra's, around what OmegaConf says
        error = error.__cause__
    message = str(error).partition("Config search path")[0]
    if isinstance(error, MissingMandatoryValue):
        message = f"{error.full_key}: needs a value and nothing sets it; add {error.full_key}=... to the command"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: cannot be used ({error.strerror}); check the path or name another"
    elif isinstance(error, OSError) and error.errno is not None:
        message = f"what was asked for cannot be written ({error.strerror}); free the disk or write elsewhere"
    elif isinstance(error, OmegaConfBaseException):
        message = _KEY.sub(
            "found a key that is no text; expected names, in quotes where YAML reads them as other", message
        )
        said = _RAISED.sub("", message.partition("full_key:")[0].strip()) or "cannot be resolved; correct its ${...}"
        message = f"{error.full_key}: {said}" if error.full_key and error.full_key not in said else said
    elif "@system." in message:
        message += "; the file of a system begins with the line: # @package _global_"
    print(f"mezzotint: error: {_line(f'{where}{message}')}", file=sys.stderr)
    return USAGE_ERROR


def warn(message: str) -> None:
    """Print ``message`` as one line on standard error, marked as a warning."""
    print(f"mezzotint: warning: {_line(message)}", file=sys.stderr)


def _line(message: str) -> str:
    """``message`` as one line that a terminal shows as it is, without the middle of what was found where that is long.

    What was found may be anything: a control character would act on the terminal, a value can fill pages.
    """
    text = printable(" ".join(message.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
