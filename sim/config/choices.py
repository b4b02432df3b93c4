"""What a run can be composed of: the groups of conf/, their choices, and ``mezzotint list``.

Nothing here is written down twice: a group's line is the comment beside it in conf/config.yaml, a choice's is the
first comment of its own file.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sim.errors import ConfigError

CONF = resources.files("conf")
_ENTRY = re.compile(r"  - (?P<name>\w+): \S+ +# (?P<line>.*)")
_ENDING = ".yaml"


@dataclass(frozen=True, slots=True)
class Choice:
    """One file of a group: its name, what it is for, and whether it is from a folder of the user's."""

    name: str
    line: str
    own: bool = False


@cache
def groups() -> dict[str, str]:
    """Every group, in the order of conf/config.yaml, and what is chosen in it."""
    lines = (CONF / "config.yaml").read_text(encoding="utf-8").splitlines()
    return {found["name"]: found["line"] for found in map(_ENTRY.fullmatch, lines) if found}


def choices(group: str, folder: Path | None = None) -> list[Choice]:
    """What ``group`` can be, by name; a file in ``folder`` goes before ours of the same name, as in a run.

    Raises:
        ConfigError: there is no such group, or no such folder.
    """
    if group not in groups():
        raise ConfigError(f"list: there is no group {group!r}; the groups are {', '.join(groups())}")
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--config-dir: {folder} is no folder; name the one that holds your groups")
    found = {name: Choice(name, line) for name, line in _lines(CONF / group)}
    if folder is not None and (folder / group).is_dir():
        found |= {name: Choice(name, line, own=True) for name, line in _lines(folder / group)}
    return [found[name] for name in sorted(found)]


def _lines(folder: Traversable) -> list[tuple[str, str]]:
    files = [file for file in folder.iterdir() if file.name.endswith(_ENDING)]
    return [(file.name.removesuffix(_ENDING), _first_comment(file)) for file in files]


def _first_comment(file: Traversable) -> str:
    for line in file.read_bytes().decode("utf-8", "replace").splitlines():
        if not line.startswith("# @package"):
            return line.removeprefix("#").strip() if line.startswith("#") else ""
    return ""


def overview() -> str:
    """The groups, a line each."""
    return _table([(f"{name}=", line) for name, line in groups().items()])


def listed(words: Sequence[str]) -> int:
    """``mezzotint list``: print the groups, or the choices of one. Raises ConfigError for a name that is none."""
    parser = argparse.ArgumentParser(
        prog="mezzotint list", description="Print what a run can be composed of: the groups, or the choices of one."
    )
    parser.add_argument("group", nargs="?", metavar="GROUP", help="such as eviction (default: all groups, a line each)")
    parser.add_argument(
        "--config-dir", "-cd", type=Path, metavar="DIR", help="a folder with groups of your own, marked * in the list"
    )
    given = parser.parse_args(words)
    if given.group is None:
        print(overview())
        print("\n`mezzotint list GROUP` prints the choices of a group; `mezzotint run GROUP=CHOICE` takes one.")
        return 0
    found = choices(given.group.removesuffix("="), given.config_dir)
    print(_table([(f"{choice.name}{' *' if choice.own else ''}", choice.line) for choice in found]))
    if any(choice.own for choice in found):
        print(f"\n* from {given.config_dir}")
    return 0


def _table(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {line}".rstrip() for name, line in rows)
