"""`mezzotint report`: a self-contained HTML file, and its figures as SVG."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from markupsafe import Markup
from tqdm import tqdm

from mezzotint.figures.page import DASH, render
from mezzotint.files.atomic import atomic_files, atomic_write, check_ours
from mezzotint.files.printable import printable
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import REQUESTS, SUMMARY
from mezzotint.sim.metrics.counterfactuals import EXAMPLE
from mezzotint.sim.report import tables
from mezzotint.sim.report.answer import answer, caveats
from mezzotint.sim.report.assumed import section
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.figures.charts import MAX_SERIES
from mezzotint.sim.report.figures.palette import families_of, series_of, series_styles
from mezzotint.sim.report.interactive import PageFigure, page, picture, svg
from mezzotint.sim.report.labels import short_key
from mezzotint.sim.report.runs import Run, load_runs
from mezzotint.sim.report.sensitivity import PERCENTILES, Sensitivity, rerun_s, sensitivities
from mezzotint.sim.report.tenants import tenants
from mezzotint.sim.report.vllm_omni import vllm_omni
from mezzotint.sim.run.config.points import points_of
from mezzotint.sim.run.sweep_folder import failures


def report(
    dirs: Annotated[list[Path], typer.Argument(metavar="DIR", help="a run directory, or a folder of runs")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="the HTML file to write, or a directory for report.html (default: report.html in the first DIR); "
            "with --format vllm-omni the JSON file (default: standard output)",
        ),
    ] = None,
    format_: Annotated[
        Literal["html", "vllm-omni"],
        typer.Option("--format", help="vllm-omni: one run's results in the keys of vLLM-Omni's benchmark, as JSON"),
    ] = "html",
    title: Annotated[str | None, typer.Option(help="the report's title (default: the systems compared)")] = None,
    reruns_s: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="S",
            help="CPU-seconds that reruns with longer and shorter service times may take in all, inf for no limit; "
            "they give each latency its error band",
        ),
    ] = 0.0,
) -> None:
    """Compare finished runs in one self-contained HTML file, with its figures as SVG beside it.

    Raises:
        ConfigError: the runs cannot be reported on; the message says what to do.
    """
    if format_ == "html":
        say = partial(print, file=sys.stderr)  # standard output has the files alone
        print(*write_report(dirs, output, title, reruns_s, say), sep="\n")
        return
    if output is not None:
        check_ours(output, ConfigError, "results of a run", b"{", b'"backend": "mezzotint"')
    text = json.dumps(vllm_omni(dirs), indent=2, allow_nan=False)
    if output is not None:
        with atomic_write(output, ConfigError) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    print(text if output is None else output)


_FIGURES: dict[str, dict[str, Any]] = yaml.safe_load(
    (files("mezzotint.sim.report.figures") / "figures.yaml").read_text(encoding="utf-8")
)
"""Title and caption of each figure, by the name of its file, in the order of the page."""


def write_report(
    dirs: Sequence[Path],
    out: Path | None = None,
    title: str | None = None,
    reruns_s: float = 0.0,
    say: Callable[[str], object] = lambda _: None,
) -> list[Path]:
    """Compare every finished run in or below `dirs`, with the options of `mezzotint report`.

    Args:
        say: takes the lines of the header, for a terminal.

    Returns:
        The HTML file, then the SVG files in `figures` beside it. The same runs give the same bytes.

    Raises:
        ConfigError: there are no runs, a run cannot be read, or a file cannot be written.
    """
    html = out if out is not None else dirs[0]
    html = html / "report.html" if html.is_dir() else html
    check_ours(html, ConfigError, "a report", b"<!DOCTYPE html>", b"mezzotint")
    folder = html.parent / "figures"
    paths = {name: folder / f"{name}.svg" for name in _FIGURES}
    for path in paths.values():
        check_ours(path, ConfigError, "a figure of a report", b"<svg", b'class="marks"')
    runs = load_runs(dirs)
    figures = _figures(runs)
    bands = sensitivities(runs, reruns_s)
    facts = tables.facts(runs, {(band.run.series, band.run.load): band.decides for band in bands})
    for name, text in facts[0]:
        say(f"{name}: {text}")
    failed = [line for folder in dirs for line in _absent(folder)]
    html_text = _page(runs, figures, title or _title(runs), bands, facts, failed, has_reruns=reruns_s > 0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        contents = {paths[name]: figure.svg or b"" for name, figure in figures.items()}
        contents[html] = html_text.encode("utf-8", "backslashreplace")
        removed = [path for path in paths.values() if path not in contents]
        with atomic_files(list(contents), ConfigError, removed) as temporaries:
            for temporary, content in zip(temporaries, contents.values(), strict=True):
                temporary.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{html}: cannot be written ({error.strerror}); name another place with -o") from error
    return [html, *(paths[name] for name in figures)]


def _absent(folder: Path) -> Iterator[str]:
    """Yield a sentence for each point of the sweep in ``folder`` that failed, or has no run."""
    failed = failures(folder)
    yield from (f"A point failed and has no run: {line}" for line in failed)
    points = points_of(folder)
    absent = [
        printable(f"{number} ({' '.join(words)})")
        for number, words in enumerate(points)
        if not (folder / str(number) / SUMMARY).is_file() and not any(f"/{number} (" in line for line in failed)
    ]
    if absent:
        name = printable(folder.resolve().name)
        yield f"Of {len(points)} points of the sweep in {name}, {len(absent)} have no run, such as {absent[0]}."


def _page(
    runs: Sequence[Run],
    figures: Mapping[str, PageFigure],
    title: str,
    bands: Sequence[Sensitivity],
    facts: tables.Facts,
    failed: Sequence[str],
    *,
    has_reruns: bool,
) -> str:
    rows, (common, differing) = tables.comparison(runs), facts
    body = render(
        "mezzotint.sim.report",
        "report.html.jinja",
        runs=runs,
        tables=tables,
        assumed=section,
        differing=differing,
        loads=[(load, list(members)) for load, members in groupby(rows, key=lambda row: row[0].load.label)],
        seeds=any(len(cell.runs) > 1 for cell, _ in rows),
        repeated=len(runs) - sum(len(cell.runs) for cell, _ in rows),
        dash=DASH,
        sensitivities=bands,
        reruns=has_reruns,
        reruns_s=sum(rerun_s(band.run) for band in bands),
        percentiles=PERCENTILES,
        example=EXAMPLE,
        tenants=tenants(runs).assign(group=lambda rows: rows.series + ", " + rows.load).to_dict("records"),
        by_others=any(model.basis == "published" for run in runs for model in run.models),
        undrawn=[facts["title"] for name, facts in _FIGURES.items() if name not in figures and "optional" not in facts],
    )
    return page(
        title,
        answer(runs),
        list(figures.values()),
        series_styles(runs),
        Markup(body),  # the template has escaped it
        generator="mezzotint report",
        warnings=[*caveats(runs), *failed],
        facts=common,
    )


def _figures(runs: Sequence[Run]) -> dict[str, PageFigure]:
    """Return the figures that some run has the data for, with their captions."""
    seeds = any(len(cell.runs) > 1 for cell in cells(runs))
    series, without = len(series_of(runs)), [run.name for run in runs if not (run.path / REQUESTS).is_file()]
    notes = {
        "latency": f"Not shown, because they have no requests.parquet: {', '.join(without)}." if without else "",
        "over_time": f"Shows {MAX_SERIES} of {series} series, evenly spaced." if series > MAX_SERIES else "",
    }
    styles = series_styles(runs)
    figures = {}
    for name, facts in tqdm(_FIGURES.items(), desc="figures", unit="figure", disable=None, leave=False):
        if panels := getattr(charts, name)(runs):
            words = [facts["caption"], notes.get(name), facts.get("over_seeds") if seeds else ""]
            drawn = svg(picture(panels, styles))
            caption = " ".join(filter(None, words))
            figures[name] = PageFigure(facts["title"], caption, panels, drawn, folded="folded" in facts)
    return figures


def _title(runs: Sequence[Run]) -> str:
    names = families_of(runs)
    settings = sorted({run.setting.value for run in runs if run.setting})
    key = next((short_key(run.setting.key) for run in runs if run.setting), "")
    along = f", {key} from {settings[0]:,.10g} to {settings[-1]:,.10g}" if settings else ""
    if len(names) > 4:
        return f"{len(names)} serving systems compared{along}"
    return (names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}") + along
