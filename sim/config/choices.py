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

PROFILES = "profiles"
"""What may be listed beside the groups."""


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
    return table([(f"{name}=", line) for name, line in groups().items()])


def listed(words: Sequence[str]) -> int:
    """``mezzotint list``: print the groups, or the choices of one. Raises ConfigError for a name that is none."""
    parser = argparse.ArgumentParser(
        prog="mezzotint list", description="Print what a run can be composed of: the groups, or the choices of one."
    )
    parser.add_argument(
        "group", nargs="?", metavar="GROUP", help="such as eviction, or profiles (default: all groups, a line each)"
    )
    parser.add_argument(
        "--config-dir", "-cd", type=Path, metavar="DIR", help="a folder with groups of your own, marked * in the list"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help=f"{PROFILES}: a folder of your own profiles beside the shipped ones"
    )
    given = parser.parse_args(words)
    if given.folder is not None and given.group != PROFILES:
        raise ConfigError(f"--folder: goes with `mezzotint list {PROFILES}` alone")
    if given.group is None:
        print(overview())
        print("\n`mezzotint list GROUP` prints the choices of a group; `mezzotint run GROUP=CHOICE` takes one.")
        print("`mezzotint list profiles` prints what was measured on which GPU, and by whom.")
        return 0
    if given.group == PROFILES:
        from sim.config.profiles import profiles  # what reads profiles need not be imported to list groups

        if given.config_dir is not None:
            raise ConfigError("list profiles: takes no --config-dir; name the folder of your profiles with --folder")
        print(profiles(given.folder))
        return 0
    found = choices(given.group.removesuffix("="), given.config_dir)
    print(table([(f"{choice.name}{' *' if choice.own else ''}", choice.line) for choice in found]))
    if any(choice.own for choice in found):
        print(f"\n* from {given.config_dir}")
    return 0


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of as many cells each, in columns; the last one is as wide as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
