"""Draw the pictures of the site: ``python -m docs.pictures.make`` (half a minute of one core)."""

import gzip
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import mezzotint
from mezzotint.figures.palette import BLUE, COLOURS, EDGE, GREEN, GREY, INK, VERMILION, house_style, panels
from mezzotint.figures.save import page_svg

FOLDER = Path(__file__).resolve().parent
PEAK = ("arrivals=poisson", "models=sdxl-mlperf", "cluster=l40s", "slo=[4s]")
"""The peak of the tutorial, but for its rate and number of GPUs."""


def box(axes: Any, x: float, y: float, width: float, title: str, lines: str, colour: str) -> None:
    """Draw a box of height 1.15 at its lower left corner: what a part is, and choices of it."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, 1.15, boxstyle="round,pad=0,rounding_size=0.1", facecolor="white", edgecolor=colour, lw=1.6
        )
    )
    axes.text(x + width / 2, y + 0.86, title, ha="center", va="center", fontsize=11.5, weight="bold", color=colour)
    axes.text(x + width / 2, y + 0.38, lines, ha="center", va="center", fontsize=9.5, color=INK, linespacing=1.25)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], label: str = "", shift: float = 0.1) -> None:
    """Draw an arrow, with a label to the right of its middle."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": EDGE, "lw": 1.4})
    middle = ((start[0] + end[0]) / 2 + shift, (start[1] + end[1]) / 2)
    axes.text(*middle, label, fontsize=9, color=INK, va="center", style="italic")


@house_style()
def architecture() -> Figure:
    """Draw the parts of a simulation and the path of a request."""
    figure = Figure(figsize=(6.6, 7.0))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, 10), ylim=(0, 10.6))
    axes.axis("off")
    box(axes, 0.2, 9.35, 5.4, "trace", "your log, a public one, or made up;\nat its own times or at a rate", GREY)
    box(axes, 0.2, 7.15, 5.4, "front end", "plans the request: cache lookup,\nchoice of model, first step", BLUE)
    box(axes, 7.0, 7.15, 2.4, "cache", "index, store,\nadmission, eviction", GREEN)
    box(axes, 0.2, 4.95, 5.4, "scheduler", "queue, batch former, router", BLUE)
    box(axes, 7.0, 4.95, 2.4, "controller", "roles of GPUs,\nautoscaling", VERMILION)
    box(
        axes,
        0.2,
        2.75,
        5.4,
        "workers",
        "load what is absent, fetch the artifact,\ndenoise steps K to N, decode",
        BLUE,
    )
    box(axes, 7.0, 2.75, 2.4, "backend", "a measured profile,\nor a real pipeline", GREY)
    box(
        axes,
        0.2,
        0.55,
        5.4,
        "metrics",
        "latency, SLO, cost, energy, quality:\nsummary, tables, figures, page",
        GREY,
    )
    arrow(axes, (2.9, 9.35), (2.9, 8.3), "1  arrives")
    arrow(axes, (5.6, 7.9), (7.0, 7.9))
    axes.text(6.3, 8.08, "2  search", fontsize=9, ha="center", style="italic", color=INK)
    arrow(axes, (7.0, 7.5), (5.6, 7.5))
    axes.text(6.3, 7.22, "hit at K", fontsize=9, ha="center", style="italic", color=INK)
    arrow(axes, (2.9, 7.15), (2.9, 6.1), "3  queues, as a plan: model, steps, artifact")
    arrow(axes, (2.9, 4.95), (2.9, 3.9), "4  to a GPU that is free, alone or in a batch")
    arrow(axes, (2.9, 2.75), (2.9, 1.7), "5  ends once: completed,\n    discarded or failed")
    arrow(axes, (7.0, 3.3), (5.6, 3.3))
    axes.text(6.3, 3.48, "seconds", fontsize=9, ha="center", style="italic", color=INK)
    arrow(axes, (7.0, 5.5), (5.6, 5.5))
    axes.plot([5.45, 5.45, 9.8, 9.8], [2.75, 2.45, 2.45, 7.7], color=GREEN, lw=1.4)
    axes.annotate("", (9.4, 7.7), (9.82, 7.7), arrowprops={"arrowstyle": "-|>", "color": GREEN, "lw": 1.4})
    axes.text(9.75, 2.25, "6  new artifacts", fontsize=9, ha="right", va="center", style="italic", color=INK)
    return figure


def slo(folder: Path) -> bytes:
    """Draw the report's figure of late requests, of the sweep of ``make demo``."""
    demo = (FOLDER.parent.parent / "Makefile").read_text(encoding="utf-8")
    systems = re.search(r"^SYSTEMS := (.*)$", demo, re.MULTILINE)
    words = re.search(r"system=\$\(SYSTEMS\) (.*) run\.dir", demo)
    assert systems is not None
    assert words is not None
    return mezzotint.sweep(f"system={systems[1]}", *words[1].split(), folder=folder / "demo").plot.slo().svg()


def log_of_tutorial(folder: Path) -> Path:
    """Write the log that page 1 of the tutorial makes, imported as on page 2."""
    from mezzotint.sim.cli import main

    made, log = folder / "made.parquet", folder / "log.csv"
    main(["trace", "synth", "-o", str(made), "--requests", "3000", "--rate-rpm", "20", "--seed", "1"])
    frame = pd.read_parquet(made)
    frame["time"] = pd.Timestamp("2026-03-02T09:00:00") + pd.to_timedelta(frame["arrival_s"].round(3), unit="s")
    frame[["time", "user_id", "prompt"]].to_csv(log, index=False)
    main(["trace", "import", "table", str(log), "-o", str(folder / "log.parquet")])
    return folder / "log.parquet"


@house_style()
def timeline(log: Path, folder: Path) -> Figure:
    """Draw half a minute of the run with five GPUs, from its timeline.json.gz."""
    mezzotint.run(
        *PEAK,
        *("trace=file", f"trace.path={log}", "arrivals.rate_rpm=150", "cluster.count=5", "timeline=true"),
        folder=folder / "five",
    )
    with gzip.open(folder / "five/timeline.json.gz") as file:
        events = json.load(file)["traceEvents"]
    requests = pd.read_parquet(folder / "five/requests.parquet")
    served = [event for event in events if event["ph"] == "X"]
    start = 600.0
    figure, ((gpus,), (queue,)) = panels(1, 2, width=6.6, height=3.9, share_y=False, height_ratios=[2, 1])
    for event in served:
        begin, length = event["ts"] / 1e6 - start, event["dur"] / 1e6
        if -length < begin < 30:
            lane = COLOURS[int(event["args"]["request"]) % 2 * 5]
            gpus.barh(event["tid"], length, left=begin, height=0.72, color=lane, edgecolor="white", linewidth=0.8)
    gpus.set(xlim=(0, 30), ylim=(4.6, -0.6), yticks=range(5), yticklabels=[f"GPU {gpu}" for gpu in range(5)])
    gpus.set_title("each bar is an image: 1.45 s on an L40S")
    gpus.grid(visible=False)
    times = [start + step / 20 for step in range(601)]
    begun = {event["args"]["request"]: event["ts"] / 1e6 for event in served}
    arrivals, starts = sorted(requests["arrival_s"]), sorted(begun.values())
    waiting = pd.Series(arrivals).searchsorted(times, "right") - pd.Series(starts).searchsorted(times, "right")
    queue.fill_between([time - start for time in times], waiting, step="post", color=VERMILION, alpha=0.8, linewidth=0)
    queue.set(xlim=(0, 30), ylim=(0, None), xlabel="time (s)")
    queue.set_title("requests waiting")
    return figure


@house_style()
def cache(log: Path, folder: Path) -> Figure:
    """Draw late requests against the rate and hits by K, with and without NIRVANA's cache."""
    sweep = mezzotint.sweep(
        *PEAK,
        *("system=vanilla,nirvana", "arrivals.rate_rpm=90,110,130,140,150,160,170"),
        *("trace=file", f"trace.path={log}", "cluster.count=4"),
        folder=folder / "sweep",
    )
    figure, ((late, hits),) = panels(2, width=6.6, height=2.9, share_y=False)
    for system, colour in (("vanilla", VERMILION), ("nirvana", BLUE)):
        points = sorted(
            (float(run.config["arrivals"]["rate_rpm"]), run.summary["slo"]["4s"]["violation_rate"])
            for run in sweep.where(system=system)
        )
        late.plot([rate for rate, _ in points], [100 * share for _, share in points], "o-", color=colour, label=system)
    late.set(xlabel="requests per minute", ylim=(0, None))
    late.set_title("requests over 4 s (%)")
    late.legend()
    (peak,) = sweep.where(system="nirvana", rate_rpm=150)
    shares, rate = peak.summary["cache"]["hit_share_by_k"], peak.summary["cache"]["hit_rate"]
    names = ["miss", *shares]
    hits.bar(names, [100 * (1 - rate), *(100 * rate * share for share in shares.values())], color=[GREY, *[BLUE] * 5])
    hits.set(xlabel="K, steps skipped of 50")
    hits.set_title("requests (%), at 150 a minute")
    return figure


def make(out: Path) -> None:
    """Write all pictures in ``out``."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        log = log_of_tutorial(folder)
        drawn = {
            "architecture": page_svg(architecture()),
            "slo": slo(folder),
            "timeline": page_svg(timeline(log, folder)),
            "cache": page_svg(cache(log, folder)),
        }
    for name, image in drawn.items():
        (out / f"{name}.svg").write_bytes(image)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
