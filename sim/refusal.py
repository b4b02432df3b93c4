"""How the command line says no: one message on standard error, exit status 2."""

import sys

from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

USAGE_ERROR = 2


def refuse(error: Exception, where: str = "") -> int:
    """Say in one line what ``error`` is, and before it ``where`` it was met; returns the exit status."""
    message = str(error).partition("Config search path")[0]
    if isinstance(error, MissingMandatoryValue):
        message = f"{error.full_key}: needs a value and nothing sets it; add {error.full_key}=... to the command"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: cannot be used ({error.strerror}); check the path or name another"
    elif isinstance(error, OmegaConfBaseException):
        message = message.partition("full_key:")[0]
    elif "@system." in message:
        message += "; the file of a system begins with the line: # @package _global_"
    print(f"mezzotint: error: {where}{' '.join(message.split())}", file=sys.stderr)
    return USAGE_ERROR
