"""Charts that answer to the pointer, drawn by Vega-Lite as a browser would; and the page that holds them."""

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import vl_convert

from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.figures.palette import SeriesStyle, series_styles
from mezzotint.sim.report.interactive import ALWAYS, Chart, Field, Limit, PageFigure, Spec, bars, lines, page, points
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import Run, load_runs

Fabricate = Callable[..., Path]

STYLES = {"a": SeriesStyle("#0072B2", "-", "o"), "b": SeriesStyle("#D55E00", (0, (5, 1.5)), "s")}
X, Y = Field("x", "Rate"), Field("y", "Share", ".0%")
FRAME = pd.DataFrame({"series": ["a", "a", "b", "b"], "x": [1, 2, 1, 2], "y": [0.1, 0.2, 0.3, 0.4]})


class Markup(HTMLParser):
    """Collects the scripts of a page, its attributes that fetch, and its tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

    @property
    def specs(self) -> list[Spec]:
        return [json.loads(text) for attributes, text in self.scripts if attributes.get("type") == "application/json"]


def drawn(spec: Spec, **params: Any) -> str:
    """Return a chart's SVG with the page's signals set, as the page's script sets them."""
    changed = [each | {"value": params.get(each["name"], each["value"])} for each in spec["params"]]
    return str(vl_convert.vegalite_to_svg(spec | {"params": changed, "width": 400}))


def marks(svg: str, kind: str) -> list[str]:
    return re.findall(rf'<path[^>]*aria-roledescription="{kind}"[^>]*>', svg)


def rows_of(chart: Chart) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(chart.spec["data"]["values"]))


@pytest.fixture
def sweep(fabricate: Fabricate, tmp_path: Path) -> list[Run]:
    for system in ("vanilla", "nirvana", "modm-throughput"):
        for rate in (6.0, 16.0):
            for seed in (1, 2):
                fabricate(f"{system}-{rate}-{seed}", system, rate_rpm=rate, seed=seed, requests=200)
    return load_runs([tmp_path])


@pytest.mark.parametrize("chart", ["cost", "latency", "slo", "throughput", "hits", "over_time"])
def test_every_figure_of_the_report_draws_all_its_series(chart: str, sweep: list[Run]) -> None:
    panels = getattr(charts, chart)(sweep)
    assert panels
    for panel in panels:
        systems = set(rows_of(panel).series) - {ALWAYS}
        assert systems == ({"nirvana", "modm-throughput"} if chart == "hits" else {run.series for run in sweep})
        svg = drawn(panel.spec)
        for style in series_styles([run for run in sweep if run.series in systems]).values():
            assert chart == "hits" or style.colour.lower() in svg.lower()


def test_chart_has_the_values_of_the_runs(fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "nirvana"):
        fabricate(system, system, rate_rpm=14.0, requests=300)
    runs = load_runs([tmp_path])
    rows = rows_of(charts.slo(runs)[0]).set_index("series").value
    assert rows.to_dict() == pytest.approx(
        {run.series: run.number("slo", "2x", "violation_rate") for run in runs}, rel=1e-5
    )
    rows = rows_of(charts.cost(runs)[0]).set_index("series").usd
    assert rows.to_dict() == pytest.approx({run.series: run.number("cost_usd", "per_image") for run in runs}, rel=1e-5)


def test_hidden_series_is_not_drawn() -> None:
    spec = lines(FRAME, X, Y, STYLES)
    assert len(marks(drawn(spec), "line mark")) == 2
    (left,) = marks(drawn(spec, shown=["b"]), "line mark")
    assert 'stroke="#D55E00"' in left
    assert len(marks(drawn(bars(FRAME.iloc[[0, 2]], Y, STYLES), shown=["a"]), "bar")) == 1


def test_highlight_dims_the_other_series() -> None:
    first, second = marks(drawn(lines(FRAME, X, Y, STYLES), lit="b"), "line mark")
    assert 'stroke="#0072B2"' in first
    assert 'opacity="0.12"' in first
    assert 'opacity="0.12"' not in second


def test_series_of_always_is_neither_hidden_nor_dimmed() -> None:
    frame = pd.concat([FRAME, FRAME.iloc[:2].assign(series=ALWAYS)])
    (left,) = marks(drawn(lines(frame, X, Y, STYLES), shown=[], lit="a"), "line mark")
    assert 'opacity="0.12"' not in left


def test_limit_of_a_series_hides_with_it() -> None:
    spec = lines(FRAME, X, Y, STYLES, limits=[Limit(1.5, "2x"), Limit(1.7, "4x", "a")])
    assert [text in drawn(spec, shown=["b"]) for text in (">2x<", ">4x<")] == [True, False]
    assert [text in drawn(spec) for text in (">2x<", ">4x<")] == [True, True]


def test_interval_is_drawn_and_shown_on_hover() -> None:
    frame = FRAME.assign(low=FRAME.y - 0.05, high=FRAME.y + 0.05)
    assert len(marks(drawn(lines(frame, X, Y, STYLES)), "area mark")) == 2
    assert drawn(points(frame, X, Y, STYLES)).count('aria-roledescription="rule mark"') == 4
    spec = points(frame, X, Y, STYLES, hover=[Field("x", "Load", ".1f")])
    box = spec["layer"][-1]["encoding"]["tooltip"]
    assert [each["title"] for each in box] == ["System", "Rate", "Share", "Load", "lowest", "highest"]


def test_stacked_parts_add_up_in_their_order() -> None:
    frame = pd.DataFrame({"series": ["a"] * 2, "k": ["miss", "K = 5"], "y": [0.4, 0.6]})
    svg = drawn(bars(frame, Y, STYLES, part=Field("k", "Steps", ""), colours={"K = 5": "#123456", "miss": "#dedede"}))
    places = {
        colour: float(start)
        for start, colour in re.findall(r'd="M([\d.]+),[^"]*"[^>]*fill="(#\w+)"', "".join(marks(svg, "bar")))
    }
    assert places["#123456"] < places["#dedede"]


def shown(title: str = "T", series: str = "a", svg: bytes | None = None) -> str:
    styles = {series: STYLES["a"]}
    chart = Chart(series, lines(FRAME.assign(series=series), X, Y, styles))
    figure = PageFigure(title, title, [chart], svg)
    return page(title, title, [figure], styles, "", generator="mezzotint report", warnings=[title])


@pytest.mark.parametrize(
    "evil", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"--> {{ 7*7 }}"]
)
def test_hostile_names_stay_text_in_page_and_charts(evil: str) -> None:
    found, plain = Markup(shown(evil, evil)), Markup(shown())
    assert found.tags == plain.tags
    (spec,) = found.specs
    assert spec["params"][0]["value"] == [evil]
    assert set(pd.read_csv(io.StringIO(spec["data"]["values"])).series) == {evil}
    assert evil not in [text for attributes, text in found.scripts if not attributes]


def test_name_is_never_part_of_an_expression() -> None:
    """Vega evaluates expressions; names are data."""
    spec = lines(
        FRAME.assign(series="evil_name"), X, Y, {"evil_name": STYLES["a"]}, limits=[Limit(1.0, "2x", "evil_name")]
    )

    def expressions(tree: object) -> list[str]:
        if isinstance(tree, dict):
            own = [str(value) for key, value in tree.items() if key in ("filter", "test", "calculate", "expr")]
            return own + [each for value in tree.values() for each in expressions(value)]
        return [each for value in tree for each in expressions(value)] if isinstance(tree, list) else []

    assert expressions(spec)
    assert not any("evil_name" in each for each in expressions(spec))


def test_page_carries_the_notices_of_the_scripts_in_it() -> None:
    notices = (files("mezzotint.sim.report") / "vega" / "LICENSE").read_text(encoding="utf-8")
    assert f"<!--\n{notices.rstrip()}" in shown()
    assert "--" not in notices  # which would end the comment


def test_page_fetches_nothing_and_draws_without_scripts_too() -> None:
    found = Markup(shown(svg=b"<svg/>"))
    assert found.fetched == ["data:image/svg+xml;base64,PHN2Zy8+"]
    assert not {"link", "iframe", "object", "embed"} & set(found.tags)
    assert all("src" not in attributes for attributes, _ in found.scripts)
    assert found.tags.count("noscript") == 2
    assert not re.search(r"@import|url\(", shown().split("</style>")[0])


def test_report_of_eight_systems_is_whole_and_under_five_megabytes(fabricate: Fabricate, tmp_path: Path) -> None:
    for index in range(8):
        for rate in (6.0, 12.0, 18.0):
            for seed in (1, 2):
                name = f"runs/{index}-{rate}-{seed}"
                fabricate(name, f"system-{index}", rate_rpm=rate, seed=seed, requests=150)
    first, second = (write_report([tmp_path / "runs"], tmp_path / f"{name}.html")[0] for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 5e6
    found = Markup(first.read_text())
    assert all(link.startswith("data:image/svg+xml;base64,") for link in found.fetched)
    panels = {"cost": 2, "latency": 3, "slo": 2, "hits": 3, "throughput": 1, "over_time": 6}
    assert len(found.specs) == sum(panels.values())
    assert all(spec["params"][0]["value"] == [f"system-{index}" for index in range(8)] for spec in found.specs)
