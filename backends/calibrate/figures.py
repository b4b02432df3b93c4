"""The figure of a calibration: step time, images per minute and memory over the batch, a line per size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from backends.profile import Point, Profile
from conf.palette import COLOURS, DPI, EDGE, house_style, plain_numbers

STEPS = 50
"""Steps per image in images per minute, as the papers replay."""

_DASHES: tuple[Any, ...] = ("--", (0, (6, 2, 1, 2)), (0, (1, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def images_per_minute(profile: Profile, point: Point) -> float:
    """Images per minute of batches like ``point`` one after another: 50 steps, text encoding and VAE decoding.

    An encoding or decoding that was not measured at that batch counts nothing.
    """
    text = [each.seconds for each in profile.text_encode if each.batch == point.batch]
    image = [
        each.seconds
        for each in profile.vae_decode
        if (each.width, each.height, each.batch) == (point.width, point.height, point.batch)
    ]
    return 60 * point.batch / (STEPS * point.seconds + sum(text) + sum(image))


def draw(profile: Profile, references: Sequence[tuple[str, Point]], path: Path) -> None:
    """Write the figure to ``path`` (PNG).

    Args:
        references: (where it was published, the published step) to draw beside ours.
    """
    with house_style():
        peaks = [peak for peak in profile.memory if peak.operation in ("step", "vae_decode")]
        columns = 3 if peaks else 2
        figure = Figure(figsize=(4.4 * columns, 3.9), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, columns, squeeze=False)[0])
        figure.suptitle(f"{profile.model} on {profile.device or profile.gpu}, {profile.dtype}", x=0.01, ha="left")
        sizes = sorted({(p.width, p.height) for p in profile.step}, key=lambda size: size[0] * size[1])
        looks = {size: (COLOURS[i % len(COLOURS)], _MARKERS[i % len(_MARKERS)]) for i, size in enumerate(sizes)}
        for size in sizes:
            _lines(panels, profile, size, *looks[size])
        published = _references(panels[0], references, looks)
        batches = sorted({p.batch for p in profile.step})
        _finish(panels[0], batches, "One denoising step, median and quartile spread", "milliseconds per step")
        _finish(panels[1], batches, f"Throughput: {STEPS} steps, text encoding, VAE", "images per minute")
        handles = [Line2D([], [], color=looks[s][0], marker=looks[s][1], label=f"{s[0]}×{s[1]}") for s in sizes]
        if peaks:
            for size in sizes:
                for operation, dash in (("step", "-"), ("vae_decode", ":")):
                    of_size = [p for p in peaks if p.operation == operation and (p.width, p.height) == size]
                    of_size.sort(key=lambda p: p.batch)
                    gib = [p.bytes / 2**30 for p in of_size]
                    panels[2].plot([p.batch for p in of_size], gib, dash, color=looks[size][0], marker=looks[size][1])
            _finish(panels[2], batches, "Peak memory, weights included", "GiB")
            handles += [
                Line2D([], [], color=EDGE, linestyle="-", label="step"),
                Line2D([], [], color=EDGE, linestyle=":", label="VAE decoding"),
            ]
        handles += published
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 2 * columns))
        figure.savefig(path, format="png", dpi=DPI)


def _lines(panels: Sequence[Axes], profile: Profile, size: tuple[int, int], colour: str, marker: str) -> None:
    points = sorted((p for p in profile.step if (p.width, p.height) == size), key=lambda p: p.batch)
    batches = [p.batch for p in points]
    look: dict[str, Any] = {"color": colour, "marker": marker}
    panels[0].errorbar(
        batches,
        [1000 * p.seconds for p in points],
        # Half of the interquartile range to each side, kept above zero for the logarithmic axis.
        yerr=[1000 * min((p.spread_s or 0) / 2, 0.9 * p.seconds) for p in points],
        capsize=2.5,
        **look,
    )
    panels[1].plot(batches, [images_per_minute(profile, p) for p in points], **look)


def _references(
    panel: Axes,
    references: Sequence[tuple[str, Point]],
    looks: dict[tuple[int, int], tuple[str, str]],
) -> list[Line2D]:
    """A level line for each published step, and those lines for the legend."""
    drawn = []
    for turn, (where, point) in enumerate(references):
        said = f"{where}, published: {point.width}×{point.height}, batch {point.batch}, {1000 * point.seconds:.1f} ms"
        colour, dash = looks.get((point.width, point.height), (EDGE, ""))[0], _DASHES[turn % len(_DASHES)]
        line = panel.axhline(1000 * point.seconds, color=colour, linestyle=dash, linewidth=1.0, zorder=1.5, label=said)
        drawn.append(line)
    return drawn


def _finish(panel: Axes, batches: Sequence[int], title: str, label: str) -> None:
    panel.set_title(title)
    panel.set_xlabel("images per batch")
    panel.set_ylabel(label)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.xaxis.set_major_locator(FixedLocator(batches))
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(plain_numbers())
        axis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_minor_locator(NullLocator())
