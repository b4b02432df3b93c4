"""`mezzotint trace`: make a canonical trace, or say what is in one."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from traces.aside import check_target
from traces.describe import describe, render
from traces.error import TraceError
from traces.schema import Trace, read, write
from traces.sources import Source
from traces.sources.delimited import Csv
from traces.sources.diffusiondb import DiffusionDB
from traces.sources.synthetic import Synthetic


def add_parser(subparsers: Any) -> None:
    """Add the verb `trace` to an argparse parser's subparsers; its `run` attribute is `run`."""
    trace = subparsers.add_parser("trace", help="make a canonical trace, or say what is in one")
    verbs = trace.add_subparsers(dest="verb", required=True, metavar="import|synth|describe")
    _add_import(verbs.add_parser("import", help="make a trace from a published table"))
    _add_synth(verbs.add_parser("synth", help="make up a trace"))
    shows = verbs.add_parser("describe", help="say what is in a trace")
    shows.add_argument("path", metavar="PATH", help="a file made by `trace import` or `trace synth`")
    shows.add_argument("--json", action="store_true", help="print JSON")
    trace.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what parsed arguments ask for; returns the exit status.

    Raises:
        TraceError: what is read is malformed, or the output cannot be written.
    """
    if args.verb == "describe":
        facts = describe(read(Path(args.path)))
        print(json.dumps(facts, indent=2) if args.json else render(facts))
        return 0
    out = Path(args.out)
    check_target(out)  # before the work, not after it
    if args.seed < 0:
        raise TraceError(f"--seed {args.seed}: expected 0 or more")
    source = _import_source(args) if args.verb == "import" else _synthetic(args)
    trace = source.load(np.random.default_rng(args.seed))
    if args.name:
        trace = replace(trace, name=args.name)
    _report(write(replace(trace, notes={**trace.notes, "seed": args.seed}), out))
    return 0


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", choices=["diffusiondb", "csv"], help="the kind of table")
    parser.add_argument(
        "path", metavar="PATH", nargs="?", help="the table; left out, diffusiondb is fetched from the hub"
    )
    _add_common(parser)
    parser.add_argument("--nsfw-max", type=float, metavar="X", help="diffusiondb: drop rows that score higher")
    parser.add_argument("--limit", type=int, metavar="N", help="diffusiondb: keep the earliest N requests")
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="CANONICAL=SOURCE",
        help="csv: which column of the table is which column of a trace; may be repeated",
    )
    parser.add_argument("--delimiter", metavar="C", help=r"csv: between cells, a comma by default; \t is a tab")
    parser.add_argument("--no-quotes", action="store_true", help="csv: quotes in the table mean nothing")
    parser.add_argument(
        "--arrival", choices=["auto", "seconds", "unix", "timestamp"], help="csv: how arrivals are written"
    )


def _add_synth(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument("--requests", type=int, default=10_000, metavar="N", help="rows (default: 10000)")
    parser.add_argument("--rate-rpm", type=float, default=10.0, metavar="R", help="arrivals per minute (default: 10)")
    parser.add_argument("--users", type=int, default=3_000, metavar="N", help="possible users (default: 3000)")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="the Parquet file to write")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of whatever is random (default: 0)")
    parser.add_argument("--name", help="what reports call the trace")


def _import_source(args: argparse.Namespace) -> Source:
    foreign = {
        "diffusiondb": ("map", "delimiter", "no_quotes", "arrival"),
        "csv": ("nsfw_max", "limit"),
    }[args.source]
    for option in foreign:
        if getattr(args, option) not in (None, False, []):
            raise TraceError(f"--{option.replace('_', '-')} does not apply to source {args.source}; leave it out")
    if args.source == "diffusiondb":
        return DiffusionDB(path=args.path, nsfw_max=args.nsfw_max, limit=args.limit)
    if args.path is None:
        raise TraceError("trace import csv: expected the path of the table; name it after `csv`")
    return Csv(
        path=args.path,
        columns=_column_map(args.map),
        delimiter={None: ",", r"\t": "\t"}.get(args.delimiter, args.delimiter),
        quote=None if args.no_quotes else '"',
        arrival=args.arrival or "auto",
    )


def _synthetic(args: argparse.Namespace) -> Source:
    return Synthetic(requests=args.requests, rate_rpm=args.rate_rpm, users=args.users)


def _column_map(pairs: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        canonical, equals, source = pair.partition("=")
        if not canonical or not equals or not source:
            raise TraceError(f"--map {pair}: expected canonical=source, for example prompt=text")
        if canonical in columns:
            raise TraceError(f"--map {pair}: {canonical} is mapped to {columns[canonical]!r} already; map it once")
        columns[canonical] = source
    return columns


def _report(trace: Trace) -> None:
    minutes = trace.span_s / 60.0
    print(f"{trace.path}: {len(trace):,} requests over {minutes:,.1f} min, digest {trace.digest[:12]}")
