"""`mezzotint calibrate similarity-map`: fit an encoder's similarities to CLIP's thresholds on NIRVANA's caches."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from tqdm import tqdm
from typer import Option

from mezzotint import conf
from mezzotint.figures.page import render
from mezzotint.files.atomic import atomic_write, check_ours, check_target, output_folder
from mezzotint.settings.choice import choice
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.similarity_map.fit import CLIP, PRELOAD, SIZES, CacheReplays, Fit, fit, published_values
from mezzotint.sim.fit.similarity_map.replay import replay
from mezzotint.sim.papers.scorecard.targets import load_targets
from mezzotint.sim.run.config.build import build
from mezzotint.traces.encoders.embeddings import Encoder, embed
from mezzotint.traces.similarity.cached import CachedSearch
from mezzotint.traces.similarity.neighbours import cached_neighbours
from mezzotint.traces.similarity.similarities import TextToText
from mezzotint.traces.sources.file import read_any
from mezzotint.traces.table.trace import Trace

MAX_FLOOR = 0.95
"""Floors are lower, so that five points fit between one and 1."""

FLOORS = "0.45,0.5,0.55,0.6,0.65,0.7,0.75"

TARGETS = Path(conf.__file__).parent / "data" / "targets.yaml"

ENCODERS = {"ngram": "hashed n-grams", "minilm": "MiniLM"}


def similarity_map(
    trace: Annotated[Path, Option(metavar="FILE", help="a trace of real prompts in order of arrival")],
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE|FOLDER", help="the YAML file, or its folder; made if absent")
    ],
    check: Annotated[
        Path | None, Option(metavar="FILE", help="a second trace on which to report the fitted map")
    ] = None,
    encoder: Annotated[Literal["ngram", "minilm"], Option(help="the encoder to map")] = "ngram",
    rows: Annotated[
        int, Option(help="number of first requests to use of each trace")
    ] = 200_000,  # time grows with the square
    floors: Annotated[
        str, Option(metavar="LIST", help="similarities to try for CLIP's 0.65; the best is refined by half a step")
    ] = FLOORS,
) -> None:
    """Fit the similarities of an encoder that stand for CLIP's 0.65 to 0.95. Replays a trace's prompts through the
    NIRVANA paper's FIFO caches and minimises the squared differences from its rows of role fit. The similarities of all
    prompts are computed once and kept on disk, so a second fit takes minutes less.

    Raises:
        ConfigError, TraceError: an option or a trace cannot be used, or a file cannot be written.
    """
    tried_floors = _floors(floors)
    if rows <= PRELOAD:
        raise ConfigError(f"--rows: found {rows}, expected more than the {PRELOAD:,} preloaded ones")
    embedding: Encoder = build(choice("encoder", encoder), "encoder")
    is_file = output.is_file() or (output.suffix in (".yaml", ".yml") and not output.is_dir())
    path = output if is_file else output / f"{encoder}.yaml"
    check_ours(
        path, ConfigError, "a similarity map", b"#", b"mezzotint.traces.similarity.similarity_map.PiecewiseLinear"
    )
    published = published_values(load_targets(TARGETS))
    requests = _head(trace, rows)
    other = None if check is None else _head(check, rows)
    output_folder(path.parent, ConfigError)
    check_target(path, ConfigError)

    fits: list[Fit] = []

    def best_fit(floors: Sequence[float]) -> Fit:
        for replays in _replay_all(requests, embedding, floors, tried_floors[0]):
            fits.append(best := fit(replays, published))
            limits = ", ".join(f"{limit:g}" for limit in best.limits)
            # on standard error, as a reader such as head must not end the fit by closing standard output
            print(f"floor {best.floor:g}: misfit {best.misfit:.1f} with {limits} for K = 10 to 25", file=sys.stderr)
        return min(fits, key=lambda fit: (fit.misfit, fit.floor))

    best = best_fit(tried_floors).floor
    half_step = min((high - low for low, high in pairwise(tried_floors)), default=0.0) / 2
    nearby = [best - half_step, best + half_step] if half_step else []
    chosen = best_fit([round(floor, 6) for floor in nearby if tried_floors[0] <= floor < MAX_FLOOR])
    holdout: list[float] | None = None
    if other is not None:
        holdout = next(_replay_all(other, embedding, [chosen.floor], chosen.floor)).predicted(chosen.limits)
    points = list(zip((chosen.floor, *chosen.limits, 1.0), CLIP, strict=True))
    source = json.dumps(_source(requests, other), ensure_ascii=False)
    text = render(
        "mezzotint.sim.fit.similarity_map", "map.yaml.jinja", encoder=encoder, encoder_name=ENCODERS[encoder],
        fits=fits, points=points, source=source, published=published, chosen=chosen, holdout=holdout,
    )  # fmt: skip
    with atomic_write(path, ConfigError) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for index, row in enumerate(published):
        checked = "" if holdout is None else f"  {holdout[index]:.3f}"
        print(f"{row.name:16} paper {row.paper:.3f}  ours {chosen.ours[index]:.3f}{checked}")
    print(path)


def _replay_all(trace: Trace, encoder: Encoder, floors: Sequence[float], min_floor: float) -> Iterator[CacheReplays]:
    """Replay the trace through all caches, floor by floor; ``min_floor`` is the lowest floor of the whole fit."""
    similarity = TextToText()
    similarity.bind(embed(trace, encoder), np.random.default_rng(0))
    max_neighbours = CachedSearch().max_neighbours
    known = cached_neighbours(similarity, len(trace), min_floor, max_neighbours, f"{trace.digest} {encoder.name}")
    caches = [*((size, 0) for size in SIZES), (SIZES[-1], PRELOAD)]  # Table 3's, and the preloaded one of Figure 15
    with tqdm(total=len(floors) * len(caches), desc="replay", unit="cache", disable=None) as bar:
        for floor in floors:
            replays = []
            for prompts, preload in caches:
                replays.append(replay(known, similarity, floor, prompts, preload))
                bar.update()
            hits = tuple(np.sort(served[~np.isnan(served)]) for served in replays)
            yield CacheReplays(floor, hits, tuple(map(len, replays)))


def _head(path: Path, rows: int) -> Trace:
    trace = read_any(path)
    if len(trace) <= PRELOAD:
        raise ConfigError(f"{path}: found {len(trace)} requests, expected more than the {PRELOAD:,} preloaded ones")
    return trace.head(rows)


def _floors(given: str) -> list[float]:
    try:
        floors = sorted({float(floor) for floor in given.split(",")})
    except ValueError:
        floors = [1.0]
    if not 0 < floors[0] <= floors[-1] < MAX_FLOOR:
        raise ConfigError(
            f"--floors: found {given!r}, expected similarities above 0 and below {MAX_FLOOR}, as in {FLOORS}"
        )
    return floors


def _source(trace: Trace, other: Trace | None) -> str:
    notes = trace.notes
    stretch = f" from {notes['since']} to {notes['until']}" if notes.get("since") and notes.get("until") else ""
    checked = "" if other is None else f"; shown on {len(other):,} of {other.name}"
    fitted = "fitted to NIRVANA's FIFO caches (Table 3) and its hits (Fig. 15)"
    return f"{fitted}, on {len(trace):,} requests of {trace.name}{stretch}, in order{checked}"
