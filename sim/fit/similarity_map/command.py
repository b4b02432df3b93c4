"""`mezzotint calibrate scale`: an encoder's similarities for CLIP's thresholds, fitted on NIRVANA's FIFO caches."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from tqdm import tqdm
from typer import Option

import conf
from conf.atomic import atomic_write, check_ours, check_target, output_folder
from conf.choice import choice
from conf.page import render
from sim.core.errors import ConfigError
from sim.fit.similarity_map.fit import CLIP, PRELOAD, SIZES, Fit, Passes, aims, fit
from sim.fit.similarity_map.replay import replay
from sim.papers.scorecard.targets import load_targets
from sim.run.config.build import build
from traces.encoders.embeddings import Encoder, embed
from traces.similarity.cached import CachedSearch
from traces.similarity.neighbours import FILES, Neighbours, cached_neighbours
from traces.similarity.similarities import TextToText
from traces.table.trace import Trace, make, read

MOST = 0.95
"""A floor lies below it: five points have to lie between it and 1."""

FLOORS = "0.45,0.5,0.55,0.6,0.65,0.7,0.75"

TARGETS = Path(conf.__file__).parent / "data" / "targets.yaml"

NAMED = {"ngram": "hashed n-grams", "minilm": "MiniLM"}


def scale(
    trace: Annotated[Path, Option(metavar="FILE", help="real prompts in their order")],
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE|FOLDER", help="the YAML file, or its folder; made if absent")
    ],
    check: Annotated[
        Path | None, Option(metavar="FILE", help="another trace, on which the same scale is shown")
    ] = None,
    encoder: Annotated[Literal["ngram", "minilm"], Option(help="whose similarities")] = "ngram",
    rows: Annotated[int, Option(help="the first N requests of a trace")] = 200_000,  # time grows with the square
    floors: Annotated[
        str, Option(metavar="LIST", help="similarities tried for 0.65; then those half a step beside the best")
    ] = FLOORS,
) -> None:
    """Replay a trace's prompts through NIRVANA's FIFO caches, and find the encoder's similarities that stand for
    CLIP's 0.65 to 0.95: those with which the rows of role fit come nearest. The similarities of all prompts are found
    once and kept, so a second fit takes minutes less.

    Raises:
        ConfigError, TraceError: an option or a trace cannot be used, or a file cannot be written.
    """
    asked = _floors(floors)
    if rows <= PRELOAD:
        raise ConfigError(f"--rows: found {rows}, expected more than the {PRELOAD:,} that are preloaded")
    embedding: Encoder = build(choice("encoder", encoder), "encoder")
    is_file = output.is_file() or (output.suffix in (".yaml", ".yml") and not output.is_dir())
    path = output if is_file else output / f"{encoder}.yaml"
    check_ours(path, ConfigError, "a scale", b"#", b"traces.similarity.similarity_map.PiecewiseLinear")
    wanted = aims(load_targets(TARGETS))
    requests = _head(trace, rows)
    other = None if check is None else _head(check, rows)
    output_folder(path.parent, ConfigError)
    check_target(path, ConfigError)

    fits: list[Fit] = []

    def tried(some: Sequence[float]) -> Fit:
        for found in _passes(requests, embedding, some, asked[0]):
            fits.append(each := fit(found, wanted))
            limits = ", ".join(f"{limit:g}" for limit in each.limits)
            print(f"floor {each.floor:g}: misfit {each.misfit:.1f} with {limits} for K = 10 to 25", flush=True)
        return min(fits, key=lambda fit: (fit.misfit, fit.floor))

    best = tried(asked).floor
    beside = min((high - low for low, high in pairwise(asked)), default=0.0) / 2
    chosen = tried([round(floor, 6) for floor in (best - beside, best + beside) if beside and asked[0] <= floor < MOST])
    shown: list[float] | None = None
    if other is not None:
        shown = next(_passes(other, embedding, [chosen.floor], chosen.floor)).numbers(chosen.limits)
    points = list(zip((chosen.floor, *chosen.limits, 1.0), CLIP, strict=True))
    source = json.dumps(_source(requests, other), ensure_ascii=False)
    text = render(
        "sim.fit.similarity_map", "scale.yaml.jinja", encoder=encoder, named=NAMED[encoder], fits=fits, points=points,
        source=source, aims=wanted, chosen=chosen, shown=shown,
    )  # fmt: skip
    with atomic_write(path, ConfigError) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for place, aim in enumerate(wanted):
        theirs = "" if shown is None else f"  {shown[place]:.3f}"
        print(f"{aim.name:16} paper {aim.paper:.3f}  ours {chosen.ours[place]:.3f}{theirs}")
    print(path)


def _passes(trace: Trace, encoder: Encoder, floors: Sequence[float], least: float) -> Iterator[Passes]:
    """The trace through all caches, one floor after the other; ``least`` is the lowest of all."""
    space = TextToText()
    space.bind(embed(trace, encoder), np.random.default_rng(0))
    kept = cached_neighbours(space, len(trace), least, CachedSearch().max_neighbours, f"{trace.digest} {encoder.name}")
    known = Neighbours(*(np.array(getattr(kept, name)) for name in FILES))  # looked up at random: not mapped
    caches = [*((size, 0) for size in SIZES), (SIZES[-1], PRELOAD)]  # Table 3's, and the preloaded one of Figure 15
    with tqdm(total=len(floors) * len(caches), desc="replay", unit="cache", disable=None) as bar:
        for floor in floors:
            found = []
            for prompts, preload in caches:
                found.append(replay(known, space, floor, prompts, preload))
                bar.update()
            yield Passes(floor, tuple(np.sort(each[~np.isnan(each)]) for each in found), tuple(map(len, found)))


def _head(path: Path, rows: int) -> Trace:
    trace = read(path)
    if len(trace) <= PRELOAD:
        raise ConfigError(f"{path}: found {len(trace)} requests, expected more than the {PRELOAD:,} that are preloaded")
    if len(trace) <= rows:
        return trace
    return make(trace.table.slice(0, rows), name=trace.name, source=trace.source, notes=trace.notes)


def _floors(given: str) -> list[float]:
    try:
        floors = sorted({float(each) for each in given.split(",")})
    except ValueError:
        floors = [1.0]
    if not 0 < floors[0] <= floors[-1] < MOST:
        raise ConfigError(f"--floors: found {given!r}, expected similarities above 0 and below {MOST}, as in {FLOORS}")
    return floors


def _source(trace: Trace, other: Trace | None) -> str:
    notes = trace.notes
    stretch = f" from {notes['since']} to {notes['until']}" if notes.get("since") and notes.get("until") else ""
    beside = "" if other is None else f"; shown on {len(other):,} of {other.name}"
    fitted = "fitted to NIRVANA's FIFO caches (Table 3) and its hits (Fig. 15)"
    return f"{fitted}, on {len(trace):,} requests of {trace.name}{stretch}, in order{beside}"
