"""`mezzotint trace`: make a canonical trace, say what is in one, or lay two side by side."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from conf.atomic import atomic_write, check_ours, check_target
from conf.document import DocumentError, parse
from traces.describe import Character, characterise, render, side_by_side
from traces.encoders.embeddings import Encoder
from traces.encoders.minilm import MiniLM
from traces.encoders.ngram import HashedNgrams
from traces.error import TraceError
from traces.sources import Streamed
from traces.sources.delimited import Csv
from traces.sources.diffusiondb import DiffusionDB
from traces.sources.export import FORMATS, START, export
from traces.sources.formats.cells import ClockName
from traces.sources.gentd26 import GenTD26
from traces.sources.katz import Katz
from traces.sources.mjhq import Mjhq
from traces.sources.partiprompts import PartiPrompts
from traces.sources.prompts import Prompts
from traces.sources.sd_beta import SdBeta
from traces.sources.sglang import SGLang
from traces.sources.synthetic import Synthetic
from traces.sources.vllm_omni import VllmOmni
from traces.synthetic.published import LIKE, parameters
from traces.table.ingest import Written, store
from traces.table.limits import Limits
from traces.table.pairing import TAKEN, pair
from traces.table.trace import METADATA_KEY, Trace, read, write

ENCODERS: Mapping[str, Callable[[], Encoder]] = {"ngram": HashedNgrams, "minilm": MiniLM}

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "diffusiondb": ("nsfw_max", "limit"),
    "gentd26": ("drop_failed", "text_only", "unnamed_loras"),
    "katz": ("service", "node"),
    "sd-beta": ("channel", "since", "until"),
    "partiprompts": (),
    "mjhq": ("requests",),
    "prompts": (),
    "vllm-omni": (),
    "sglang": (),
    "csv": ("map", "delimiter", "no_quotes", "arrival"),
}
"""The sources, and the options of `trace import` that are theirs alone."""


def add_parser(subparsers: Any) -> None:
    """Add the verb `trace` to an argparse parser's subparsers; its `run` attribute is `run`."""
    trace = subparsers.add_parser("trace", help="make a canonical trace, say what is in one, compare two")
    verbs = trace.add_subparsers(dest="verb", required=True, metavar="import|synth|pair|export|describe|compare")
    _add_import(verbs.add_parser("import", help="make a trace from a published table"))
    _add_synth(verbs.add_parser("synth", help="make up a trace"))
    _add_pair(verbs.add_parser("pair", help="lay the prompts of one trace on the arrivals and models of another"))
    _add_export(verbs.add_parser("export", help="write a trace as an engine's benchmark reads it"))
    _add_describe(verbs.add_parser("describe", help="say what is in a trace"))
    _add_compare(verbs.add_parser("compare", help="lay a real trace and a made-up one side by side"))
    trace.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what parsed arguments ask for; returns the exit status.

    Raises:
        TraceError: what is read is malformed, or the output cannot be written.
    """
    try:
        return _run(args)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"trace {args.verb}: cannot be written ({reason}); free the disk or name another file"
        ) from error


def _run(args: argparse.Namespace) -> int:
    if args.verb == "describe":
        return _describe(args)
    if args.verb == "compare":
        return _compare(args)
    out = Path(args.out)
    check_target(out, TraceError)  # before the work, not after it
    if args.verb == "export":
        check_ours(out, TraceError, f"an export to {args.format}", START[args.format])
    else:
        check_ours(out, TraceError, "a trace", b"PAR1", METADATA_KEY)
    if args.verb == "pair":
        if out.resolve() in (Path(args.prompts).resolve(), Path(args.arrivals).resolve()):
            raise TraceError(f"{out}: is one of the traces to pair and would be overwritten; name another path with -o")
        take = None if args.take is None else [what.strip() for what in args.take.split(",")]
        prompts, arrivals = read(Path(args.prompts)), read(Path(args.arrivals))
        _report(_written(pair(prompts, arrivals, take=take, repeat=args.repeat, name=args.name), out))
        return 0
    if args.verb == "export":
        return _export(args, out)
    if args.seed < 0:
        raise TraceError(f"--seed {args.seed}: expected 0 or more")
    rng = np.random.default_rng(args.seed)
    if args.verb == "synth":
        given = {"requests": args.requests, "rate_rpm": args.rate_rpm, "users": args.users, **_settings(args.set)}
        law = parameters(args.like) | {key: value for key, value in given.items() if value is not None}
        trace = Synthetic(**law).load(rng)
        trace = replace(trace, name=args.name or trace.name, notes={**trace.notes, "seed": args.seed})
        _report(_written(trace, out))
        return 0
    reading = _source(args).read(rng)
    reading.name = args.name or reading.name
    reading.notes["seed"] = args.seed
    if args.source == "csv":
        print("columns:", ", ".join(f"{name} = {source}" for name, source in reading.notes["columns"].items()))
    _report(store(reading, out))
    if "arrival_written" in reading.notes:
        print(f"arrivals are read as {reading.notes['arrival_written']} (--arrival says otherwise)")
    if "arrival_s" in reading.notes:
        print(f"arrival times are not the source's own: {reading.notes['arrival_s']}")
    return 0


def _export(args: argparse.Namespace, out: Path) -> int:
    trace = read(Path(args.path))
    left_out = export(trace, args.format, out)
    print(f"{out}: {len(trace):,} requests, as {args.format} reads them")
    if left_out:
        print(f"the format has no place for {', '.join(left_out)}")
    return 0


def _describe(args: argparse.Namespace) -> int:
    (found,) = _characters([args.path], args)
    facts = found.facts()
    print(json.dumps(facts, indent=2) if args.json else render(facts))
    return 0


def _compare(args: argparse.Namespace) -> int:
    if args.out is not None:
        check_target(Path(args.out), TraceError)
        check_ours(Path(args.out), TraceError, "a comparison of traces", b"## ", b" beside ")
    real, *made = _characters([args.real, *args.synthetic], args)
    page = side_by_side(real.facts(), [one.facts() for one in made])
    if args.out is None:
        print(page)
        return 0
    with atomic_write(Path(args.out), TraceError) as temporary:
        temporary.write_text(page + "\n", encoding="utf-8")
    print(args.out)
    return 0


def _characters(paths: Sequence[str], args: argparse.Namespace) -> list[Character]:
    """What is in the traces; their figures too, where they were asked for."""
    encoder = ENCODERS[args.encoder]()
    if args.figures is None:
        return [characterise(read(Path(path)), encoder) for path in paths]
    from traces.describe import figures  # drawing takes a second to import, which numbers need not pay

    folder = Path(args.figures)
    figures.check_folder(folder)
    found = [characterise(read(Path(path)), encoder) for path in paths]
    written = figures.write(found[:2], folder)
    print(f"{folder}: {len(written)} figures", file=sys.stderr)
    return found


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", choices=list(OPTIONS), help="what the file is")
    parser.add_argument(
        "path", metavar="PATH", nargs="?", help="the file; left out, diffusiondb is fetched from the hub"
    )
    _add_common(parser)
    _add_seed(parser)
    limits = Limits()
    parser.add_argument(
        "--max-prompt-bytes", type=int, default=limits.max_prompt_bytes, metavar="N",
        help=f"refuse longer texts (default: {limits.max_prompt_bytes})",
    )  # fmt: skip
    parser.add_argument(
        "--max-bytes", type=int, metavar="N",
        help="refuse files that unpack to more (default: those that look like a bomb)",
    )  # fmt: skip
    parser.add_argument("--nsfw-max", type=float, metavar="X", help="diffusiondb: drop rows that score higher")
    parser.add_argument("--limit", type=int, metavar="N", help="diffusiondb: keep the earliest N requests")
    parser.add_argument("--drop-failed", action="store_true", help="gentd26: drop requests that did not succeed")
    parser.add_argument("--text-only", action="store_true", help="gentd26: drop what is not text to image")
    parser.add_argument(
        "--unnamed-loras", action="store_true",
        help="gentd26: make up names where only the number of LoRAs is known, the same ones in every request",
    )  # fmt: skip
    parser.add_argument("--service", metavar="A|B", help="katz: keep only the requests to this service")
    parser.add_argument("--node", metavar="NAME", help="katz: keep only the requests to this node")
    parser.add_argument("--channel", metavar="NAME", help="sd-beta: keep only this channel (default: all, merged)")
    parser.add_argument("--since", metavar="TIME", help="sd-beta: keep what arrives then or later, such as 2022-08-12")
    parser.add_argument("--until", metavar="TIME", help="sd-beta: keep what arrives before then")
    parser.add_argument(
        "--requests", type=int, metavar="N", help="mjhq: keep the last N/10 prompts of each category, as MoDM does"
    )
    parser.add_argument(
        "--map", action="append", default=[], metavar="CANONICAL=SOURCE",
        help="csv: which column of the table is which column of a trace (default: by its name), none if SOURCE is"
        " left out; may be repeated",
    )  # fmt: skip
    parser.add_argument("--delimiter", metavar="C", help=r"csv: between cells, a comma by default; \t is a tab")
    parser.add_argument("--no-quotes", action="store_true", help="csv: quotes in the table mean nothing")
    parser.add_argument("--arrival", choices=get_args(ClockName), help="csv: how arrivals are written")


def _add_synth(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    _add_seed(parser)
    parser.add_argument(
        "--like", choices=list(LIKE), default="diffusiondb", help="what it is fitted to (default: diffusiondb)"
    )
    parser.add_argument("--requests", type=int, metavar="N", help="rows (default: 10000)")
    parser.add_argument("--rate-rpm", type=float, metavar="R", help="arrivals per minute (default: the service's)")
    parser.add_argument("--users", type=int, metavar="N", help="possible users (default: as many as the rate asks for)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="any other parameter, as conf/trace/synthetic.yaml names it; may be repeated",
    )  # fmt: skip


def _settings(words: list[str]) -> dict[str, Any]:
    """KEY=VALUE as a mapping, values as YAML; raises TraceError for a key that the source lacks."""
    known = [each.name for each in fields(Synthetic)]
    settings = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in known or not value:
            raise TraceError(f"--set {word}: expected KEY=VALUE with a key among {', '.join(known)}")
        try:
            settings[key] = parse(value)
        except DocumentError:
            raise TraceError(f"--set {word}: the value cannot be read, expected a number, text or list") from None
    return settings


def _add_pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompts", metavar="PROMPTS", help="the trace that gives prompts, sizes and seeds")
    parser.add_argument("arrivals", metavar="ARRIVALS", help="the trace that gives what --take names")
    _add_common(parser)
    parser.add_argument(
        "--take", metavar="WHAT,...",
        help=f"of ARRIVALS, some of {', '.join(TAKEN)} (default: arrivals, models and add-ons, as far as it has them)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", action="store_true", help="go through the shorter trace again; left out, it decides the length"
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file made by `trace import`, `trace synth` or `trace pair`")
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="the file to write")
    parser.add_argument("--format", required=True, choices=list(FORMATS), help="whose benchmark is to read it")


def _add_describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file made by `trace import`, `trace synth` or `trace pair`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_showing(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("real", metavar="REAL", help="a file made by `trace import`")
    parser.add_argument(
        "synthetic", metavar="SYNTHETIC", nargs="+",
        help="a file made by `trace synth`; of several, such as of several seeds, the mean is shown",
    )  # fmt: skip
    parser.add_argument("-o", "--out", metavar="FILE", help="write the table there (Markdown) instead of printing it")
    _add_showing(parser)


def _add_showing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--figures", metavar="DIR", help="draw them too: a PNG for each subject, and an overview")
    parser.add_argument(
        "--encoder", choices=list(ENCODERS), default="ngram",
        help="what makes prompts comparable: shared spelling, or shared meaning (the `text` extra); default: ngram",
    )  # fmt: skip


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="the Parquet file to write")
    parser.add_argument("--name", help="what reports call the trace")


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of whatever is random (default: 0)")


def _source(args: argparse.Namespace) -> Streamed:
    for source, options in OPTIONS.items():
        for option in options:
            if source != args.source and getattr(args, option) not in (None, False, []):
                raise TraceError(f"--{option.replace('_', '-')} does not apply to source {args.source}; leave it out")
    limits = Limits(max_prompt_bytes=args.max_prompt_bytes, max_bytes=args.max_bytes)
    if args.source == "diffusiondb":
        return DiffusionDB(path=args.path, nsfw_max=args.nsfw_max, limit=args.limit, limits=limits)
    if args.path is None:
        raise TraceError(f"trace import {args.source}: expected the path of the table; name it after `{args.source}`")
    if args.source == "gentd26":
        return GenTD26(
            path=args.path,
            failed="drop" if args.drop_failed else "keep",
            kinds="text" if args.text_only else "all",
            loras="unnamed" if args.unnamed_loras else "unknown",
            limits=limits,
        )
    if args.source == "katz":
        return Katz(path=args.path, service=args.service, node=args.node, limits=limits)
    if args.source == "sd-beta":
        return SdBeta(path=args.path, channel=args.channel, since=args.since, until=args.until, limits=limits)
    if args.source == "mjhq":
        return Mjhq(path=args.path, requests=args.requests, limits=limits)
    if args.source == "partiprompts":
        return PartiPrompts(path=args.path, limits=limits)
    if args.source == "vllm-omni":
        return VllmOmni(path=args.path, limits=limits)
    if args.source == "sglang":
        return SGLang(path=args.path, limits=limits)
    if args.source == "prompts":
        return Prompts(path=args.path, limits=limits)
    return Csv(
        path=args.path,
        columns=_column_map(args.map),
        delimiter={None: ",", r"\t": "\t"}.get(args.delimiter, args.delimiter),
        quote=None if args.no_quotes else '"',
        arrival=args.arrival or "auto",
        limits=limits,
    )


def _column_map(pairs: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair_ in pairs:
        canonical, equals, source = pair_.partition("=")
        if not canonical or not equals:
            raise TraceError(f"--map {pair_}: expected canonical=source, for example prompt=text")
        if canonical in columns:
            raise TraceError(f"--map {pair_}: {canonical} is mapped to {columns[canonical]!r} already; map it once")
        columns[canonical] = source
    return columns


def _written(trace: Trace, out: Path) -> Written:
    write(trace, out)
    return Written(out, len(trace), trace.span_s, trace.digest)


def _report(written: Written) -> None:
    minutes = written.span_s / 60.0
    print(f"{written.path}: {written.requests:,} requests over {minutes:,.1f} min, digest {written.digest[:12]}")
    for reason, rows in written.skipped.items():
        if rows:
            print(f"skipped {rows:,} rows of the source: {reason}")
