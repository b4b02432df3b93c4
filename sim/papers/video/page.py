"""Page and figure of the replayed video runs."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import DASH, percent
from mezzotint.figures.palette import COLOURS, EDGE, house_style, panels
from mezzotint.sim.papers.study import Results
from mezzotint.sim.papers.video.replay import FILE_S_PER_PIXEL, POLLING_S, SIZES, STEP_SHARES
from mezzotint.sim.papers.video.results import LIMIT
from mezzotint.sim.papers.video.rows import MEASURES

COLUMNS = 3
"""Panels in a row of the figure."""


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    runs = facts["runs"]
    errors = [error for run in runs for error in run["error"].values()]
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        image=image,
        close=sum(abs(error) <= LIMIT for error in errors),
        compared=len(errors),
        limit=LIMIT,
        measures=[*MEASURES],
        rows=[_row(run) for run in runs],
        rules=[_rules(run, steps) for run in runs if "each" in run for steps in ("equal_steps", "rules_alone")],
        shares=STEP_SHARES,
        changes=[_change(each) for each in facts["changes"]],
        seconds=_seconds(runs),
        polling_s=POLLING_S,
        file_ns=1e9 * FILE_S_PER_PIXEL,
    )


def line_of(run: Results) -> str:
    """Return a run's statistics in a line, each with its error."""
    cells = [f"{name} {_cell(run, name)}" for name in MEASURES]
    pauses = run["preemptions"]
    measured = "" if pauses["measured"] is None else f" (measured {pauses['measured']})"
    return f"{run['name']}, {run['policy']}: {', '.join(cells)}; {pauses['ours']} preemptions{measured}"


def _cell(run: Results, name: str, of: str = "") -> str:
    facts = run[of] if of else run
    error = facts["error"].get(name)
    ours = f"{facts['ours'][name]:,.1f} s"
    return ours if error is None else f"{ours} ({percent(error, 2, True)})"


def _row(run: Results) -> list[str]:
    pauses = run["preemptions"]
    measured = DASH if pauses["measured"] is None else pauses["measured"]
    return [run["name"], run["policy"], *(_cell(run, name) for name in MEASURES), f"{pauses['ours']} ({measured})"]


def _rules(run: Results, steps: str) -> list[str]:
    alone = run[steps]
    starts, furthest = f"{alone['same_starts']} of {alone['normals']}", f"{alone['furthest_s']:.1f} s"
    words = "equal" if steps == "equal_steps" else "unequal"
    return [run["name"], words, *(_cell(run, name, steps) for name in MEASURES), starts, furthest]


def _change(change: Results) -> list[str]:
    shares = (percent(change[of], 2, sign=True) for of in ("measured", "ours"))
    return [*(change[key] for key in ("name", "policy", "estimates")), *shares]


def _seconds(runs: Sequence[Results]) -> list[list[str]]:
    """Return a row of each degree and kind of estimates: what is believed beside what the NPUs take, by size."""
    found = {}
    for run in sorted(runs, key=lambda run: (run["degree"], run["estimates"])):
        cells = [f"{run['seconds'][size]['believed']:.1f} / {run['seconds'][size]['npus']:.1f}" for size in SIZES]
        found[run["degree"], run["estimates"]] = [str(run["degree"]), run["estimates"], *cells]
    return list(found.values())


@house_style()
def draw(facts: Results) -> Figure:
    """Draw each request of each log beside the real one, then the errors of all runs."""
    logs = [run for run in facts["runs"] if "each" in run]
    rows = -(-(len(logs) + 1) // COLUMNS)
    count = min(COLUMNS, len(logs) + 1)
    figure, grid = panels(count, rows, width=4.2 * count, height=4.2 * rows, share_y=False)
    axes = grid.ravel()
    for each, run in zip(axes, logs, strict=False):
        _draw_requests(each, run)
    _draw_errors(axes[len(logs)], facts["runs"])
    for each in axes[len(logs) + 1 :]:
        each.set_axis_off()
    return figure


def _draw_requests(axes: Axes, run: Results) -> None:
    largest = max(max(each["measured_s"], each["ours_s"]) for each in run["each"])
    axes.plot([0, largest], [0, largest], color=EDGE, linewidth=0.8)
    for size, colour in zip(SIZES, COLOURS, strict=False):
        for queue, marker in (("normal", "o"), ("tail", "D")):
            chosen = [each for each in run["each"] if (each["size"], each["queue"]) == (size, queue)]
            label = f"{size}{', tail' if queue == 'tail' else ''}"
            axes.plot(
                [each["measured_s"] for each in chosen],
                [each["ours_s"] for each in chosen],
                marker,
                color=colour,
                markersize=4 if queue == "normal" else 6,
                alpha=0.8,
                label=label if chosen else None,
            )
    axes.set(xlabel="measured latency (s)", ylabel="simulated (s)", title=run["name"])
    axes.legend(loc="upper left", fontsize=7)


def _draw_errors(axes: Axes, runs: Sequence[Results]) -> None:
    for name, colour in zip(MEASURES, COLOURS, strict=False):
        points = [(run["error"][name], place) for place, run in enumerate(runs) if name in run["error"]]
        axes.plot([100 * error for error, _ in points], [place for _, place in points], "o", color=colour, label=name)
    axes.axvspan(-100 * LIMIT, 100 * LIMIT, color=EDGE, alpha=0.1, linewidth=0)
    axes.axvline(0, color=EDGE, linewidth=0.8)
    names = [f"{run['groups']} x {run['degree']}, {run['requests']}, {run['policy']}" for run in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="error (%)", title="Simulated over measured")
    axes.legend(fontsize=7)
