"""Digests of content: of files, and of results that are kept in a file."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mezzotint.files.atomic import atomic_write
from mezzotint.files.document import DocumentError, parse_json


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


def keep(path: Path, content: Any, error: type[Exception]) -> None:
    """Write ``content``, plain JSON, with a digest of it and of the name of the file. Raises ``error``."""
    text = json.dumps(content, allow_nan=False)
    with atomic_write(path, error) as temporary:
        temporary.write_text(json.dumps({"digest": _of_text(path, text), "content": content}), encoding="utf-8")


def read_kept(path: Path, note: Callable[[str], object]) -> Any:
    """Return what ``keep`` wrote; None if there is nothing, or if another has written or changed it.

    ``note`` is called with a line in the latter case.
    """
    try:
        found = parse_json(path.read_bytes())
        if found["digest"] == _of_text(path, json.dumps(found["content"], allow_nan=False)):
            return found["content"]
    except OSError:
        return None
    except (DocumentError, LookupError, TypeError, ValueError):
        pass
    note(f"{path}: is damaged or from elsewhere; made again")
    return None


def _of_text(path: Path, text: str) -> str:
    return hashlib.sha256(f"{path.name}\n{text}".encode()).hexdigest()
