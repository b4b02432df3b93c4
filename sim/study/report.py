"""The report: one HTML file that needs nothing beside it, and its figures as PNG."""

import base64
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure
from tqdm import tqdm

from conf.atomic import atomic_files, check_ours
from conf.palette import house_style
from sim.study import figures, tables
from sim.study.compare import cells
from sim.study.identity import short_key
from sim.study.over_time import MOST, over_time
from sim.study.palette import families_of, series_of
from sim.study.runs import ReportError, Run, load_runs
from sim.study.sensitivity import EXAMPLE, RERUNS_S, likely
from sim.study.sheet import NARROW, PIXELS_PER_INCH, WIDE, Sheet


@dataclass(frozen=True, slots=True)
class Report:
    """Where a report was written."""

    html: Path
    figures: list[Path]


@dataclass(frozen=True, slots=True)
class _Print:
    """A figure as it is shown: its PNG for wide and for narrow screens, and how wide that is, in CSS pixels."""

    wide: bytes
    narrow: bytes
    pixels: int
    narrow_pixels: int


@dataclass(frozen=True, slots=True)
class _Plate:
    """A figure of the report: its file name, how to draw it, and what its caption says."""

    name: str
    title: str
    draw: Callable[[Sequence[Run], Sheet], Figure | None]
    caption: str


_PLATES = (
    _Plate(
        "latency.png",
        "Latency distribution",
        figures.latency_distribution,
        "Share of completed requests whose latency, from arrival to the finished image, is at most the value on "
        "the x axis; warm-up is left out. Marks are the 50th and 99th percentile. Dashed lines are the SLO limits, "
        "in seconds or as multiples (x) of the standalone latency: the same request in full on the large model, alone "
        "on a GPU (the mean where sizes differ).",
    ),
    _Plate(
        "slo.png",
        "SLO violations",
        figures.slo_violations,
        "Share of requests that took longer than the limit or were not served, one panel for each limit.",
    ),
    _Plate(
        "hits.png",
        "Cache hits by steps skipped",
        figures.hit_share,
        "Share of cache lookups that skipped K denoising steps, and misses; each bar adds up to 100%. "
        "Systems without a cache are not shown.",
    ),
    _Plate(
        "throughput.png",
        "Throughput",
        figures.throughput,
        "Requests completed per minute of the measured window. Where bars say what was saved: the compute, 1 − "
        "step-seconds spent ÷ step-seconds of every request in full on the large model.",
    ),
    _Plate(
        "over_time.png",
        "Queue and GPUs over time",
        over_time,
        "Shades: the share of the GPUs that are busy. Areas: requests waiting, on one scale for a load. Both "
        "are averaged over short spans of the run, warm-up included; of several seeds, the first.",
    ),
)


def write_report(
    dirs: Sequence[Path], out: Path | None = None, title: str | None = None, reruns_s: float = RERUNS_S
) -> Report:
    """Compare every finished run in or below `dirs`.

    Args:
        dirs: Run directories, or folders of them (a sweep).
        out: The HTML file; `report.html` in it if it is a directory. Default: in the first of `dirs`.
        title: The report's title. Default: the systems compared.
        reruns_s: CPU-seconds that reruns with the service time moved may take in all.

    Returns:
        The HTML file and the PNG files in `figures` beside it. The same runs give the same bytes.

    Raises:
        ReportError: no runs, runs that cannot be read, or a place that cannot be written to.
    """
    html = out if out is not None else dirs[0]
    html = html / "report.html" if html.is_dir() else html
    check_ours(html, ReportError, "a report", b"<!DOCTYPE html>", b"mezzotint")
    runs = load_runs(dirs)
    bar = tqdm(_PLATES, desc="figures", unit="figure", disable=None, leave=False)  # quiet where nobody looks
    drawn = [(plate, shown) for plate in bar if (shown := _print(plate, runs)) is not None]
    page = _page(runs, drawn, title or _title(runs), reruns_s)
    folder = html.parent / "figures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = {folder / plate.name: shown.wide for plate, shown in drawn} | {html: page.encode()}
        gone = [path for plate in _PLATES if (path := folder / plate.name) not in files]
        with atomic_files(list(files), ReportError, gone) as temporaries:
            for temporary, content in zip(temporaries, files.values(), strict=True):
                temporary.write_bytes(content)
    except OSError as error:
        raise ReportError(f"{html}: cannot be written ({error.strerror}); name another place with -o") from error
    return Report(html, [folder / plate.name for plate, _ in drawn])


def _page(runs: Sequence[Run], drawn: Sequence[tuple[_Plate, _Print]], title: str, reruns_s: float) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("sim.study").joinpath("report.html.jinja").read_text("utf-8"))
    rows, groups = tables.comparison(runs), tables.verdicts(runs)
    found = likely(runs, reruns_s)
    return template.render(
        title=title,
        unlike=tables.unlike_work(runs),
        groups=groups,
        one_load=rows[0].load if len({row.load for row in rows}) == 1 else "",
        named=any(row.series for group in groups for row in group.rows),
        columns=tables.columns(runs),
        loads=[(load, list(of)) for load, of in groupby(rows, key=lambda row: row.load)],
        seeds=any(row.seeds > 1 for row in rows),
        notes=tables.notes(runs),
        dash=tables.DASH,
        confidence=tables.confidence(found),
        example=f"{EXAMPLE:.0%}",
        by_others=any(model.basis == "published" for run in runs for model in run.models),
        checks=tables.checks(found),
        figures=[
            {
                "title": plate.title,
                "caption": _caption(plate, runs),
                "wide": base64.b64encode(shown.wide).decode(),
                "narrow": base64.b64encode(shown.narrow).decode(),
                "pixels": shown.pixels,
                "narrow_pixels": shown.narrow_pixels,
            }
            for plate, shown in drawn
        ],
        undrawn=[plate.title for plate in _PLATES if plate not in [plate for plate, _ in drawn]],
        assumptions=tables.assumptions(runs),
        reproduction=tables.reproduction(runs),
    )


def _caption(plate: _Plate, runs: Sequence[Run]) -> str:
    """The plate's caption, with the range over seeds explained where there is one and absent data named."""
    caption = plate.caption
    if plate.draw is not over_time and any(len(cell.runs) > 1 for cell in cells(runs)):
        caption += (
            " Bars are means over seeds." if plate.draw is figures.hit_share else " Means over seeds, with their range."
        )
    if plate.draw is over_time and len(series_of(runs)) > MOST:
        caption += f" {MOST} of {len(series_of(runs))} series, evenly spaced."
    if plate.draw is figures.latency_distribution:
        absent = [run.name for run in runs if not (run.path / "requests.parquet").is_file()]
        if absent:
            caption += f" Without a requests.parquet, so not shown: {', '.join(absent)}."
    return caption


def _title(runs: Sequence[Run]) -> str:
    names = families_of(runs)
    settings = sorted({run.setting.value for run in runs if run.setting})
    key = next((short_key(run.setting.key) for run in runs if run.setting), "")
    along = f", {key} from {settings[0]:,.10g} to {settings[-1]:,.10g}" if settings else ""
    if len(names) > 4:
        return f"{len(names)} serving systems compared{along}"
    return (names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}") + along


def _print(plate: _Plate, runs: Sequence[Run]) -> _Print | None:
    wide, narrow = plate.draw(runs, WIDE), plate.draw(runs, NARROW)
    if wide is None or narrow is None:
        return None
    pixels, narrow_pixels = (round(figure.get_figwidth() * PIXELS_PER_INCH) for figure in (wide, narrow))
    return _Print(_png(wide, WIDE), _png(narrow, NARROW), pixels, narrow_pixels)


def _png(figure: Figure, sheet: Sheet) -> bytes:
    """The figure's PNG without the library's version or a date, so that equal figures are equal bytes.

    A name in a script that the font lacks is drawn as boxes; the page beside it has the name.
    """
    buffer = io.BytesIO()
    with house_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        figure.savefig(buffer, format="png", dpi=sheet.dpi, metadata={"Software": None})
    return buffer.getvalue()
