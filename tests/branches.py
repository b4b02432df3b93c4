"""How many branches of each package the tests take: the end of ``make test``, which fails where too few of sim's are.

``python -m tests.branches PREFIX...`` lists those that none takes in the files whose names begin so.

A branch is one of the two ways on from an ``if``, a loop or a ``match``; lines are no measure, since one line of a
test passes a hundred. What runs in another process than the tests' own is not seen.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEAST = {"sim": 0.95}
"""The share of a package's branches that may not be lost."""

FOUND = Path(".coverage/found.json")
"""What slipcover wrote."""


def main(prefixes: Sequence[str]) -> int:
    """Print the table; status 1 where a package has less than its least."""
    files: Mapping[str, Any] = json.loads(FOUND.read_text())["files"]
    for name in sorted(files):
        missed = sorted(files[name]["missing_branches"])
        if missed and name.startswith(tuple(prefixes)):
            print(f"{name}: " + ", ".join(f"{line} -> {to or 'exit'}" for line, to in missed))
    if prefixes:
        return 0
    taken: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    for name, file in files.items():
        room = Path(name).parts[0]
        for what in ("branches", "lines"):
            taken[room, what] += len(file[f"executed_{what}"])
            there[room, what] += len(file[f"executed_{what}"]) + len(file[f"missing_{what}"])
    low = []
    for room in sorted({room for room, _ in there}):
        shares = []
        for what in ("branches", "lines"):
            share = taken[room, what] / there[room, what]
            shares.append(f"{taken[room, what]:6} of {there[room, what]:6} {what} {share:6.1%}")
        print(f"{room:9} {'   '.join(shares)}")
        share = taken[room, "branches"] / there[room, "branches"]
        if share < LEAST.get(room, 0.0):
            low.append(f"{room}: the tests take {share:.1%} of its branches, expected {LEAST[room]:.0%}")
    print("\n".join(low), file=sys.stderr, end="\n" if low else "")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
