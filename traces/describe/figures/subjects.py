"""The figures: which panels belong to which subject, and how they are laid out and written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mezzotint.figures.palette import COLOURS, house_style, panels
from mezzotint.figures.save import save_png
from mezzotint.files.atomic import atomic_files
from mezzotint.traces.describe.figures import arrivals, prompts, request_mix
from mezzotint.traces.describe.figures.axes import Look
from mezzotint.traces.describe.prompts.survival import EPS
from mezzotint.traces.describe.statistics import TraceStatistics
from mezzotint.traces.error import TraceError

Panel = Callable[[Axes, Any], None]

WIDTH, HEIGHT = 3.7, 3.3
"""Of a panel, inches."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One figure: its file's name, the statistic it shows (None if lacking), and its panels.

    The first panel is also in the overview.
    """

    name: str
    statistic: Callable[[TraceStatistics], Any]
    panels: tuple[Panel, ...]


SUBJECTS = (
    Subject(
        "arrivals", lambda trace: trace.arrivals if trace.arrivals and trace.arrivals.gap_s.any() else None,
        (arrivals.rate, arrivals.gaps, arrivals.dispersion, arrivals.day, arrivals.variation),
    ),
    Subject("users", lambda trace: trace.users, (arrivals.activity,)),
    Subject(
        "sessions", lambda trace: trace.users if trace.timed else None, (arrivals.session_length, arrivals.session_gap)
    ),
    Subject("repeats", lambda trace: trace.repeats, (prompts.frequency, prompts.repeat_age)),
    Subject(
        "mix", lambda trace: trace.mix if any(trace.mix.values()) else None,
        (
            partial(request_mix.values, what="sizes", title="Sizes", label="Width × height (pixels)"),
            partial(request_mix.values, what="steps", title="Steps", label="Denoising steps"),
            partial(request_mix.values, what="images", title="Images per request", label="Images"),
        ),
    ),
    Subject(
        "add_ons", lambda trace: trace.popularity if any(trace.popularity.values()) else None,
        (
            *(partial(request_mix.calls, what=what) for what in request_mix.NAMES),
            *(partial(request_mix.per_request, what=what) for what in ("controlnets", "loras")),
        ),
    ),
    Subject("nearest", lambda trace: trace.nearest, (prompts.similarity, prompts.lag, prompts.age)),
    Subject("coverage", lambda trace: trace.coverage, (prompts.others, prompts.recent)),
    Subject("likeness", lambda trace: trace.prompt_similarity, (prompts.groups, prompts.users)),
    Subject(
        "survival", lambda trace: trace.survival, tuple(partial(prompts.clusters, eps=eps) for eps in reversed(EPS))
    ),
    Subject("hit_age", lambda trace: trace.nearest if trace.timed else None, (prompts.hit_age,)),
)  # fmt: skip
"""All figures, in the order of the statistics."""


def draw(subject: Subject, traces: Sequence[TraceStatistics]) -> Figure | None:
    """Draw all panels of a subject, the traces on the same axes; None if no trace has the statistic."""
    return _lay_out([(subject, panel) for panel in subject.panels], traces)


def overview(traces: Sequence[TraceStatistics]) -> Figure | None:
    """Draw the first panel of every subject that a trace has; None if there is none."""
    return _lay_out([(subject, subject.panels[0]) for subject in SUBJECTS], traces)


def check_folder(folder: Path) -> None:
    """Raise TraceError if `folder` is a file, before long work is spent on the figures."""
    if folder.exists() and not folder.is_dir():
        raise TraceError(f"{folder}: is a file, expected a folder for the figures; name another one")


def write(traces: Sequence[TraceStatistics], folder: Path) -> list[Path]:
    """Write all figures or none into `folder`, made if missing: `overview.png` and one per subject.

    Raises TraceError: the folder or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(f"{folder}: cannot be made ({error.strerror or error}); name another folder") from error
    drawn = [("overview", overview(traces)), *((subject.name, draw(subject, traces)) for subject in SUBJECTS)]
    figures = {folder / f"{name}.png": figure for name, figure in drawn if figure is not None}
    with atomic_files(list(figures), TraceError) as temporaries, house_style():
        for temporary, figure in zip(temporaries, figures.values(), strict=True):
            save_png(figure, temporary)
    return list(figures)


def _series(subject: Subject, traces: Sequence[TraceStatistics]) -> list[tuple[Look, Any]]:
    looks = zip(cycle(COLOURS), map(_label, traces), map(subject.statistic, traces), strict=False)
    parts = [(label, colour, part) for colour, label, part in looks if part is not None]
    return [(Look(label, colour, place, len(parts)), part) for place, (label, colour, part) in enumerate(parts)]


def _label(trace: TraceStatistics) -> str:
    return " ".join(trace.trace.name.split())[:40].lstrip("_") or "unnamed"


@house_style()
def _lay_out(chosen: Sequence[tuple[Subject, Panel]], traces: Sequence[TraceStatistics]) -> Figure | None:
    drawn = [(panel, series) for subject, panel in chosen if (series := _series(subject, traces))]
    if not drawn:
        return None
    columns = {4: 2, 7: 4, 8: 4}.get(len(drawn), min(len(drawn), 4 if len(drawn) > 9 else 3))
    rows = -(-len(drawn) // columns)
    figure, axes = panels(columns, rows, width=WIDTH * columns + 0.4, height=HEIGHT * rows + 0.5, share_y=False)
    for axis, (panel, series) in zip(axes.flat, drawn, strict=False):
        panel(axis, series)
    for axis in axes.flat[len(drawn) :]:
        axis.set_axis_off()
    handles = [
        Line2D([], [], color=colour, linewidth=2.5, label=f"{_label(one)}, {len(one.trace):,} requests")
        for colour, one in zip(cycle(COLOURS), traces, strict=False)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure
