"""A word of the command line, ``KEY=VALUE``, as Hydra's grammar can read it.

Hydra reads values as numbers, lists, mappings and sweeps, and what its lexer does not know (a tilde, brackets in a
file's name, an accent) is an error. A user who names a path means the path.
"""

import os
import re

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from sim.core.errors import ConfigError

PATHS = frozenset({"dir", "path", "folder", "images", "prompts", "store", "weights"})
"""Last names of the keys that hold a path."""

_PLAIN = re.compile(r"[\w./:+-]*", re.ASCII)
_WORD = re.compile(r"(?P<key>(?:\+\+|\+)?[\w./@:-]+)=(?P<value>.*)", re.ASCII | re.DOTALL)


def readable(word: str) -> str:
    """``word`` with its value quoted where Hydra could not read it, or would read a path as something else.

    Raises ConfigError for what cannot be meant as text either: an unknown sign in the key, a list that does not end.
    """
    found = _WORD.fullmatch(word)
    if found is None:
        _check(word)
        return word
    key, value = found["key"], found["value"]
    _check_key(key)
    is_path = "." in key and key.rpartition(".")[2] in PATHS
    if is_path and value.startswith("~"):
        value = os.path.expanduser(value)
        word = f"{key}={value}"
    if not is_path and (_PLAIN.fullmatch(value) or value[:1] in ("[", "{", "'", '"')):
        _check(word)
        return word
    read = _read(word)
    if read is None:
        return f"{key}={_quoted(value)}"
    return word if not is_path or _is_text(read) else f"{key}={_quoted(value)}"


def of_hydra(word: str) -> bool:
    """Return True for a word that sets something of Hydra's own."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def _is_text(read: Override) -> bool:
    return read.is_sweep_override() or read.value() is None or isinstance(read.value(), str)


def _quoted(value: str) -> str:
    return str(QuotedString(text=value, quote=Quote.single).with_quotes())


def _read(word: str) -> Override | None:
    """What Hydra reads ``word`` as; None where it cannot."""
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError):  # the latter of a number with thousands of digits
        return None


def _check_key(key: str) -> None:
    if _read(f"{key}=1") is None:
        raise ConfigError(
            f"{key}: cannot be read as a key, names (or numbers in a list) with dots between; set one that is spelled "
            "otherwise in a file of its group (--config-dir), or in a run's config.yaml"
        )


def _check(word: str) -> None:
    if _read(word) is not None:
        return
    if "=" not in word:
        raise ConfigError(f"{word}: cannot be read, expected KEY=VALUE, GROUP=CHOICE or ~GROUP")
    raise ConfigError(
        f"{word}: cannot be read as KEY=VALUE; write text with such signs in quotes, as "
        f"{word.partition('=')[0]}='\"...\"'"
    )
