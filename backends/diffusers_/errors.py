"""The one error of the live backend."""

from mezzotint.backends.base import BackendError


class LiveError(BackendError):
    """A live model cannot do a task; the message says what was found and the remedy."""
