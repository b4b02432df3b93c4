"""Errors and warnings of the command line: one line each on standard error, and exit status 2 after an error."""

import errno
import resource
import sys
from concurrent.futures.process import BrokenProcessPool

from omegaconf.errors import KeyValidationError, MissingMandatoryValue, OmegaConfBaseException

from mezzotint.files.printable import printable
from mezzotint.sim.core.errors import REFUSED, ConfigError
from mezzotint.sim.run.termination import interruption

USAGE_ERROR = 2
OUTPUT_GONE = 141
"""The exit status after the reader of a pipe has closed it, as of a command that SIGPIPE ends."""

MIN_ADDRESS_SPACE_BYTES = 1 << 30
"""The least limit on virtual memory: below it NumPy and Arrow fail to load, abort or hang.

Measured from 0.1 to 0.8 GB. A small run uses 0.2 GB and reserves 0.5 GB.
"""

MAX_CHARACTERS = 1000
"""Longest message; longer ones lose their middle, since they begin with the error and end with the remedy."""


def is_refused(error: Exception) -> bool:
    """Return True for an error that the user can correct."""
    from hydra.errors import HydraException  # slow to import, and most commands do not fail
    from yaml import YAMLError

    libraries = (HydraException, OmegaConfBaseException, YAMLError, OSError, MemoryError, BrokenProcessPool)
    return isinstance(error, REFUSED + libraries)


def refuse(error: Exception, where: str = "") -> int:
    """Print ``error`` as one line that begins with ``where``. Returns the exit status; raises as ``refusal`` does."""
    print(refusal(error, where), file=sys.stderr)
    return USAGE_ERROR


def refusal(error: Exception, where: str = "") -> str:
    """Return the message of ``error`` as one line that begins with ``where``. Raises as ``explain`` does."""
    return f"mezzotint: error: {_line(f'{where}{explain(error)}')}"


def explain(error: Exception) -> str:
    """Return what is wrong and what to do about it.

    Raises KeyboardInterrupt if a library made the error from one, as OmegaConf does.
    """
    if (stop := interruption(error)) is not None:
        raise stop from None
    while not str(error) and isinstance(error.__cause__, Exception):  # Hydra's, around OmegaConf's
        error = error.__cause__
    message = str(error).partition("Config search path")[0]
    if isinstance(error, MissingMandatoryValue):
        message = f"{error.full_key}: needs a value and nothing sets it; add {error.full_key}=... to the command"
    elif isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        reason = message or type(error).__name__
        message = f"memory ran out ({reason}); raise `ulimit -v`, free memory, or run fewer requests or points at once"
    elif isinstance(error, FileNotFoundError) and error.filename is None:
        message = "the working directory no longer exists; change to a folder that does"
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: cannot be used ({error.strerror}); check the path or name another"
    elif isinstance(error, BlockingIOError):  # of fork
        message = f"no process can be started ({error.strerror}); raise `ulimit -u`, or use fewer at once (--jobs 1)"
    elif isinstance(error, OSError) and error.errno is not None:
        message = f"the output cannot be written ({error.strerror}); free the disk or write elsewhere"
    elif isinstance(error, OmegaConfBaseException):
        reason = message.partition("full_key:")[0].rpartition(" raised while resolving interpolation: ")[2].strip()
        if isinstance(error, KeyValidationError):
            reason = "found a key that is not text; expected names, in quotes where YAML reads them as something else"
        reason = reason or "cannot be resolved; correct its ${...}"
        message = f"{error.full_key}: {reason}" if error.full_key and error.full_key not in reason else reason
    elif isinstance(error, BrokenProcessPool):
        message = (
            "a worker process was killed, perhaps for lack of memory; the same command continues where it stopped, and "
            "fewer processes at once (hydra.launcher.n_jobs=1, --jobs 1) take less memory"
        )
    elif "@system." in message:
        message += "; the file of a system begins with the line: # @package _global_"
    return message


def check_memory_limit(min_bytes: int = MIN_ADDRESS_SPACE_BYTES, why: str = "") -> None:
    """Raise ConfigError for a limit on virtual memory below ``min_bytes``, which ``why`` explains."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < min_bytes:
        raise ConfigError(
            f"ulimit -v: found {limit >> 10} KiB of virtual memory, expected {min_bytes >> 10} or more{why}; raise the "
            "limit, or limit resident memory instead (a cgroup)"
        )


def warn(message: str) -> None:
    """Print ``message`` as one line on standard error, marked as a warning."""
    print(f"mezzotint: warning: {_line(message)}", file=sys.stderr)


def _line(message: str) -> str:
    """Return ``message`` as one line without control characters, cut in its middle if it is long."""
    text = printable(" ".join(message.split()))
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS // 2]} ... {text[-MAX_CHARACTERS // 2 :]}"
