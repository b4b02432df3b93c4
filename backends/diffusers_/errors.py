"""The one error of the live backend."""

from backends.base import BackendError


class LiveError(BackendError):
    """Something asked of a live model that it cannot do; the text says what was found and what to do."""
