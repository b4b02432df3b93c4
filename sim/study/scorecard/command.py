"""`mezzotint scorecard`: run what is missing, compare, write the page, the JSON and the figure."""

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sim.errors import ConfigError
from sim.study.verdicts import LOST

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from sim.study.scorecard.columns import Feed

HARDWARE = "hardware"
"""What is no paper's system: runs of real machines, replayed."""

ADDONS = "addons"
"""Nor is this: caches of add-ons, beside what was measured of a service."""

STAGES = "stages"
"""Nor this: systems with add-ons, stage by stage beside Katz's logs."""

COMPOSITIONS = "compositions"
"""Nor this: designs that nobody has run, beside their parts."""

FAILED = 2
"""Exit status where an experiment could not be run, of --check too: what is never run can lose nothing."""

NEEDS_EXTRA = "pip install 'mezzotint["
"""Part of every error that names a missing extra: its rows are *not run*, and nothing has failed."""


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add `scorecard` to the verbs; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "scorecard",
        help="reproduce the papers' numbers: what is held, what is missed and why",
        description="Run the experiments behind the papers' numbers (conf/data/targets.yaml), compare, and write "
        "scorecard.md, scorecard.json and scorecard.png. What an interrupted scorecard has finished is kept.",
    )
    parser.add_argument(
        "system",
        nargs="?",
        metavar="SYSTEM",
        help="the targets of one paper's system (default: all); hardware: published runs of real machines, replayed; "
        "addons: caches of ControlNets and LoRAs; stages: systems with add-ons beside Katz's logs; compositions: "
        "designs that nobody has run",
    )
    parser.add_argument("--quick", action="store_true", help="small traces, seconds: the form that CI compares")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, compare with the scorecard in DIR: status 1 if a verdict that held there no longer does",
    )
    parser.add_argument(
        "--trace",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a trace's Parquet file: everything is run on it too, a column of its own; may be given several times",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="of the column of each --trace, in their order (default: the file's, without its ending)",
    )
    parser.add_argument(
        "--only-trace",
        action="store_true",
        help="run nothing on the built-in trace; its column stays if it still holds",
    )
    for option, what in (("--runs", "MLPerf SDXL server runs"), ("--routing", "routed runs of vLLM-Omni's mixes")):
        told = f"hardware: {what} of your own, a CSV as conf/data has, in the place of all shipped ones"
        parser.add_argument(option, type=Path, metavar="FILE", help=told)
    parser.add_argument(
        "--sizes", metavar="N,N,...", help="addons: of the caches, in ControlNets and in LoRAs (default: 1 to 32)"
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
    if args.system == HARDWARE:
        if args.trace or args.name or args.only_trace:
            raise ConfigError(
                "scorecard hardware: replays what was measured, each run with its own arrivals; no --trace"
            )
        from sim.study.hardware.command import run as replay

        return replay(args)
    if args.system == STAGES:
        from sim.study.stages.command import run as staged

        return staged(args)
    if args.system == ADDONS:
        from sim.study.addons.command import run as cached

        return cached(args)
    if args.system == COMPOSITIONS:
        from sim.study.compositions.command import run as composed

        return composed(args)
    if args.sizes is not None:
        raise ConfigError("--sizes: goes with `mezzotint scorecard addons` alone")
    if args.runs is not None or args.routing is not None:
        raise ConfigError("--runs and --routing: go with `mezzotint scorecard hardware` alone")
    if args.check and args.trace:
        raise ConfigError("--check compares the column of the built-in trace; leave --trace out")
    from sim.study.scorecard import card, page  # importing what runs and draws takes a second

    name = "scorecard-quick" if args.quick else "scorecard"
    before = args.output / f"{name}.json"
    study = card.study(args.system, quick=args.quick)
    if args.check:
        card.lost(before, [])  # a file that cannot be compared with is refused before the runs
    made = card.make(study, args.work, args.jobs, _feeds(args))
    for error, commands in made.failed.items():
        more = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
        print(f"mezzotint: could not be run: {commands[0]}{more}: {error}", file=sys.stderr)
    failed = FAILED if any(NEEDS_EXTRA not in error for error in made.failed) else 0
    if args.check:
        gone = card.lost(before, made.rows)
        for line in gone:
            print(f"mezzotint: {line}", file=sys.stderr)
        print(page.tally(made.rows))
        return LOST if gone else failed
    whole, dropped = card.beside(made, before)
    for column in dropped:
        print(f"mezzotint: {before}: the column {column} is of other code or settings; make it again", file=sys.stderr)
    for file in card.write(whole, args.output, name):
        print(file)
    for each in whole.columns:
        print(f"{each.name}: {page.tally(each.rows)}" if len(whole.columns) > 1 else page.tally(each.rows))
    return failed


def _feeds(args: argparse.Namespace) -> "list[Feed]":
    from sim.study.scorecard.columns import SYNTHETIC, Feed

    if len(args.name) > len(args.trace):
        raise ConfigError(f"--name {args.name[-1]}: names no trace; give --trace FILE too")
    if args.only_trace and not args.trace:
        raise ConfigError("--only-trace: there is no trace; give --trace FILE too")
    files = [path.expanduser().resolve() for path in args.trace]
    names = [*args.name, *(path.stem for path in files[len(args.name) :])]
    for name in names:
        if names.count(name) > 1 or name == SYNTHETIC or not re.fullmatch(r"[\w.-]+( [\w.-]+)*", name):
            raise ConfigError(
                f"--name: found the column {name!r}, expected each once, in letters, digits, dots, dashes and spaces, "
                f"and not {SYNTHETIC!r}, which is the built-in trace's"
            )
    given = [Feed(name, path) for name, path in zip(names, files, strict=True)]
    return given if args.only_trace else [Feed(), *given]
