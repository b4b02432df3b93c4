"""`mezzotint calibrate scale`: an encoder's similarities for CLIP's thresholds, fitted on NIRVANA's FIFO caches."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import conf
from conf.atomic import atomic_write, check_ours, check_target, output_folder
from sim.errors import ConfigError
from sim.study.scorecard.targets import load_targets

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from sim.study.scale.fit import Fit
    from sim.study.scale.rows import Aim, Passes
    from traces.encoders.embeddings import Encoder
    from traces.table.trace import Trace

ROWS = 200_000
"""Requests at most: the neighbours of all of them are found, which grows with their square."""

MOST = 0.95
"""A floor lies below it: five points have to lie between it and 1."""

FLOORS = "0.45,0.5,0.55,0.6,0.65,0.7,0.75"

TARGETS = Path(conf.__file__).parent / "data" / "targets.yaml"


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `scale` to what can be calibrated; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "scale",
        help="where CLIP's similarities stand on another encoder's (NIRVANA's FIFO caches)",
        description="Replay a trace's prompts through NIRVANA's FIFO caches, and find the encoder's similarities that "
        "stand for CLIP's 0.65 to 0.95: those with which the rows of role fit come nearest. The similarities of all "
        "prompts are found once and kept, so a second fit takes minutes less.",
    )
    parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="real prompts in their order")
    parser.add_argument("--check", type=Path, metavar="FILE", help="another trace, on which the same scale is shown")
    parser.add_argument("--encoder", default="ngram", help="ngram or minilm (default: ngram)")
    parser.add_argument(
        "--rows", type=int, default=ROWS, metavar="N", help=f"the first N requests of a trace (default: {ROWS:,})"
    )
    parser.add_argument(
        "--floors",
        default=FLOORS,
        metavar="LIST",
        help=f"similarities tried for 0.65; then those half a step beside the best (default: {FLOORS})",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE|FOLDER",
        help="the YAML file, or its folder; made if absent",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, fit, write the scale, and say how near it comes.

    Raises:
        ConfigError, TraceError: an option or a trace cannot be used, or a file cannot be written.
    """
    from sim.study.scale.fit import fit
    from sim.study.scale.page import render, told
    from sim.study.scale.rows import PRELOAD, aims

    floors = _floors(args.floors)
    if args.rows <= PRELOAD:
        raise ConfigError(f"--rows: found {args.rows}, expected more than the {PRELOAD:,} that are preloaded")
    encoder = _encoder(args.encoder)
    is_file = args.output.is_file() or (args.output.suffix in (".yaml", ".yml") and not args.output.is_dir())
    path = args.output if is_file else args.output / f"{args.encoder}.yaml"
    check_ours(path, ConfigError, "a scale", b"#", b"traces.similarity.scale.Knots")
    wanted = aims(load_targets(TARGETS))
    trace = _trace(args.trace, args.rows)
    other = None if args.check is None else _trace(args.check, args.rows)
    output_folder(path.parent, ConfigError)
    check_target(path, ConfigError)

    fits: list[Fit] = []

    def tried(some: Sequence[float]) -> None:
        for found in _passes(trace, encoder, some, floors[0]):
            fits.append(fit(found, wanted))
            print(told(fits[-1]), flush=True)

    tried(floors)
    beside = min((high - low for low, high in pairwise(floors)), default=0.0) / 2
    best = _best(fits).floor
    tried([round(floor, 6) for floor in (best - beside, best + beside) if beside and floors[0] <= floor < MOST])
    chosen = _best(fits)
    shown: list[float] | None = None
    if other is not None:
        found = next(_passes(other, encoder, [chosen.floor], chosen.floor))
        shown = found.numbers(chosen.limits)
    text = render(args.encoder, trace, other, fits, chosen, wanted, shown)
    with atomic_write(path, ConfigError) as temporary:
        temporary.write_text(text, encoding="utf-8")
    _print(wanted, chosen.ours, shown)
    print(path)
    return 0


def _passes(trace: "Trace", encoder: "Encoder", floors: Sequence[float], least: float) -> "Iterator[Passes]":
    """The trace through all caches, one floor after the other; ``least`` is the lowest one of all, once and for all."""
    import numpy as np
    from tqdm import tqdm

    from sim.study.scale.replay import replay
    from sim.study.scale.rows import PRELOAD, SIZES, passes
    from traces.encoders.embeddings import embed
    from traces.similarity.neighbours import FILES, Neighbours, remembered
    from traces.similarity.remembered import Remembered
    from traces.similarity.spaces import TextToText

    space = TextToText()
    space.bind(embed(trace, encoder), np.random.default_rng(0))
    kept = remembered(space, len(trace), least, Remembered().most, f"{trace.digest} {encoder.name}")
    known = Neighbours(*(np.array(getattr(kept, name)) for name in FILES))  # looked up at random: not mapped
    with tqdm(total=len(floors) * (len(SIZES) + 1), desc="replay", unit="cache", disable=None) as bar:

        def one(floor: float, prompts: int, preload: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
            found = replay(known, space, floor, prompts, preload)
            bar.update()
            return found

        for floor in floors:
            yield passes(floor, one, SIZES, PRELOAD)


def _best(fits: "Sequence[Fit]") -> "Fit":
    return min(fits, key=lambda fit: (fit.misfit, fit.floor))


def _trace(path: Path, rows: int) -> "Trace":
    """The first ``rows`` of a trace. Raises ConfigError where there are too few."""
    from sim.study.scale.rows import PRELOAD
    from traces.table.trace import make, read

    trace = read(path)
    if len(trace) <= PRELOAD:
        raise ConfigError(f"{path}: found {len(trace)} requests, expected more than the {PRELOAD:,} that are preloaded")
    if len(trace) <= rows:
        return trace
    head = make(trace.table.slice(0, rows), name=trace.name, source=trace.source, notes=trace.notes)
    return replace(head, path=None)


def _encoder(name: str) -> "Encoder":
    from traces.encoders.minilm import MiniLM
    from traces.encoders.ngram import HashedNgrams

    if name not in ("ngram", "minilm"):
        raise ConfigError(f"--encoder: found {name!r}, expected ngram or minilm")
    return MiniLM() if name == "minilm" else HashedNgrams()


def _floors(given: str) -> list[float]:
    try:
        floors = sorted({float(each) for each in given.split(",")})
    except ValueError:
        floors = [1.0]
    if not 0 < floors[0] <= floors[-1] < MOST:
        raise ConfigError(f"--floors: found {given!r}, expected similarities above 0 and below {MOST}, as in {FLOORS}")
    return floors


def _print(aims: "Sequence[Aim]", ours: Sequence[float], other: Sequence[float] | None) -> None:
    for place, aim in enumerate(aims):
        beside = "" if other is None else f"  {other[place]:.3f}"
        print(f"{aim.name:16} paper {aim.paper:.3f}  ours {ours[place]:.3f}{beside}")
