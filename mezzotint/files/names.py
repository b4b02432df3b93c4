"""Names from a configuration or a trace that become names of files and folders."""

from pathlib import Path

MAX_BYTES = 200
"""Longest name; file systems hold 255 bytes, and parts and numbers are added."""

EXPECTED = (
    f"letters, digits and other signs, without slashes, control characters, or a dot first, {MAX_BYTES} bytes at most"
)


def is_file_name(name: str) -> bool:
    """Return True if a file or folder can have this name, is then seen, and lies in the folder that it is put into."""
    size = len(name.encode("utf-8", "surrogateescape"))
    return name.isprintable() and not name.startswith(".") and "/" not in name and 0 < size <= MAX_BYTES


def inside(folder: Path, name: str, error: type[Exception]) -> Path:
    """Return the path of ``name`` in ``folder``. Raises ``error`` for a name that would lead out of it."""
    if not is_file_name(name):
        raise error(f"{name!r}: cannot name a file in {folder}; expected {EXPECTED}")
    return folder / name
