"""The one error of the live backend, and the one message about packages that are not there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from backends.base import BackendError


class LiveError(BackendError):
    """Something asked of a live model that it cannot do; the text says what was found and what to do."""


def require(package: str) -> Any:
    """Import ``package`` of the live extra, late, so that the rest of the house works without it.

    Args:
        package: importable name, such as ``"diffusers"`` or ``"safetensors.torch"``.

    Raises:
        ImportError: the package is missing; the text names the extra that brings it.
    """
    try:
        return import_module(package)
    except ImportError as absent:
        raise ImportError(
            f"the live backend needs the package {package!r}, which could not be imported ({absent}); "
            "install it with: pip install 'mezzotint[live]'"
        ) from absent
