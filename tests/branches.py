"""Print the share of branches of each package that the tests take: the end of ``make test``, which fails below sim's
minimum.

``python -m tests.branches PREFIX...`` lists the branches that no test takes, in files whose names begin with a prefix.
A branch is one of the two ways on from an ``if``, a loop or a ``match``. Lines are no measure, since one line of a test
passes a hundred. Code that runs in other processes is not seen.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MIN_SHARE = {"sim": 0.95}
"""Minimum share of a package's branches."""

FOUND = Path(".coverage/found.json")
"""Output of slipcover."""


def main(prefixes: Sequence[str]) -> int:
    """Print the table; return 1 if a package is below its minimum."""
    found: Mapping[str, Any] = json.loads(FOUND.read_text())["files"]
    # A file is under its own path if nothing imported it, and under that of the link if something did, which counts.
    names = sorted(found, key=lambda name: name.startswith("mezzotint/"))
    files = {str(Path(name).resolve().relative_to(Path.cwd())): found[name] for name in names}
    for name in sorted(files):
        missed = sorted(files[name]["missing_branches"])
        if missed and name.startswith(tuple(prefixes)):
            print(f"{name}: " + ", ".join(f"{line} -> {to or 'exit'}" for line, to in missed))
    if prefixes:
        return 0
    taken: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    for name, file in files.items():
        package = Path(name).parts[0]
        for what in ("branches", "lines"):
            taken[package, what] += len(file[f"executed_{what}"])
            there[package, what] += len(file[f"executed_{what}"]) + len(file[f"missing_{what}"])
    low = []
    for package in sorted({package for package, what in there if what == "branches" and there[package, what]}):
        shares = []
        for what in ("branches", "lines"):
            share = taken[package, what] / there[package, what]
            shares.append(f"{taken[package, what]:6} of {there[package, what]:6} {what} {share:6.1%}")
        print(f"{package:9} {'   '.join(shares)}")
        share = taken[package, "branches"] / there[package, "branches"]
        if share < MIN_SHARE.get(package, 0.0):
            low.append(f"{package}: the tests take {share:.1%} of its branches, expected {MIN_SHARE[package]:.0%}")
    print("\n".join(low), file=sys.stderr, end="\n" if low else "")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
