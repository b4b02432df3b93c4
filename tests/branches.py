"""How many branches of each package the tests take: ``make coverage``, which fails where too few of sim's are.

A branch is one of the two ways on from an ``if``, a loop or a ``match``; lines are no measure, since one line of a
test passes a hundred.
"""

import json
import sys
from collections import Counter
from pathlib import Path

LEAST = {"sim": 0.95}
"""The share of a package's branches that may not be lost."""

FOUND = Path(".coverage/found.json")


def main() -> int:
    """Print the table; status 1 where a package has less than its least."""
    taken: Counter[str] = Counter()
    there: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    run: Counter[str] = Counter()
    for name, file in json.loads(FOUND.read_text())["files"].items():
        room = Path(name).parts[0]
        said = file["summary"]
        taken[room] += said["covered_branches"]
        there[room] += said["num_branches"]
        run[room] += said["covered_lines"]
        lines[room] += said["num_statements"]
    low = []
    for room in sorted(there):
        share, least = taken[room] / there[room], LEAST.get(room, 0.0)
        print(
            f"{room:9} {taken[room]:5} of {there[room]:5} branches {share:6.1%}   "
            f"{run[room]:5} of {lines[room]:5} statements {run[room] / lines[room]:6.1%}"
        )
        if share < least:
            low.append(f"{room}: {share:.1%} of its branches are tested, expected {least:.0%}")
    print("\n".join(low), file=sys.stderr, end="\n" if low else "")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
