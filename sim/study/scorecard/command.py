"""`mezzotint scorecard`: run what is missing, compare, write the page, the JSON and the figure."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

LOST = 1
"""Exit status of --check where a verdict that held no longer does."""

FAILED = 2
"""Exit status where an experiment could not be run, of --check too: what is never run can lose nothing."""


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add `scorecard` to the verbs; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "scorecard",
        help="reproduce the papers' numbers: what is held, what is missed and why",
        description="Run the experiments behind the papers' numbers (conf/data/targets.yaml), compare, and write "
        "scorecard.md, scorecard.json and scorecard.png. What an interrupted scorecard has finished is kept.",
    )
    parser.add_argument("system", nargs="?", metavar="SYSTEM", help="the targets of one paper's system (default: all)")
    parser.add_argument("--quick", action="store_true", help="small traces, seconds: the form that CI compares")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, compare with the scorecard in DIR: status 1 if a verdict that held there no longer does",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("results"), metavar="DIR", help="where to write (default: results)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("results/runs/scorecard"),
        metavar="DIR",
        help="where the finished runs are kept (default: results/runs/scorecard)",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Make the scorecard; returns the exit status.

    Raises:
        ConfigError: an unknown system, a malformed file, a folder that cannot be used.
    """
    if args.jobs < 1:
        raise ConfigError(f"--jobs {args.jobs}: expected 1 or more worker processes")
    from sim.study.scorecard import card, page  # importing what runs and draws takes a second

    name = "scorecard-quick" if args.quick else "scorecard"
    made = card.make(card.study(args.system, quick=args.quick), args.work, args.jobs)
    for error, commands in made.failed.items():
        more = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
        print(f"mezzotint: could not be run: {commands[0]}{more}: {error}", file=sys.stderr)
    if args.check:
        gone = card.lost(args.output / f"{name}.json", made.rows)
        for line in gone:
            print(f"mezzotint: {line}", file=sys.stderr)
        print(page.tally(made.rows))
        return LOST if gone else FAILED if made.failed else 0
    for file in card.write(made, args.output, name):
        print(file)
    print(page.tally(made.rows))
    return FAILED if made.failed else 0
