"""Overrides ``KEY=VALUE`` of the command line, made readable for Hydra's grammar.

Hydra reads values as numbers, lists, mappings and sweeps, and refuses characters that its lexer does not know (a tilde,
brackets in a file's name, an accent). Values of path keys are always text.
"""

import os
import re
from itertools import accumulate

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from mezzotint.files.document import MAX_DEPTH
from mezzotint.sim.core.errors import ConfigError

PATHS = frozenset({"dir", "path", "folder", "images", "prompts", "store", "weights"})
"""The last parts of keys that hold a path."""

OPENED = dict.fromkeys("([{", 1) | dict.fromkeys(")]}", -1)

_PLAIN = re.compile(r"[\w./:+-]*", re.ASCII)
_WORD = re.compile(r"(?P<key>(?:\+\+|\+)?[\w./@:-]+)=(?P<value>.*)", re.ASCII | re.DOTALL)


def readable(word: str) -> str:
    """Return ``word``, with its value quoted if Hydra could not read it or would misread a path.

    Raises ConfigError for an unknown character in the key, or an unfinished list or quotation.
    """
    match = _WORD.fullmatch(word)
    if _depth(word) > MAX_DEPTH:
        key = word.partition("=")[0][:60]
        raise ConfigError(f"{key}: found more than {MAX_DEPTH} brackets in one another; write fewer")
    if match is None:
        _check(word)
        return word
    key, value = match["key"], match["value"]
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
        return f"{key}={_quote(value)}"
    return word if not is_path or _is_text(read) else f"{key}={_quote(value)}"


def _depth(word: str) -> int:
    """Return how deep brackets lie in one another, wherever they stand."""
    return max(accumulate(OPENED.get(character, 0) for character in word), default=0)


def of_hydra(word: str) -> bool:
    """Return True for an override of Hydra's own settings."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def _is_text(read: Override) -> bool:
    return read.is_sweep_override() or read.value() is None or isinstance(read.value(), str)


def _quote(value: str) -> str:
    return str(QuotedString(text=value, quote=Quote.single).with_quotes())


def _read(word: str) -> Override | None:
    """Parse ``word`` with Hydra; None if it cannot be read."""
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, ValueError):  # ValueError for a number with thousands of digits
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
