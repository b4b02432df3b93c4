"""Errors and warnings of the command line: one line each on standard error; after an error, exit status 2."""

import errno
import resource
import sys
from concurrent.futures.process import BrokenProcessPool

from omegaconf.errors import KeyValidationError, MissingMandatoryValue, OmegaConfBaseException

from conf.printable import printable
from sim.core.errors import REFUSED, ConfigError
from sim.run.termination import interruption

USAGE_ERROR = 2
OUTPUT_GONE = 141
"""The exit status where the reader of a pipe has gone: that of a command which SIGPIPE ends."""

MIN_ADDRESS_SPACE_BYTES = 1 << 30
"""Below this limit on virtual memory NumPy's and Arrow's libraries fail to load, abort or hang.

Measured: so from 0.1 to 0.8 GB. A small run uses 0.2 GB, and reserves 0.5 GB.
"""

LONGEST = 1000
"""Characters of a message; it begins with what is wrong and ends with what to do."""


def is_refused(error: Exception) -> bool:
    """Return True for what the user can put right."""
    from hydra.errors import HydraException  # takes a while, and most commands fail at nothing
    from yaml import YAMLError

    libraries = (HydraException, OmegaConfBaseException, YAMLError, OSError, MemoryError, BrokenProcessPool)
    return isinstance(error, REFUSED + libraries)


def refuse(error: Exception, where: str = "") -> int:
    """Print ``error`` as one line, after ``where`` it was met; returns the exit status. Raises as ``refusal``."""
    print(refusal(error, where), file=sys.stderr)
    return USAGE_ERROR


def refusal(error: Exception, where: str = "") -> str:
    """Return the line that says what ``error`` is, after ``where`` it was met. Raises KeyboardInterrupt where the error
    is what a library made of one, as a ``finally`` of OmegaConf's does."""
    if (stop := interruption(error)) is not None:
        raise stop from None
    while not str(error) and isinstance(error.__cause__, Exception):  # Hydra's, around what OmegaConf says
        error = error.__cause__
    message = str(error).partition("Config search path")[0]
    if isinstance(error, MissingMandatoryValue):
        message = f"{error.full_key}: needs a value and nothing sets it; add {error.full_key}=... to the command"
    elif isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        found = message or type(error).__name__
        message = f"memory ran out ({found}); raise `ulimit -v`, free memory, or run fewer requests or points at once"
    elif isinstance(error, FileNotFoundError) and error.filename is None:
        message = "the working directory no longer exists; change to a folder that does"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: cannot be used ({error.strerror}); check the path or name another"
    elif isinstance(error, OSError) and error.errno is not None:
        message = f"what was asked for cannot be written ({error.strerror}); free the disk or write elsewhere"
    elif isinstance(error, OmegaConfBaseException):
        said = message.partition("full_key:")[0].rpartition(" raised while resolving interpolation: ")[2].strip()
        if isinstance(error, KeyValidationError):
            said = "found a key that is no text; expected names, in quotes where YAML reads them as other"
        said = said or "cannot be resolved; correct its ${...}"
        message = f"{error.full_key}: {said}" if error.full_key and error.full_key not in said else said
    elif isinstance(error, BrokenProcessPool):
        message = (
            "a worker process was killed, perhaps for want of memory; the same command goes on where it stopped, "
            "hydra.launcher.n_jobs=1 takes the least"
        )
    elif "@system." in message:
        message += "; the file of a system begins with the line: # @package _global_"
    return f"mezzotint: error: {_line(f'{where}{message}')}"


def check_memory_limit() -> None:
    """Raise ConfigError for a limit on virtual memory below MIN_ADDRESS_SPACE_BYTES."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < MIN_ADDRESS_SPACE_BYTES:
        raise ConfigError(
            f"ulimit -v: found {limit >> 10} KiB of virtual memory, expected {MIN_ADDRESS_SPACE_BYTES >> 10} or more; "
            "raise the limit, or limit resident memory instead (a cgroup)"
        )


def warn(message: str) -> None:
    """Print ``message`` as one line on standard error, marked as a warning."""
    print(f"mezzotint: warning: {_line(message)}", file=sys.stderr)


def _line(message: str) -> str:
    """``message`` as one line without control characters, and without the middle of what was found where that is
    long."""
    text = printable(" ".join(message.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
