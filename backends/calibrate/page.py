"""The page of a calibration: tables in Markdown, and a figure."""

from collections.abc import Sequence
from pathlib import Path

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.assemble import typical
from mezzotint.backends.calibrate.figures import STEPS, draw, images_per_minute
from mezzotint.backends.calibrate.journal import JournalEntry
from mezzotint.backends.calibrate.plan import Cell
from mezzotint.backends.profile import Profile, file_name, shipped, within
from mezzotint.figures.page import DASH, render
from mezzotint.files.atomic import atomic_files


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
    published = [found for found in within(shipped()) if found.model == profile.model and found.gpu != profile.gpu]
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
        lora=[got for cell, got in measured if cell.operation == "lora"][-1:] if profile.lora is not None else [],
        loads=[(cell, got) for cell, got in measured if cell.operation in ("draw", "load")],
        typical=typical,
        failed=[entry for entry in entries if entry.outcome != "measured"],
        skipped=skipped,
    )
    with atomic_files([figure, page], BackendError) as (drawn, written):
        draw(profile, [(p.gpu.upper(), point) for p in published for point in p.step], drawn)
        written.write_text(text, encoding="utf-8")
    return page, figure
