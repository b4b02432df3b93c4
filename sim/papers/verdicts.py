"""Compare the verdicts of a study with those of its committed JSON file, for ``--check``."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint.files.document import parse_json
from mezzotint.sim.core.errors import ConfigError

LOST = 1
"""Exit status of --check if a row is no longer within tolerance."""

Results = Mapping[str, Any]
"""The content of a study's JSON file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of a study.

    Attributes:
        expected: the measured or required value and its tolerance, in words.
        ours: the simulated value, in words.
        within_tolerance: True if ``ours`` is within the tolerance of ``expected``.
    """

    expected: str
    ours: str
    within_tolerance: bool


Comparisons = Mapping[str, Comparison]
"""Rows by name."""


def read_committed(path: Path, compare: Callable[[Results], Comparisons]) -> Comparisons:
    """Return the rows of the JSON file ``path``. Raises ConfigError: the file is missing, or not of this study."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return compare(parse_json(text))
    except (ValueError, LookupError, TypeError, AttributeError):
        wrong = "found no results of this study and version; make it again without --check"
        raise ConfigError(f"{path}: {wrong}") from None


def unreadable(path: Path, error: OSError) -> ConfigError:
    """Return the error of a --check that has nothing to compare with."""
    return ConfigError(
        f"{path}: cannot be read ({error.strerror}), and --check compares with it; name the results folder of a clone "
        "with -o, or make it once without --check"
    )


def lost_rows(before: Comparisons, now: Comparisons) -> list[str]:
    """Return a line for each row that was within tolerance ``before`` and is not ``now``."""
    lines = []
    for name, was in before.items():
        row = now.get(name)
        if was.within_tolerance and row is None:
            lines.append(f"{name}: was within tolerance, and the row is missing now")
        elif was.within_tolerance and row is not None and not row.within_tolerance:
            lines.append(
                f"{name}: no longer within tolerance: expected {row.expected}, found {row.ours}, before {was.ours}"
            )
    return lines


def report_lost(before: Comparisons, now: Comparisons) -> int:
    """Print each lost row on standard error, and return the exit status of --check."""
    lost = lost_rows(before, now)
    for line in lost:
        print(f"mezzotint: {line}", file=sys.stderr)
    count = sum(row.within_tolerance for row in now.values())
    print(f"{count} of {len(now)} rows within tolerance, {len(lost)} lost")
    return LOST if lost else 0
