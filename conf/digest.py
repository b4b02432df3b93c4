"""A digest of the content of files."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest(files: Iterable[Path], error: type[Exception]) -> str:
    """Return the SHA-256 of the names and the bytes of ``files``, 64 hexadecimal digits; raises ``error``."""
    total = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                own = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as cause:
            raise error(f"{path}: cannot be read ({cause.strerror}); check the path") from cause
        total.update(f"{path.name} {own}\n".encode())
    return total.hexdigest()
