"""A fitted scale as the YAML file that a run takes it from."""

import json
from collections.abc import Sequence

from sim.study.scale.fit import CLIP, Fit
from sim.study.scale.rows import Aim
from traces.table.trace import Trace

NAMED = {"ngram": "hashed n-grams", "minilm": "MiniLM"}


def told(fit: Fit) -> str:
    """A line on one floor."""
    limits = ", ".join(f"{limit:g}" for limit in fit.limits)
    return f"floor {fit.floor:g}: misfit {fit.misfit:.1f} with {limits} for K = 10 to 25"


def render(
    encoder: str,
    trace: Trace,
    other: Trace | None,
    fits: Sequence[Fit],
    chosen: Fit,
    aims: Sequence[Aim],
    shown: Sequence[float] | None,
) -> str:
    """The file's text.

    Args:
        encoder: its name in `encoder=`.
        trace, other: fitted on, and, where there is one, shown beside.
        fits: of all floors that were tried.
        chosen: one of them.
        aims: what they were fitted to.
        shown: what the aims are met with on ``other``.
    """
    points = dict(zip((chosen.floor, *chosen.limits, 1.0), CLIP, strict=True))
    at = ", ".join(f"{own:g}: {clip:.2f}" for own, clip in points.items())
    tried = ", ".join(f"{fit.floor:g}: {fit.misfit:.1f}" for fit in sorted(fits, key=lambda fit: fit.floor))
    said = (
        f"fitted to NIRVANA's FIFO caches (Table 3) and its hits (Fig. 15), on {len(trace):,} requests of {trace.name}"
        f"{_stretch(trace)}, in order"
    )
    if other is not None:
        said += f"; shown on {len(other):,} of {other.name}"
    lines = [
        f"# From the cosine of {NAMED[encoder]} (encoder={encoder}) to CLIP's.",
        "# Fitted on targets of role fit alone (`mezzotint calibrate scale`), without the match predictor: least",
        "# squares of the residuals in tolerances; among equals, the points that bend the scale least.",
        f"# Misfit by the first point: {tried}.",
        "_target_: traces.similarity.scale.Knots",
        f"at: {{{at}}}",
        f"source: {json.dumps(said, ensure_ascii=False)}",
        "fitted:",
        *_rows(aims, chosen.ours),
    ]
    if shown is not None:
        lines += ["shown:  # the same scale on the other trace", *_rows(aims, shown)]
    return "\n".join(lines) + "\n"


def _stretch(trace: Trace) -> str:
    notes = trace.notes
    return f" from {notes['since']} to {notes['until']}" if notes.get("since") and notes.get("until") else ""


def _rows(aims: Sequence[Aim], ours: Sequence[float]) -> list[str]:
    return [
        f'  - {{target: "{aim.name}", paper: {aim.paper:g}, ours: {value:.3f}}}'
        for aim, value in zip(aims, ours, strict=True)
    ]
