"""Pages whose figures answer to the pointer: charts in Vega-Lite, and the HTML page that holds them.

A chart is a Vega-Lite specification (JSON) with its data as CSV. A page has one legend for all its charts. A click in
the legend hides or shows a series everywhere; pointing at a series, in the legend or in a chart, highlights it
everywhere.
Each page carries the libraries that draw it: Vega 6.4.0, Vega-Lite 6.4.3 and Vega-Embed 7.3.0, as published, in `vega`.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import pandas as pd
from markupsafe import Markup

from mezzotint.figures.page import render
from mezzotint.figures.palette import EDGE, INK
from mezzotint.sim.report.figures.palette import SeriesStyle

Spec = dict[str, Any]
"""A Vega-Lite specification."""

SERIES = "series"
"""The column of a chart's frame that holds the name of the series."""

_LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
_LINE_PX = 1.8
_FAINT = 0.12
_BAR_PX = 26
_PANEL_PX = 280
ALWAYS = "\u00a0"
"""The series of what the legend neither hides nor dims."""

_SHOWN = f"datum.series === '{ALWAYS}' || indexof(shown, datum.series) >= 0"
_LIT = f"lit === null || lit === datum.series || datum.series === '{ALWAYS}'"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a chart's frame: its title on axes and in the box on hover, and its number format (d3-format).

    Attributes:
        format: empty for text.
        domain: bounds of the axis; None for those of the data, with zero.
        ticks: values with a tick; empty for round ones.
    """

    column: str
    title: str
    format: str = ",.3~r"
    scale: Literal["linear", "log"] = "linear"
    domain: tuple[float, float] | None = None
    ticks: Sequence[float] = ()

    def channel(self, **more: Any) -> Spec:
        """Return the encoding of a quantity along an axis."""
        scale: Spec = {"type": self.scale} | ({"domain": list(self.domain)} if self.domain else {})
        scale |= {"zero": self.domain is None} if self.scale == "linear" else {"nice": False}
        axis = {"format": self.format, "title": self.title} | ({"values": list(self.ticks)} if self.ticks else {})
        return {"field": self.column, "type": "quantitative", "scale": scale, "axis": axis} | more

    def hover(self) -> Spec:
        """Return the line of the hover box."""
        typed = {"type": "quantitative", "format": self.format} if self.format else {"type": "nominal"}
        return {"field": self.column, "title": self.title} | typed


@dataclass(frozen=True, slots=True)
class Limit:
    """A dashed line across a chart.

    Attributes:
        series: the only series that the limit holds for; ALWAYS if it holds for all.
    """

    value: float
    label: str
    series: str = ALWAYS


@dataclass(frozen=True, slots=True)
class Chart:
    """A panel of a figure."""

    title: str
    spec: Spec


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure of a page.

    Attributes:
        caption: what is drawn, as text or Markup.
        svg: the figure as it looks where no script runs; None if there is none.
    """

    title: str
    caption: str
    charts: Sequence[Chart]
    svg: bytes | None = None

    @property
    def columns(self) -> int:
        """Panels side by side on a wide screen: an even number of them in pairs."""
        count = len(self.charts)
        return min(count, 3) if count % 3 == 0 or count % 2 else 2

    @property
    def data(self) -> str:
        """The SVG in base64."""
        return base64.b64encode(self.svg or b"").decode()


def lines(
    frame: pd.DataFrame,
    x: Field,
    y: Field,
    styles: Mapping[str, SeriesStyle],
    *,
    hover: Sequence[Field] = (),
    limits: Sequence[Limit] = (),
    sparse: bool = True,
    along: Literal["x", "y"] = "x",
) -> Spec:
    """Return a line for each series, with a band from column `low` to `high` if the frame has them.

    Args:
        frame: columns `series`, `x.column`, `y.column`, and those of `hover`.
        hover: further fields of the hover box.
        limits: vertical lines, in units of x.
        sparse: True to mark every point; False to mark only the one nearest to the pointer.
        along: the axis along which a line runs; its band spreads along the other.
    """
    place, colour = {"x": x.channel(), "y": y.channel()}, _colour(styles)
    across, start, end, orient = (y, "y", "y2", "vertical") if along == "x" else (x, "x", "x2", "horizontal")
    layers: list[Spec] = []
    if "low" in frame:
        ends = {start: across.channel(field="low"), end: {"field": "high"}}
        opacity = {"condition": {"test": _LIT, "value": 0.18}, "value": 0.03}
        drawn = place | ends | {"color": colour, "opacity": opacity}
        layers.append({"mark": {"type": "area", "orient": orient}, "encoding": drawn})
        hover = (*hover, *_interval(across))
    order = {"field": (x if along == "x" else y).column, "type": "quantitative"}
    drawn = place | {"color": colour, "strokeDash": _dash(styles), "opacity": _opacity(), "order": order}
    layers.append({"mark": {"type": "line", "strokeWidth": _LINE_PX}, "encoding": drawn})
    layers += _limits(limits, styles, x, "x")
    layers.append(_points(x, y, colour, hover, sparse))
    return _spec(frame, layers, styles)


def points(
    frame: pd.DataFrame,
    x: Field,
    y: Field,
    styles: Mapping[str, SeriesStyle],
    *,
    hover: Sequence[Field] = (),
    connected: bool = False,
    limits: Sequence[Limit] = (),
) -> Spec:
    """Return a point for each row, with a bar from column `low` to `high` of y if the frame has them.

    Args:
        frame: columns `series`, `x.column`, `y.column`, and those of `hover`.
        connected: True to join the points of a series in the order of the rows.
        limits: horizontal lines, in units of y.
    """
    place, colour = {"x": x.channel(), "y": y.channel()}, _colour(styles)
    layers: list[Spec] = []
    if connected:
        frame = frame.assign(row=range(len(frame)))
        drawn = {"color": colour, "strokeDash": _dash(styles), "opacity": _opacity(0.6)}
        order = {"order": {"field": "row", "type": "quantitative"}}
        layers.append({"mark": {"type": "line", "strokeWidth": 1.2}, "encoding": place | drawn | order})
    if "low" in frame:
        drawn = {"y": y.channel(field="low"), "y2": {"field": "high"}, "color": colour, "opacity": _opacity()}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1.4}, "encoding": place | drawn})
        hover = (*hover, *_interval(y))
    layers += _limits(limits, styles, y, "y")
    layers.append(_points(x, y, colour, hover, True))
    return _spec(frame, layers, styles)


def bars(
    frame: pd.DataFrame,
    x: Field,
    styles: Mapping[str, SeriesStyle],
    *,
    name: Field | None = None,
    part: Field | None = None,
    colours: Mapping[str, str] | None = None,
    hover: Sequence[Field] = (),
) -> Spec:
    """Return a horizontal bar for each name, in the order of the rows.

    Args:
        frame: columns `series`, `x.column`, those of `name`, `part` and `hover`. Columns `low` and `high` give an
            interval, column `text` a text after the bar.
        name: the text beside a bar; the series by default.
        part: the parts that are stacked to a bar, each in the colour that `colours` has for it.
    """
    name = name or Field(SERIES, "System", "")
    rows: Spec = {
        "field": name.column,
        "type": "nominal",
        "sort": list(frame[name.column].unique()),
        "title": None,
    }
    rows |= {"axis": {"labelLimit": 125, "ticks": False, "domain": False, "grid": False}}
    encoding: Spec = {"y": rows, "opacity": _opacity(), "color": _colour(styles)}
    shown = [name.hover(), *([part.hover()] if part else []), x.hover(), *(each.hover() for each in hover)]
    if part is not None and colours is not None:
        scale = {"domain": list(colours), "range": list(colours.values())}
        legend = {"title": part.title, "orient": "bottom", "columns": 3, "symbolType": "square"}
        encoding["color"] = {"field": part.column, "type": "nominal", "scale": scale, "legend": legend}
        encoding["order"] = {"field": "place", "type": "quantitative"}
        frame = frame.assign(place=frame[part.column].map(list(colours).index))
    if "low" in frame:
        shown += [each.hover() for each in _interval(x)]
    drawn = encoding | {"x": x.channel(stack="zero" if part else None), "tooltip": shown}
    layers: list[Spec] = [{"mark": {"type": "bar", "height": {"band": 0.72}}, "encoding": drawn}]
    at_end = {"y": rows, "x": x.channel(), "opacity": _opacity()}
    if "low" in frame:
        ends = {"x": x.channel(field="low"), "x2": {"field": "high"}}
        layers.append({"mark": {"type": "rule", "color": INK}, "encoding": at_end | ends})
        at_end["x"] = x.channel(field="high")
    if "text" in frame:
        text = {"text": {"field": "text", "type": "nominal"}}
        layers.append({"mark": {"type": "text", "align": "left", "dx": 6, "color": INK}, "encoding": at_end | text})
    return _spec(frame, layers, styles) | {"height": {"step": _BAR_PX}}


def page(
    title: str,
    answer: str,
    figures: Sequence[PageFigure],
    styles: Mapping[str, SeriesStyle],
    body: str,
    *,
    generator: str,
    warnings: Sequence[str] = (),
) -> str:
    """Return a self-contained HTML page: title, answer, legend, figures, body. Equal values give equal bytes.

    Args:
        answer: the sentences that a reader looks for.
        styles: series of the legend, in its order.
        body: the rest of the page as Markup. Tables go in `<div class="wide">`.
        generator: the command that makes the page.
        warnings: what a reader must know beside the answer, such as runs that are overloaded.
    """
    legend = [(name, style.colour, _dash_px(style)) for name, style in styles.items()]
    return render(
        "mezzotint.sim.report",
        "page.html.jinja",
        title=title,
        answer=answer,
        warnings=warnings,
        figures=figures,
        legend=legend,
        body=body,
        generator=generator,
        libraries=_libraries(),
    )


@cache
def _libraries() -> list[Markup]:
    folder = files("mezzotint.sim.report") / "vega"
    return [Markup((folder / name).read_text(encoding="utf-8")) for name in _LIBRARIES]


def _spec(frame: pd.DataFrame, layers: Sequence[Spec], styles: Mapping[str, SeriesStyle]) -> Spec:
    numbers = frame.select_dtypes("number").columns
    parse = {str(column): "number" if column in numbers else "string" for column in frame}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": _PANEL_PX,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {
            "values": frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "format": {"type": "csv", "parse": parse},
        },
        "params": [{"name": "shown", "value": list(styles)}, {"name": "lit", "value": None}],
        "transform": [{"filter": _SHOWN}],
        "layer": list(layers),
        "config": {
            "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "background": None,
            "view": {"stroke": None},
            "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": EDGE}
            | {
                "titleColor": INK,
                "gridColor": "#ececef",
                "domainColor": "#b8b8bd",
                "tickColor": "#b8b8bd",
                "tickCount": 5,
            },
            "legend": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": EDGE},
            "text": {"fontSize": 11.5},
        },
    }


def _points(x: Field, y: Field, colour: Spec, hover: Sequence[Field], visible: bool) -> Spec:
    """Return the points, of which the one nearest to the pointer shows its values. A line of ALWAYS has none."""
    near = {"name": "near", "select": {"type": "point", "on": "pointermove", "nearest": True, "clear": "pointerout"}}
    shown = [Field(SERIES, "System", ""), x, y, *hover]
    at_rest = {"test": _LIT, "value": 1} if visible else {"test": "false", "value": 1}
    opacity = {"condition": [{"param": "near", "empty": False, "value": 1}, at_rest], "value": _FAINT if visible else 0}
    return {
        "transform": [{"filter": f"datum.series !== '{ALWAYS}'"}],
        "mark": {"type": "point", "filled": True, "size": 42},
        "params": [near],
        "encoding": {
            **{"x": x.channel(), "y": y.channel(), "color": colour, "opacity": opacity},
            "tooltip": [each.hover() for each in shown],
        },
    }


def _limits(
    limits: Sequence[Limit], styles: Mapping[str, SeriesStyle], value: Field, along: Literal["x", "y"]
) -> list[Spec]:
    """Return a dashed line for each limit on the axis `along`, and its label at the start of the line."""
    if not limits:
        return []
    rows = [{"at": each.value, "label": each.label, SERIES: each.series} for each in limits]
    data = {"data": {"values": rows}, "transform": [{"filter": _SHOWN}]}
    drawn: Spec = {along: value.channel(field="at"), "color": _colour(styles), "opacity": _opacity()}
    start: Spec = {"y": {"value": 4}} if along == "x" else {"x": {"value": 4}}
    place = {"align": "left", "dx": 3, "baseline": "top"} if along == "x" else {"align": "left", "dy": -5}
    text = {"text": {"field": "label", "type": "nominal"}}
    return [
        {**data, "mark": {"type": "rule", "strokeDash": [5, 4]}, "encoding": drawn},
        {**data, "mark": {"type": "text", **place}, "encoding": drawn | start | text},
    ]


def _interval(value: Field) -> tuple[Field, Field]:
    return Field("low", "lowest", value.format), Field("high", "highest", value.format)


def _colour(styles: Mapping[str, SeriesStyle]) -> Spec:
    scale = {"domain": [ALWAYS, *styles], "range": [EDGE, *(style.colour for style in styles.values())]}
    return {"field": SERIES, "type": "nominal", "scale": scale, "legend": None}


def _dash(styles: Mapping[str, SeriesStyle]) -> Spec:
    scale = {"domain": [ALWAYS, *styles], "range": [[2, 3], *(_dash_px(style) for style in styles.values())]}
    return {"field": SERIES, "type": "nominal", "scale": scale, "legend": None}


def _dash_px(style: SeriesStyle) -> list[float]:
    """Return a dash in pixels: matplotlib gives it in widths of the line."""
    return [1, 0] if style.dash == "-" else [round(_LINE_PX * length, 1) for length in style.dash[1]]


def _opacity(full: float = 1.0) -> Spec:
    return {"condition": {"test": _LIT, "value": full}, "value": _FAINT}
