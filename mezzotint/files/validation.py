"""Pydantic's errors, in the words of this project's messages."""

from reprlib import repr as shortened

from pydantic import ValidationError


def first_error(error: ValidationError, key: str = "") -> str:
    """Return the first error of what a user gave: its key below ``key``, what is wrong, and what was found."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in (*([key] if key else ()), *first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "there is no such key"
    found = "" if first["type"] == "missing" else f", found {shortened(first['input'])}"
    return f"{where}: {message[0].lower()}{message[1:]}{found}".removeprefix(": ")
