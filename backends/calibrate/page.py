"""The page of a calibration: its tables in Markdown, and its figure beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends.base import BackendError
from backends.calibrate.assemble import typical
from backends.calibrate.figures import STEPS, draw, images_per_minute
from backends.calibrate.journal import Entry
from backends.calibrate.plan import Cell
from backends.profile import Point, Profile, Timing, shipped, within
from conf.atomic import atomic_files
from conf.page import table


def write_page(profile: Profile, entries: Sequence[Entry], skipped: Sequence[Cell], folder: Path) -> tuple[Path, Path]:
    """Write ``<gpu>_<model>.md`` and ``<gpu>_<model>_step.png`` into ``folder``.

    Args:
        skipped: cells that were not tried because a smaller one gave nothing.

    Raises:
        BackendError: a file cannot be written.
    """
    stem = f"{profile.gpu}_{profile.model}"
    page, figure = folder / f"{stem}.md", folder / f"{stem}_step.png"
    published = [found for found in _published(profile.model) if found.gpu != profile.gpu]
    blocks = [
        f"# {profile.model} on {profile.device}",
        f"{profile.source}. {profile.dtype}, {profile.date} (UTC). {profile.notes}",
        "Versions: " + ", ".join(f"{name} {number}" for name, number in profile.versions.items()) + ".",
        f"![Step time, throughput and memory of {profile.model} over the batch]({figure.name})",
        *_steps(profile),
        *_beside(profile, published),
        *_around(profile),
        *_add_ons(profile, entries),
        *_once(profile, entries),
        *_not_measured(entries, skipped),
    ]
    with atomic_files([figure, page], BackendError) as (drawn, written):
        draw(profile, [(p.gpu.upper(), point) for p in published for point in p.step], drawn)
        written.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return page, figure


def _published(model: str) -> list[Profile]:
    return [profile for profile in within(shipped()) if profile.model == model]


def _steps(profile: Profile) -> list[str]:
    joules = {(e.width, e.height, e.batch): e.joules for e in profile.energy}
    peaks = {(m.width, m.height, m.batch): m.bytes for m in profile.memory if m.operation == "step"}
    rows = []
    for p in profile.step:
        key = (p.width, p.height, p.batch)
        rate, drawn = f"{images_per_minute(profile, p):.1f}", f"{joules[key]:.2f}" if key in joules else "-"
        rows.append([_size(p), p.batch, _ms(p.seconds), _ms(p.spread_s), rate, drawn, _gib(peaks.get(key))])
    head = ["size", "batch", "median [ms]", "quartile spread [ms]", "images per minute", "energy [J]", "peak [GiB]"]
    power = f" While it denoised the device drew {profile.power_w:.0f} W." if profile.power_w else ""
    return [
        "## One denoising step",
        f"Of a batch, both halves of classifier-free guidance included. Images per minute are of {STEPS} steps, text "
        f"encoding and VAE decoding, one batch after another.{power}",
        table(head, rows),
    ]


def _beside(profile: Profile, published: Sequence[Profile]) -> list[str]:
    ours = {(p.width, p.height, p.batch): p.seconds for p in profile.step}
    rows = []
    for other in published:
        for p in other.step:
            here = ours.get((p.width, p.height, p.batch))
            ratio = "-" if here is None else f"{here / p.seconds:.2f}"
            rows.append([_size(p), p.batch, _ms(here), _ms(p.seconds), ratio, other.gpu.upper(), other.source])
    if not rows:
        return []
    head = ["size", "batch", "here [ms]", "published [ms]", "ratio", "GPU", "source"]
    return ["## Beside published step times", table(head, rows)]


def _around(profile: Profile) -> list[str]:
    peaks = {(str(m.operation), m.width, m.height, m.batch): m.bytes for m in profile.memory}
    timed: list[tuple[str, str, Sequence[Timing]]] = [
        ("text encoding", "text_encode", profile.text_encode),
        ("VAE decoding", "vae_decode", profile.vae_decode),
        ("VAE encoding", "vae_encode", profile.vae_encode),
    ]
    rows = []
    for name, operation, points in timed:
        for p in points:
            sized = isinstance(p, Point)
            peak = peaks.get((operation, p.width, p.height, p.batch)) if isinstance(p, Point) else None
            rows.append([name, _size(p) if sized else "-", p.batch, _ms(p.seconds), _ms(p.spread_s), _gib(peak)])
    head = ["operation", "size", "batch", "median [ms]", "quartile spread [ms]", "peak [GiB]"]
    return ["## Text encoder and VAE", table(head, rows)] if rows else []


def _add_ons(profile: Profile, entries: Sequence[Entry]) -> list[str]:
    blocks = []
    tried = [(e.cell, e.measured) for e in entries if e.cell.operation == "controlnet_step" and e.measured]
    if tried:
        rows = []
        for cell, got in tried:
            (extra, spread), plain = typical(got), typical(got, "without")[0]
            size, share = f"{cell.width}×{cell.height}", f"{100 * extra / plain:.0f} %"
            rows.append([cell.nets, size, cell.batch, _ms(plain), _ms(extra), _ms(spread), share])
        head = ["nets", "size", "batch", "plain step [ms]", "added [ms]", "quartile spread [ms]", "of the plain step"]
        blocks += ["## ControlNets in line", table(head, rows)]
    if profile.apart:
        rows = [[f"{p.width}×{p.height}", *map(_ms, (p.encoder_s, p.controlnet_s, p.receive_s))] for p in profile.apart]
        head = ["size", "encoder [ms]", "ControlNet [ms]", "taking it in [ms]"]
        said = "The parts of a step at batch 1, whose ControlNets run on GPUs of their own beside the encoder."
        blocks += ["## ControlNets apart", said, table(head, rows)]
    if profile.controlnet is not None:
        net = profile.controlnet
        blocks.append(f"The weights of one ControlNet, {net.bytes / 1e6:.1f} MB, were loaded in {net.load_s:.3g} s.")
    loras = [e.measured for e in entries if e.cell.operation == "lora" and e.measured]
    if profile.lora is not None and loras:
        rows = []
        for name in loras[-1].seconds:
            median_s, spread_s = typical(loras[-1], name)
            rows.append([name, _ms(median_s), _ms(spread_s)])
        blocks += [
            "## A LoRA on the denoiser",
            f"Rank {profile.lora.rank} on the attention layers, {profile.lora.bytes / 1e6:.1f} MB. Patching is "
            "attaching and fusing in one go; merging adds it to the weights in place, restoring copies them back.",
            table(["operation", "median [ms]", "quartile spread [ms]"], rows),
        ]
    return blocks


def _once(profile: Profile, entries: Sequence[Entry]) -> list[str]:
    said = []
    for entry in entries:
        if entry.measured is None or entry.cell.operation not in ("draw", "load"):
            continue
        seconds, size = typical(entry.measured)[0], entry.measured.facts["bytes"] / 2**30
        if entry.cell.operation == "load":
            said.append(f"The weights, {size:.2f} GiB, were loaded in {seconds:.2f} s.")
        else:
            said.append(
                f"The weights, {size:.2f} GiB, were drawn at random on the device in {seconds:.2f} s, which says "
                "nothing about loading them; the profile has no load time."
            )
    return ["## Loading", *said] if said else []


def _not_measured(entries: Sequence[Entry], skipped: Sequence[Cell]) -> list[str]:
    lines = [f"- {e.cell}: {e.outcome} ({e.reason})" for e in entries if e.outcome != "measured"]
    lines += [f"- {cell}: not tried, a smaller one gave nothing" for cell in skipped]
    return ["## Not measured", "\n".join(lines)] if lines else []


def _size(point: Timing) -> str:
    return f"{point.width}×{point.height}" if isinstance(point, Point) else "-"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.2f}"


def _gib(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**30:.2f}"
