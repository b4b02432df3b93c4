"""Draw mutants at random from those that mutmut made: ``python -m tests.mutants COUNT [--seed 40]``."""

import argparse
import json
import random
from pathlib import Path

MADE = Path("mutants")
"""The folder of mutmut, beside pyproject.toml."""


def main() -> None:
    """Print the names of the mutants that are drawn, for ``mutmut run``."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Draw mutants at random.")
    parser.add_argument("count", metavar="COUNT", type=int, help="mutants to draw")
    parser.add_argument("--seed", metavar="N", type=int, default=40, help="of the draw (default: 40)")
    args = parser.parse_args()
    print(*drawn(args.count, args.seed), sep="\n")


def drawn(count: int, seed: int) -> list[str]:
    """Return ``count`` names of mutants in random order, the same for the same seed and code."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in MADE.rglob("*.meta")]
    names = sorted(name for each in found for name in each["exit_code_by_key"])
    random.Random(seed).shuffle(names)
    return names[:count]


if __name__ == "__main__":
    main()
