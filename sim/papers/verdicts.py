"""Verdicts of a study, compared with those of its committed JSON file: a row that held there must hold now."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.core.errors import ConfigError

LOST = 1
"""Exit status of --check where a verdict that held is lost."""

RequestColumns = Mapping[str, Any]
"""The content of a study's JSON file."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One row of a study: the measured or required value with its tolerance, the simulated one, both in words, and
    whether it is within the tolerance."""

    expected: str
    ours: str
    held: bool


Verdicts = Mapping[str, Judged]
"""Rows by name."""


def committed(path: Path, judge: Callable[[RequestColumns], Verdicts]) -> Verdicts:
    """Return the verdicts of the JSON file ``path``. Raises ConfigError: it is missing, or not of this study."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise absent(path, error) from None
    try:
        return judge(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError):
        wrong = "found no results of this study and version; make it again without --check"
        raise ConfigError(f"{path}: {wrong}") from None


def absent(path: Path, error: OSError) -> ConfigError:
    """Return the error of a --check that has nothing to compare with."""
    return ConfigError(
        f"{path}: cannot be read ({error.strerror}), and --check compares with it; name the results folder of a clone "
        "with -o, or make it once without --check"
    )


def lost(before: Verdicts, now: Verdicts) -> list[str]:
    """Return a line for each row that held ``before`` and does not hold ``now``."""
    lines = []
    for row, was in before.items():
        found = now.get(row)
        if was.held and not (found and found.held):
            missed = found and f"missed: expected {found.expected}, found {found.ours}, before {was.ours}"
            lines.append(f"{row} held and is {missed or 'no row any more'}")
    return lines


def checked(before: Verdicts, now: Verdicts) -> int:
    """Print each lost row on standard error, and return the exit status of --check."""
    gone = lost(before, now)
    for line in gone:
        print(f"mezzotint: {line}", file=sys.stderr)
    held = sum(each.held for each in now.values())
    print(f"{held} of {len(now)} rows held, {len(gone)} lost")
    return LOST if gone else 0
