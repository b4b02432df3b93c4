"""Charts that answer to the pointer, drawn by Vega-Lite as a browser would; and the page that holds them."""

import io
import json
import re
import resource
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pandas as pd
import pytest
import vl_convert

from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import (
    UNFILTERED_SERIES,
    VEGA_LITE,
    Chart,
    Field,
    Limit,
    PageFigure,
    Spec,
    bars,
    lines,
    page,
    picture,
    points,
    ranges,
    svg,
)
from tests.conftest import REPOSITORY
from tests.sim.report.conftest import Page

STYLES = {"a": SeriesStyle("#0072B2", "-", "o"), "b": SeriesStyle("#D55E00", (0, (5, 1.5)), "s")}
X, Y = Field("x", "Rate"), Field("y", "Share", ".0%")
FRAME = pd.DataFrame({"series": ["a", "a", "b", "b"], "x": [1, 2, 1, 2], "y": [0.1, 0.2, 0.3, 0.4]})


def drawn(spec: Spec, *, shown: list[str] | None = None, lit: str | None = None) -> str:
    """Return a chart's SVG with the page's signals set, as the page's script sets them."""
    signals = [{"name": "shown", "value": list(STYLES) if shown is None else shown}, {"name": "lit", "value": lit}]
    return str(vl_convert.vegalite_to_svg(spec | {"params": signals, "width": 400}, vl_version=VEGA_LITE))


def marks(image: str, kind: str) -> list[str]:
    return re.findall(rf'<path[^>]*aria-roledescription="{kind}"[^>]*>', image)


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
    frame = pd.concat([FRAME, FRAME.iloc[:2].assign(series=UNFILTERED_SERIES)])
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
    assert [line["title"] for line in box] == ["System", "Rate", "Share", "Load", "lowest", "highest"]
    signals = [{"name": "shown", "value": ["a", "b"]}, {"name": "lit", "value": None}]
    compiled = json.dumps(vl_convert.vegalite_to_vega(spec | {"params": signals}, vl_version=VEGA_LITE))
    assert r"datum.datum[\"series\"]" in compiled, "of the point that is nearest to the pointer"


def test_stacked_parts_add_up_in_their_order() -> None:
    frame = pd.DataFrame({"series": ["a"] * 2, "k": ["miss", "K = 5"], "y": [0.4, 0.6]})
    image = drawn(bars(frame, Y, STYLES, part=Field("k", "Steps", ""), colours={"K = 5": "#123456", "miss": "#dedede"}))
    places = {
        colour: float(start)
        for start, colour in re.findall(r'd="M([\d.]+),[^"]*"[^>]*fill="(#\w+)"', "".join(marks(image, "bar")))
    }
    assert places["#123456"] < places["#dedede"]


def test_picture_has_each_panel_and_a_legend_of_what_it_draws() -> None:
    frame = pd.DataFrame({"series": ["a"], "p10": [1.0], "p50": [2.0], "p90": [3.0], "p99": [4.0]})
    charts = [
        Chart("one", lines(FRAME[FRAME.series == "b"], X, Y, STYLES)),
        Chart("two", points(FRAME[FRAME.series == "b"], X, Y, STYLES)),
        Chart("three", ranges(frame, X, STYLES)),
    ]
    spec = picture(charts, STYLES)
    assert svg(spec) == svg(spec)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg(spec).decode())
    assert [text for text in texts if text in ("one", "two", "three")] == ["one", "two", "three"]
    assert texts.count("b") == 1, "in the legend"
    assert texts.count("a") == 1, "beside its row"
    assert {family.split(",")[0] for family in re.findall('font-family="([^"]*)"', svg(spec).decode())} == {
        "Liberation Sans"
    }, "which vl-convert holds"


def test_limit_of_virtual_memory_is_refused() -> None:
    """V8 would end the process."""
    code = "from mezzotint.sim.report.interactive import svg; svg({})"
    limit = 8 << 30
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert "ConfigError: ulimit -v: found 8388608 KiB of virtual memory, expected 83886080 or more" in done.stderr


def shown(title: str = "T", series: str = "a", image: bytes | None = None) -> str:
    styles = {series: STYLES["a"]}
    chart = Chart(series, lines(FRAME.assign(series=series), X, Y, styles))
    figure = PageFigure(title, title, [chart], image)
    return page(title, title, [figure], styles, "", generator="mezzotint report", warnings=[title])


@pytest.mark.parametrize(
    "evil", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"--> {{ 7*7 }}"]
)
def test_hostile_names_stay_text_in_page_and_charts(evil: str) -> None:
    found, plain = Page(shown(evil, evil)), Page(shown())
    assert found.tags == plain.tags
    (spec,) = [json.loads(text) for attributes, text in found.scripts if attributes == {"type": "application/json"}]
    assert set(pd.read_csv(io.StringIO(spec["data"]["values"])).series) == {evil}
    code = [text for attributes, text in found.scripts if attributes.get("type") != "application/json"]
    assert not any(evil in text for text in code)


def test_name_is_never_part_of_an_expression() -> None:
    """Vega evaluates expressions; names are data."""
    spec = picture(
        [Chart("", lines(FRAME.assign(series="evil"), X, Y, {"evil": STYLES["a"]}, limits=[Limit(1.0, "2x", "evil")]))],
        {"evil": STYLES["a"]},
    )

    def expressions(tree: Any) -> list[str]:
        if isinstance(tree, dict):
            named = [str(tree[key]) for key in ("filter", "test", "calculate", "expr", "labelExpr") if key in tree]
            return named + [text for value in tree.values() for text in expressions(value)]
        return [text for value in tree for text in expressions(value)] if isinstance(tree, list) else []

    assert expressions(spec)
    assert not any("evil" in text for text in expressions(spec))


def test_page_carries_the_notices_of_the_scripts_in_it() -> None:
    notices = (files("mezzotint.sim.report") / "notices.txt").read_text(encoding="utf-8")
    assert f"<!--\n{notices.rstrip()}" in shown()
    assert "--" not in notices  # which would end the comment


def test_page_fetches_nothing_and_draws_without_scripts_too() -> None:
    found = Page(shown(image=b"<svg/>"))
    assert found.fetched == ["data:image/svg+xml;base64,PHN2Zy8+"]
    assert not {"link", "iframe", "object", "embed"} & set(found.tags)
    assert found.tags.count("noscript") == 2
    assert not re.search(r"@import|url\(", shown().split("</style>")[0])
