"""Arguments of the Python API that are paths or names, checked where they come in."""

import os
from collections.abc import Iterable
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from mezzotint.sim.core.errors import ConfigError


def as_path(name: str, value: Any) -> Path:
    """Return the path that an argument is. Raises ConfigError if it is none, or has a NUL character."""
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise ConfigError(f"{name}: found {shortened(value)}, expected a path; write it as text without NUL")
    return Path(value)


def as_texts(name: str, value: Any) -> list[str]:
    """Return the texts of an argument that is one or several. Raises ConfigError for other values."""
    texts = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise ConfigError(f"{name}: found {shortened(text)}, expected a name or a list of names; write it as text")
    return texts
