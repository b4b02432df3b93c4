"""The page of a calibration: tables in Markdown, and a figure of step time, images per minute and memory."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.assemble import mean_and_spread
from mezzotint.backends.calibrate.journal import JournalEntry
from mezzotint.backends.calibrate.plan import Cell
from mezzotint.backends.profile import Point, Profile, file_name, shipped, within
from mezzotint.figures.page import DASH, render
from mezzotint.figures.palette import COLOURS, EDGE, house_style, plain_numbers
from mezzotint.figures.save import save_png
from mezzotint.files.atomic import atomic_files

STEPS = 50
"""Steps per image in images per minute, as the papers replay."""

_DASHES: tuple[Any, ...] = ("--", (0, (6, 2, 1, 2)), (0, (1, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def write_page(
    profile: Profile, entries: Sequence[JournalEntry], skipped: Sequence[Cell], folder: Path
) -> tuple[Path, Path]:
    """Write ``<gpu>_<model>.md`` and ``<gpu>_<model>_step.png`` into ``folder``.

    Args:
        skipped: cells not tried because a smaller one did not fit or failed.

    Raises:
        BackendError: a file cannot be written.
    """
    stem = file_name(profile.gpu, profile.model).removesuffix(".yaml")
    page, figure = folder / f"{stem}.md", folder / f"{stem}_step.png"
    published = [other for other in within(shipped()) if other.model == profile.model and other.gpu != profile.gpu]
    measured = [(entry.cell, entry.measured) for entry in entries if entry.measured is not None]
    text = render(
        "mezzotint.backends.calibrate",
        "page.md.jinja",
        profile=profile,
        figure=figure.name,
        full_run=STEPS,
        dash=DASH,
        published=published,
        rate={p: images_per_minute(profile, p) for p in profile.step},
        seconds={(p.width, p.height, p.batch): p.seconds for p in profile.step},
        joules={(e.width, e.height, e.batch): e.joules for e in profile.energy},
        peaks={(m.operation, m.width, m.height, m.batch): m.bytes for m in profile.memory},
        steered=[(cell, got) for cell, got in measured if cell.operation == "controlnet_step"],
        patched=[
            _patched(profile, cell, mean_and_spread(got)[0]) for cell, got in measured if cell.operation == "patched"
        ],
        lora=[got for cell, got in measured if cell.operation == "lora"][-1:] if profile.lora is not None else [],
        loads=[(cell, got) for cell, got in measured if cell.operation in ("draw", "load")],
        mean_and_spread=mean_and_spread,
        failed=[entry for entry in entries if entry.outcome != "measured"],
        skipped=skipped,
    )
    with atomic_files([figure, page], BackendError) as (drawn, written):
        draw(profile, [(p.gpu.upper(), point) for p in published for point in p.step], drawn)
        written.write_text(text, encoding="utf-8")
    return page, figure


def images_per_minute(profile: Profile, point: Point) -> float:
    """Images per minute of batches like ``point`` one after another: 50 steps, text encoding and VAE decoding.

    An encoding or decoding that was not measured at that batch counts nothing.
    """
    text_s = next((text.seconds for text in profile.text_encode if text.batch == point.batch), 0.0)
    decodings = {(image.size, image.batch): image.seconds for image in profile.vae_decode}
    image_s = decodings.get((point.size, point.batch), 0.0)
    return 60 * point.batch / (STEPS * point.seconds + text_s + image_s)


def _patched(profile: Profile, cell: Cell, seconds: float) -> tuple[str, float, float, float | None]:
    """Return the images of ``cell``, and seconds: measured, fitted, and of a batch for each size one after another.

    The last is None if one of these batches was not measured.
    """
    assert profile.patched is not None
    images = Counter(cell.mix)
    steps = {(p.size[:2], p.batch): p.seconds for p in profile.step}
    of_sizes = [steps.get(batch) for batch in images.items()]
    turns = None if None in of_sizes else sum(step for step in of_sizes if step is not None)
    said = ", ".join(f"{count} of {width}×{height}" for (width, height), count in images.items())
    return said, seconds, profile.patched.step_s(cell.mix, cell.side), turns


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
        looks: dict[tuple[int, int], dict[str, Any]] = {
            size: {"color": COLOURS[i % len(COLOURS)], "marker": _MARKERS[i % len(_MARKERS)]}
            for i, size in enumerate(sizes)
        }
        for size, look in looks.items():
            points = sorted((p for p in profile.step if (p.width, p.height) == size), key=lambda p: p.batch)
            batches, steps_ms = [p.batch for p in points], [1000 * p.seconds for p in points]
            # Half of the interquartile range to each side, kept above zero for the logarithmic axis.
            around_ms = [1000 * min((p.spread_s or 0) / 2, 0.9 * p.seconds) for p in points]
            panels[0].errorbar(batches, steps_ms, yerr=around_ms, capsize=2.5, **look)
            panels[1].plot(batches, [images_per_minute(profile, p) for p in points], **look)
            for operation, dash in (("step", "-"), ("vae_decode", ":")) if peaks else ():
                at = sorted((p.batch, p.bytes) for p in peaks if (p.operation, p.width, p.height) == (operation, *size))
                panels[2].plot([batch for batch, _ in at], [held / 2**30 for _, held in at], dash, **look)
        handles = [Line2D([], [], label=f"{width}×{height}", **look) for (width, height), look in looks.items()]
        if peaks:
            handles.append(Line2D([], [], color=EDGE, linestyle="-", label="step"))
            handles.append(Line2D([], [], color=EDGE, linestyle=":", label="VAE decoding"))
        for turn, (where, p) in enumerate(references):
            said = f"{where}, published: {p.width}×{p.height}, batch {p.batch}, {1000 * p.seconds:.1f} ms"
            colour, dash = looks.get((p.width, p.height), {"color": EDGE})["color"], _DASHES[turn % len(_DASHES)]
            line = {"color": colour, "linestyle": dash, "linewidth": 1.0, "zorder": 1.5, "label": said}
            handles.append(panels[0].axhline(1000 * p.seconds, **line))
        every = sorted({p.batch for p in profile.step})
        _finish(panels[0], every, "One denoising step, mean and quartile spread", "milliseconds per step")
        _finish(panels[1], every, f"Throughput: {STEPS} steps, text encoding, VAE", "images per minute")
        for panel in panels[2:]:
            _finish(panel, every, "Peak memory, weights included", "GiB")
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 2 * columns))
        save_png(figure, path)


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
