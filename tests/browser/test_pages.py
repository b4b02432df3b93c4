"""Five pages in a real browser: nothing overlaps, is cut, is hard to see or answers wrongly, on screen and phone."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint.figures.palette import MIN_CONTRAST
from mezzotint.sim.cli import main
from mezzotint.sim.report.report import write_report
from tests.conftest import ORACLES, REPOSITORY
from tests.sim.fit.measured.lab import MODEL, profile
from tests.sim.report.conftest import SYSTEMS, write_run

playwright = pytest.importorskip("playwright.sync_api", reason="needs the dev extra")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome on the path")

WIDE, PHONE, HEIGHT = 1300, 420, 800
SCREENS = 4
"""Screens in which the report of a sweep says what it has to say."""

MIN_TEXT_CONTRAST = 4.5
"""Of text (WCAG 2.2, 1.4.3)."""

PAGES = ("run", "sweep", "plan", "validation", "docs")
WITH_LEGEND = ("sweep", "plan", "validation")
FAULTS = Path(__file__).with_name("faults.js").read_text(encoding="utf-8")

TIMEOUT_MS = 20_000

DRAWN = """document.querySelectorAll(".chart svg").length === document.querySelectorAll(".chart").length"""

MARKS = ".figures .chart .role-mark path"

Page = Any
Open = Callable[..., Page]


def _run(folder: Path) -> Path:
    assert main(["run", "trace.requests=120", "arrivals.rate_rpm=9", f"run.dir={folder / 'run'}"]) == 0
    return write_report([folder / "run"])[0]


def _sweep(folder: Path) -> Path:
    for system in SYSTEMS:
        for rate in (6.0, 10.0, 14.0, 18.0, 22.0, 26.0):
            write_run(folder / "sweep" / f"{system}-{rate:g}", system, rate_rpm=rate, requests=120)
    return write_report([folder / "sweep"])[0]


def _plan(folder: Path) -> Path:
    asked = ["--model=sdxl-mlperf", "--gpu=l40s", "--design=vanilla", "--rate-rpm=60", "--target=p99<10s"]
    bounds = ["--max-gpus=4", "--replications=1", "trace.requests=100", "trace.history=0"]
    main(["plan", *asked, *bounds, f"--runs={folder / 'runs'}", f"--output={folder / 'plan'}"])
    return folder / "plan" / "plan.html"


def _validation(folder: Path) -> Path:
    measured = str(ORACLES / "loopback" / "profile_export.jsonl")
    words = ["--measured", measured, *MODEL, f"run.dir={folder / 'validation'}", profile(folder, 0.05, 0.1)]
    assert main(["validate", *words]) == 0
    return folder / "validation" / "validation.html"


def _docs(folder: Path) -> Path:
    """Build two pages of the site with its own settings."""
    builder = shutil.which("zensical", path=str(Path(sys.executable).parent))
    if builder is None:
        pytest.skip("needs the docs extra")
    settings = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    settings = re.sub("(docs|site)_dir: .*", r"\1_dir: \1", settings)
    site = folder / "documentation"
    shutil.copytree(REPOSITORY / "docs" / "assets", site / "docs" / "assets")
    (site / "mkdocs.yml").write_text(settings, encoding="utf-8")
    for name in ("how-to/batch-cap.md", "results/hardware.md"):
        (site / "docs" / name).parent.mkdir(exist_ok=True)
        text = (REPOSITORY / ("docs" if name.startswith("how") else ".") / name).read_text(encoding="utf-8")
        (site / "docs" / name).write_text(re.sub(r"\]\([^)]*\)", "](#)", text), encoding="utf-8")
    subprocess.run([builder, "build"], cwd=site, check=True, capture_output=True)
    return site / "site" / "how-to" / "batch-cap.html"


MAKERS = {"run": _run, "sweep": _sweep, "plan": _plan, "validation": _validation, "docs": _docs}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a page's file, made at its first use."""
    folder, files = tmp_path_factory.mktemp("pages"), dict[str, Path]()

    def make(name: str) -> Path:
        if name not in files:
            files[name] = MAKERS[name](folder)
        return files[name]

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def show(browser: Any, made: Callable[[str], Path]) -> Open:
    """`show(page, width)` returns a page, opened from its file once and folded; what its console says is in `said`."""
    pages: dict[tuple[str, int], Page] = {}

    def opened(name: str, width: int = WIDE) -> Page:
        if (name, width) not in pages:
            page = pages[name, width] = browser.new_page(viewport={"width": width, "height": HEIGHT})
            page.set_default_timeout(TIMEOUT_MS)
            page.said = []
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            page.on("requestfailed", lambda request: page.said.append(request.url))
            page.goto(made(name).as_uri())
            page.wait_for_function(DRAWN)
        page = pages[name, width]
        page.emulate_media(media="screen", color_scheme="light")
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = false })")
        return page

    return opened


def faults(page: Page, min_text_contrast: float = MIN_TEXT_CONTRAST) -> list[str]:
    found: list[str] = page.evaluate(FAULTS, [min_text_contrast, MIN_CONTRAST])
    return found


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    page.wait_for_function(
        "[...document.querySelectorAll('.chart svg')].every((chart) => chart.getBoundingClientRect().width > 100)"
    )


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_fault(name: str, width: int, show: Open) -> None:
    """Folded and unfolded, light and dark. The theme of the documentation, which is not ours, has paler links."""
    page = show(name, width)
    if name == "docs":
        assert faults(page, MIN_CONTRAST) == []
    else:
        assert faults(page) == []
        unfold(page)
        page.emulate_media(color_scheme="dark")
        assert faults(page) == []
    assert page.said == []


def test_report_of_a_sweep_is_read_in_four_screens(show: Open) -> None:
    page = show("sweep")
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREENS * HEIGHT
    assert page.locator("table").locator("visible=true").count() == 1
    assert page.locator("text=/N07|: -0\\./").locator("visible=true").count() == 0, "raw values are folded"


@pytest.mark.parametrize("name", WITH_LEGEND)
def test_legend_dims_the_other_series_and_hides_one(name: str, show: Open) -> None:
    page = show(name)
    button, before = page.locator(".legend button").first, page.locator(MARKS).count()
    if name == "sweep":
        button.hover()
        page.wait_for_function(f"document.querySelectorAll('{MARKS}[opacity=\"0.12\"]').length > 3")
    for pressed, compared in (("false", "<"), ("true", "===")):
        button.click()
        assert button.get_attribute("aria-pressed") == pressed
        page.wait_for_function(f"document.querySelectorAll('{MARKS}').length {compared} {before}")
    page.mouse.move(0, 0)


def test_plan_draws_the_percentile_that_was_asked(show: Open) -> None:
    chart = show("plan").locator(".figures .chart").first
    texts = chart.locator("text").all_text_contents()
    assert any("p99" in text and "(s)" in text for text in texts), "the axis"
    assert "p99<10s" in texts, "the line"


@pytest.mark.parametrize("name", PAGES[:-1])
def test_print_opens_what_is_folded_cuts_no_table_and_leaves_out_raw_values(name: str, show: Open) -> None:
    """On A4 across, whose text is 1032 px wide."""
    page = show(name)
    page.set_viewport_size({"width": 1032, "height": HEIGHT})
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open], .raw)").count() == 0
    assert page.locator("details.raw").locator("visible=true").count() == 0
    cut = "[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth).length"
    assert page.evaluate(cut) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_search_of_the_documentation_works_from_a_file(show: Open) -> None:
    page = show("docs")
    page.keyboard.press("/")
    page.keyboard.type("MLPerf")
    page.locator("a[href*='results/hardware.html']").first.wait_for(timeout=5000)
    assert page.said == []


SPOILED = {
    "h2 { color: #cccccc }": "has a contrast of",
    ".chart .role-mark path { stroke: #f0e442; fill: #f0e442 }": "a mark of",
    ".legend path { stroke: #f0e442 }": "a line of the legend",
    ".figures { width: 1500px }": "px wide in",
    ".cards { table-layout: fixed; width: 300px } .cards th { white-space: nowrap }": "overlaps",
    ".chart .role-axis-label text { transform: translate(0, 0) }": "overlaps",
    ".answer { width: 3rem; word-break: break-all }": "is broken",
    ".cards td::before { content: '' !important }": "does not show its label",
}
"""A style that spoils a page, and the fault that it makes."""


def test_one_spoiled_colour_width_or_label_is_a_fault(show: Open) -> None:
    page, phone = show("sweep"), show("sweep", PHONE)
    for style, fault in SPOILED.items():
        shown = phone if "label" in fault else page
        added = shown.add_style_tag(content=style)
        assert any(fault in found for found in faults(shown)), style
        added.evaluate("element => element.remove()")
    for change, fault in {
        "cell.removeAttribute('data-title')": "has no label",
        "cell.parentElement.cells[0].removeAttribute('scope')": "has no scope",
    }.items():
        page.evaluate(f"const cell = document.querySelector('.cards td'); {change}")
        assert any(fault in found for found in faults(page)), change
