"""The one error of the quality metrics."""

from backends.base import BackendError


class QualityError(BackendError):
    """A metric cannot be had: the message names the images or the weights, and what to do."""
