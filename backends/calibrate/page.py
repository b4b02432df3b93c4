"""The page of a calibration: its tables in Markdown, and its figure beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.base import BackendError
from backends.calibrate.assemble import typical
from backends.calibrate.figures import STEPS, draw, images_per_minute
from backends.calibrate.journal import Entry
from backends.calibrate.plan import Cell
from backends.profile import Point, Profile, Timing, file_name, shipped, within
from conf.atomic import atomic_files
from conf.page import DASH, render

Rows = list[list[object]]


def write_page(profile: Profile, entries: Sequence[Entry], skipped: Sequence[Cell], folder: Path) -> tuple[Path, Path]:
    """Write ``<gpu>_<model>.md`` and ``<gpu>_<model>_step.png`` into ``folder``.

    Args:
        skipped: cells that were not tried because a smaller one gave nothing.

    Raises:
        BackendError: a file cannot be written.
    """
    stem = file_name(profile.gpu, profile.model).removesuffix(".yaml")
    page, figure = folder / f"{stem}.md", folder / f"{stem}_step.png"
    published = [found for found in within(shipped()) if found.model == profile.model and found.gpu != profile.gpu]
    text = render(
        "backends.calibrate",
        "page.md.jinja",
        profile=profile,
        figure=figure.name,
        full_run=STEPS,
        steps=_steps(profile),
        beside=_beside(profile, published),
        around=_around(profile),
        steered=_steered(entries),
        apart=[[_size(p), *map(_ms, (p.encoder_s, p.controlnet_s, p.receive_s))] for p in profile.apart],
        lora=_lora(entries) if profile.lora is not None else [],
        loads=[
            {
                "operation": entry.cell.operation,
                "gib": _gib(entry.measured.facts["bytes"]),
                "seconds": f"{typical(entry.measured)[0]:.2f}",
            }
            for entry in entries
            if entry.measured is not None and entry.cell.operation in ("draw", "load")
        ],
        failed=[entry for entry in entries if entry.outcome != "measured"],
        skipped=skipped,
    )
    with atomic_files([figure, page], BackendError) as (drawn, written):
        draw(profile, [(p.gpu.upper(), point) for p in published for point in p.step], drawn)
        written.write_text(text, encoding="utf-8")
    return page, figure


def _steps(profile: Profile) -> Rows:
    joules = {(e.width, e.height, e.batch): e.joules for e in profile.energy}
    peaks = {(m.width, m.height, m.batch): m.bytes for m in profile.memory if m.operation == "step"}
    rows: Rows = []
    for p in profile.step:
        key = (p.width, p.height, p.batch)
        rate, drawn = f"{images_per_minute(profile, p):.1f}", f"{joules[key]:.2f}" if key in joules else DASH
        rows.append([_size(p), p.batch, _ms(p.seconds), _ms(p.spread_s), rate, drawn, _gib(peaks.get(key))])
    return rows


def _beside(profile: Profile, published: Sequence[Profile]) -> Rows:
    ours = {(p.width, p.height, p.batch): p.seconds for p in profile.step}
    rows: Rows = []
    for other in published:
        for p in other.step:
            here = ours.get((p.width, p.height, p.batch))
            ratio = DASH if here is None else f"{here / p.seconds:.2f}"
            rows.append([_size(p), p.batch, _ms(here), _ms(p.seconds), ratio, other.gpu.upper(), other.source])
    return rows


def _around(profile: Profile) -> Rows:
    peaks = {(str(m.operation), m.width, m.height, m.batch): m.bytes for m in profile.memory}
    timed: list[tuple[str, Sequence[Timing]]] = [
        ("text_encode", profile.text_encode),
        ("vae_decode", profile.vae_decode),
        ("vae_encode", profile.vae_encode),
    ]
    names = {"text_encode": "text encoding", "vae_decode": "VAE decoding", "vae_encode": "VAE encoding"}
    rows: Rows = []
    for operation, points in timed:
        for p in points:
            peak = peaks.get((operation, p.width, p.height, p.batch)) if isinstance(p, Point) else None
            size = _size(p) if isinstance(p, Point) else DASH
            rows.append([names[operation], size, p.batch, _ms(p.seconds), _ms(p.spread_s), _gib(peak)])
    return rows


def _steered(entries: Sequence[Entry]) -> Rows:
    rows: Rows = []
    for entry in entries:
        if entry.cell.operation == "controlnet_step" and entry.measured:
            (extra, spread), plain = typical(entry.measured), typical(entry.measured, "without")[0]
            share = f"{100 * extra / plain:.0f} %"
            rows.append(
                [entry.cell.nets, _size(entry.cell), entry.cell.batch, _ms(plain), _ms(extra), _ms(spread), share]
            )
    return rows


def _lora(entries: Sequence[Entry]) -> Rows:
    measured = [entry.measured for entry in entries if entry.cell.operation == "lora" and entry.measured]
    return [[name, *map(_ms, typical(measured[-1], name))] for name in measured[-1].seconds] if measured else []


def _size(of: Any) -> str:
    return f"{of.width}×{of.height}"


def _ms(seconds: float | None) -> str:
    return DASH if seconds is None else f"{1000 * seconds:.2f}"


def _gib(count: int | None) -> str:
    return DASH if count is None else f"{count / 2**30:.2f}"
