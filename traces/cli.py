"""`mezzotint trace`: make, pair, export, describe and compare canonical traces."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from mezzotint.files.atomic import atomic_write, check_ours, check_target
from mezzotint.files.document import DocumentError, parse
from mezzotint.traces.describe import TraceStatistics, describe_trace, render, side_by_side
from mezzotint.traces.encoders.embeddings import Encoder
from mezzotint.traces.encoders.minilm import MiniLM
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.command import Name, Out, Seed, check_out, report
from mezzotint.traces.sources.export import FORMATS, client_command
from mezzotint.traces.sources.export import export as write_export
from mezzotint.traces.sources.file import read_any
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.synthetic.published import parameters
from mezzotint.traces.table.pairing import TAKEN
from mezzotint.traces.table.pairing import pair as paired
from mezzotint.traces.table.trace import write

ENCODERS: Mapping[str, Callable[[], Encoder]] = {"ngram": HashedNgrams, "minilm": MiniLM}

TracePath = Annotated[Path, typer.Argument(help="A trace, or a table of requests.")]
EncoderName = Annotated[
    Literal["ngram", "minilm"],
    typer.Option(help="Encoder of prompts: ngram sees shared spelling, minilm shared meaning (the `text` extra)."),
]
FigureFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Draw figures into DIR too: a PNG for each subject, and an overview.")
]


def synth(
    out: Out,
    name: Name = None,
    seed: Seed = 0,
    like: Annotated[
        Literal["diffusiondb", "gentd26", "service-a", "service-b"],
        typer.Option(help="The published trace whose statistics it is fitted to."),
    ] = "diffusiondb",
    requests: Annotated[int | None, typer.Option(metavar="N", help="Rows, by default 10000.")] = None,
    rate_rpm: Annotated[float | None, typer.Option(metavar="R", help="Arrivals per minute.")] = None,
    users: Annotated[int | None, typer.Option(metavar="N", help="Possible users.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE",
            help="Any other parameter, as conf/trace/synthetic.yaml names it; may be repeated.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Generate a synthetic trace."""
    check_out(out)
    given = {"requests": requests, "rate_rpm": rate_rpm, "users": users, **_settings(settings or [])}
    settings_of = parameters(like) | {key: value for key, value in given.items() if value is not None}
    trace = Synthetic(**settings_of).load(np.random.default_rng(seed))
    report(write(replace(trace, name=name or trace.name, notes={**trace.notes, "seed": seed}), out))


def _settings(words: list[str]) -> dict[str, Any]:
    """Return KEY=VALUE words as a mapping, values as YAML. Raises TraceError for a key that the source lacks."""
    known = [field.name for field in fields(Synthetic)]
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


def pair(
    prompts: Annotated[Path, typer.Argument(help="The trace whose prompts, sizes and seeds are used.")],
    arrivals: Annotated[Path, typer.Argument(help="The trace whose columns named by --take are used.")],
    out: Out,
    name: Name = None,
    take: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT,...",
            help=f"Columns of ARRIVALS, some of {', '.join(TAKEN)}; by default arrivals, models and add-ons it has.",
        ),
    ] = None,
    repeat: Annotated[
        bool,
        typer.Option("--repeat", help="Repeat the shorter trace; by default it decides the length."),
    ] = False,
) -> None:
    """Combine the prompts of one trace with the arrivals and models of another."""
    check_out(out)
    if out.resolve() in (prompts.resolve(), arrivals.resolve()):
        raise TraceError(f"{out}: is one of the traces to pair and would be overwritten; name another path with -o")
    columns = None if take is None else [column.strip() for column in take.split(",")]
    both = read_any(prompts), read_any(arrivals)
    report(write(made := paired(*both, take=columns, repeat=repeat, name=name), out))
    for trace in both:
        if left_out := max(len(trace) - len(made), 0):
            print(
                f"left out: the last {left_out:,} of {len(trace):,} requests of {trace.name}; --repeat takes them all"
            )


def export(
    path: TracePath,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="The file to write.")],
    form: Annotated[
        Literal["aiperf", "vllm-omni", "sglang"], typer.Option("--format", help="The benchmark that is to read it.")
    ],
) -> None:
    """Write a trace in the format of an engine's benchmark, and print the command that drives a server with it."""
    check_target(out, TraceError)
    check_ours(out, TraceError, f"an export to {form}", FORMATS[form][1])
    trace = read_any(path)
    dropped = write_export(trace, form, out)
    print(f"{out}: {len(trace):,} requests, as {form} reads them")
    if dropped:
        print(f"the format has no place for {', '.join(dropped)}")
    command, *remarks = client_command(trace, form, out)
    print(f"drive the server with: {command}", *remarks, sep="\n")


def describe(
    path: TracePath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    figures: FigureFolder = None,
    encoder: EncoderName = "ngram",
) -> None:
    """Print the statistics of a trace."""
    (found,) = _statistics([path], encoder, figures)
    statistics = found.to_dict()
    print(json.dumps(statistics, indent=2) if as_json else render(statistics))


def compare(
    real: Annotated[Path, typer.Argument(help="A trace, or a table of requests.")],
    synthetic: Annotated[
        list[Path], typer.Argument(help="A file made by `trace synth`; of several files (seeds), the mean.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the page there instead of printing it.")
    ] = None,
    figures: FigureFolder = None,
    encoder: EncoderName = "ngram",
) -> None:
    """Compare a real trace with synthetic ones, statistic by statistic."""
    if out is not None:
        check_target(out, TraceError)
        check_ours(out, TraceError, "a comparison of traces", b"## ", b" beside ")
    first, *made = _statistics([real, *synthetic], encoder, figures)
    page = side_by_side(first.to_dict(), [one.to_dict() for one in made])
    if out is None:
        print(page)
        return
    with atomic_write(out, TraceError) as temporary:
        temporary.write_text(page + "\n", encoding="utf-8")
    print(out)


def _statistics(paths: Sequence[Path], encoder: str, folder: Path | None) -> list[TraceStatistics]:
    """Measure the traces, and draw the first two if `folder` is given."""
    prompt_encoder = ENCODERS[encoder]()
    if folder is not None:
        from mezzotint.traces.describe import figures  # drawing takes a second to import, which numbers need not pay

        figures.check_folder(folder)
    found = [describe_trace(read_any(path), prompt_encoder) for path in paths]
    if folder is not None:
        written = figures.write(found[:2], folder)
        print(f"{folder}: {len(written)} figures", file=sys.stderr)
    return found
