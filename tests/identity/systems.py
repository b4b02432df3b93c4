"""Compare what random systems of stages do under two commits: ``python -m tests.identity.systems BEFORE [AFTER]``.

The same systems (random_systems.py) run in a checkout of each commit, both at once. A system is the same if its
attempts and requests are equal to the bit. Every system that differs is named, with its policy.
"""

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.identity.random_systems import name_of
from tests.identity.trees import HERE, Failed, Tree, checkout

SCRIPT = Path(__file__).with_name("random_systems.py")


def main() -> int:
    """Print a line for every system that differs. Returns 0 if none does, else 1; 2 if one side cannot be run."""
    args = _options()
    with tempfile.TemporaryDirectory(prefix="systems-") as temporary:
        try:
            sides = {"before": args.before, "after": args.after}
            trees = [checkout(revision, Path(temporary) / side) for side, revision in sides.items()]
            with ThreadPoolExecutor(2) as both:
                before, after = both.map(lambda tree: digests(tree, args.first, args.last), trees)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 2
    differ = [seed for seed, digest in before.items() if after[seed] != digest]
    for seed in differ:
        print(f"differs  {seed} {name_of(seed)}")
    counts = [f"{count} {name}" for name, count in sorted(Counter(map(name_of, differ)).items())]
    print(f"{len(before)} systems: {len(before) - len(differ)} same, {len(differ)} differ", *counts, sep="; ")
    return int(bool(differ))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.identity.systems", description="Compare random systems under two commits."
    )
    parser.add_argument("before", metavar="BEFORE", help="a commit")
    parser.add_argument("after", metavar="AFTER", nargs="?", default=HERE, help="a commit; else the working tree")
    parser.add_argument("--first", metavar="N", type=int, default=0, help="the first system (default: 0)")
    parser.add_argument("--last", metavar="N", type=int, default=8400, help="the one after the last (default: 8400)")
    return parser.parse_args()


def digests(tree: Tree, first: int, last: int) -> dict[int, str]:
    """Return the digest of each system in ``tree``. Raises Failed if it cannot run them."""
    lines = (line.split() for line in tree.script(SCRIPT, str(first), str(last)))
    return {int(seed): digest for seed, digest in lines}


if __name__ == "__main__":
    sys.exit(main())
