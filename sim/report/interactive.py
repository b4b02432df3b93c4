"""Charts in Vega-Lite, and what shows them: pages that answer to the pointer, and SVG and PNG files.

A chart is a Vega-Lite specification (JSON) with its data as CSV. A page has one legend for all its charts. A click in
the legend hides or shows a series everywhere; pointing at a series, in the legend or in a chart, highlights it
everywhere. vl-convert has the libraries that draw a chart in a page, and draws it as a file with the same ones.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

_LINE_PX = 1.8
_FAINT = 0.12
_BAR_PX = 26
_PANEL_PX = 280
_PICTURE_PX = 330  # width of a panel in a file, readable on a phone
_LEGEND_PX = 18
_SHAPES = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"},
    "X": "stroke",
}
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_FILE_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""vl-convert holds the first, so that text is measured alike on every machine. The others are as wide."""

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
    return _spec(frame, [*layers, *_points(x, y, styles, hover, sparse)])


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
    return _spec(frame, [*layers, *_points(x, y, styles, hover, True)])


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
    rows = _rows(frame, name)
    encoding: Spec = {"y": rows, "opacity": _opacity(), "color": _colour(styles)}
    shown = [name.hover(), *([part.hover()] if part else []), x.hover(), *(field.hover() for field in hover)]
    if part is not None and colours is not None:
        scale = {"domain": list(colours), "range": list(colours.values())}
        legend = {"title": part.title, "orient": "bottom", "columns": 3, "symbolType": "square"}
        encoding["color"] = {"field": part.column, "type": "nominal", "scale": scale, "legend": legend}
        encoding["order"] = {"field": "place", "type": "quantitative"}
        frame = frame.assign(place=frame[part.column].map(list(colours).index))
    if "low" in frame:
        shown += [field.hover() for field in _interval(x)]
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
    return _in_rows(frame, layers)


def ranges(frame: pd.DataFrame, x: Field, styles: Mapping[str, SeriesStyle], *, limits: Sequence[Limit] = ()) -> Spec:
    """Return a row for each series: a bar from column `p10` to `p90`, a dot at `p50`, a stroke at `p99`.

    Args:
        frame: columns `series`, `p10`, `p50`, `p90` and `p99`, in the units of x.
        limits: vertical lines, in units of x.
    """
    name = Field(SERIES, "System", "")
    hover = [name, *(Field(column, column, x.format) for column in ("p10", "p50", "p90", "p99"))]
    base: Spec = {"y": _rows(frame, name), "color": _colour(styles), "opacity": _opacity()}
    base["tooltip"] = [field.hover() for field in hover]
    marks: list[tuple[Spec, str, str | None, float]] = [
        ({"type": "bar", "height": {"band": 0.5}}, "p10", "p90", 0.4),
        ({"type": "rule"}, "p90", "p99", 1.0),
        ({"type": "point", "filled": True, "size": 42}, "p50", None, 1.0),
        ({"type": "tick", "thickness": 2, "height": 11}, "p99", None, 1.0),
    ]
    layers: list[Spec] = []
    for mark, start, end, opacity in marks:
        place = {"x": x.channel(field=start)} | ({"x2": {"field": end}} if end else {})
        layers.append({"mark": mark, "encoding": base | place | {"opacity": _opacity(opacity)}})
    return _in_rows(frame, [*layers, *_limits(limits, styles, x, "x")])


def picture(charts: Sequence[Chart], styles: Mapping[str, SeriesStyle]) -> Spec:
    """Return charts below each other, with their legend, as one specification that does not answer to the pointer."""
    panels = []
    for chart in charts:
        still = [layer for layer in chart.spec["layer"] if "params" not in layer]
        title = {"text": chart.title, "limit": _PICTURE_PX} if chart.title else None
        panels.append(chart.spec | {"title": title, "width": _PICTURE_PX, "layer": still})
    drawn = {series for chart in charts for series in chart.spec["usermeta"]["legend"]}
    if names := [name for name in styles if name in drawn]:
        panels.append(_legend(names, styles))
    return {
        "$schema": _SCHEMA,
        "params": _signals(styles),
        "vconcat": panels,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
        "config": _config(_FILE_FONT, "white") | {"aria": False},
    }


def svg(spec: Spec) -> bytes:
    """Return a picture as SVG, with the same bytes on every machine."""
    import vl_convert  # takes half a second

    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()


def png(spec: Spec, scale: float = 2.0) -> bytes:
    """Return a picture as PNG of `scale` pixels for each pixel of the SVG."""
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(spec, scale=scale, allowed_base_urls=[]))


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
    from vl_convert import javascript_bundle

    shown = {"$schema": _SCHEMA, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    shown |= {"params": _signals(styles), "config": _config(_PAGE_FONT, None)}
    return render(
        "mezzotint.sim.report",
        "page.html.jinja",
        title=title,
        answer=answer,
        warnings=warnings,
        figures=figures,
        legend=[(name, style.colour, _dash_px(style)) for name, style in styles.items()],
        body=body,
        generator=generator,
        shown=shown,
        libraries=Markup(javascript_bundle()),
    )


def _spec(frame: pd.DataFrame, layers: Sequence[Spec]) -> Spec:
    numbers = frame.select_dtypes("number").columns
    parse = {str(column): "number" if column in numbers else "string" for column in frame}
    return {
        "height": _PANEL_PX,
        "data": {
            "values": frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
            "format": {"type": "csv", "parse": parse},
        },
        "transform": [{"filter": _SHOWN}],
        "layer": list(layers),
        "usermeta": {"legend": list(frame[SERIES].unique())},
    }


def _in_rows(frame: pd.DataFrame, layers: Sequence[Spec]) -> Spec:
    """Return a chart whose rows have their names beside them, and need no legend."""
    return _spec(frame, layers) | {"height": {"step": _BAR_PX}, "usermeta": {"legend": []}}


def _rows(frame: pd.DataFrame, name: Field) -> Spec:
    """Return the encoding of names beside rows, in the order of the frame."""
    # a setting in brackets has a line of its own
    split = "split(replace(datum.label, ' (', '\\n('), '\\n')"
    sort = list(frame[name.column].unique())
    axis = {"labelExpr": split, "labelLimit": 140, "labelFontSize": 11, "labelLineHeight": 12}
    axis |= {"labelOffset": -6 if any(" (" in row for row in sort) else 0}
    axis |= {"ticks": False, "domain": False, "grid": False}
    return {"field": name.column, "type": "nominal", "sort": sort, "title": None, "axis": axis}


def _signals(styles: Mapping[str, SeriesStyle]) -> list[Spec]:
    """Return what the legend sets: the series that are shown, and the one that is highlighted."""
    return [{"name": "shown", "value": list(styles)}, {"name": "lit", "value": None}]


def _config(font: str, background: str | None) -> Spec:
    text = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": EDGE}
    rules = {"gridColor": "#ececef", "domainColor": "#b8b8bd", "tickColor": "#b8b8bd", "tickCount": 5}
    return {
        "font": font,
        "background": background,
        "view": {"stroke": None},
        "axis": text | rules | {"titleColor": INK},
        "legend": text,
        "text": {"fontSize": 11.5},
        "title": {"anchor": "start", "fontSize": 12, "color": INK},
    }


def _legend(names: Sequence[str], styles: Mapping[str, SeriesStyle]) -> Spec:
    """Return the legend of a picture: a line for each series, with its name."""
    row = {"field": SERIES, "type": "nominal", "sort": list(names), "axis": None}
    line = {"x": {"value": 0}, "x2": {"value": 27}, "color": _colour(styles), "strokeDash": _dash(styles)}
    text = {"x": {"value": 34}, "text": {"field": SERIES}}
    return {
        "width": _PICTURE_PX,
        "height": {"step": _LEGEND_PX},
        "data": {"values": [{SERIES: name} for name in names]},
        "encoding": {"y": row},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 2.5}, "encoding": line},
            {"mark": {"type": "text", "align": "left", "limit": _PICTURE_PX - 34}, "encoding": text},
        ],
    }


def _points(x: Field, y: Field, styles: Mapping[str, SeriesStyle], hover: Sequence[Field], visible: bool) -> list[Spec]:
    """Return the points if they are visible, and the one nearest to the pointer, which shows its values.

    A line of ALWAYS has none. The layer that answers to the pointer is the one with `params`: a file leaves it out.
    """
    shape = _scaled(styles, "circle", [_SHAPES[style.marker] for style in styles.values()])
    place = {"x": x.channel(), "y": y.channel(), "color": _colour(styles), "shape": shape}
    base: Spec = {"transform": [{"filter": f"datum.series !== '{ALWAYS}'"}]}
    base["mark"] = {"type": "point", "filled": True, "size": 42}
    near = {"name": "near", "select": {"type": "point", "on": "pointermove", "nearest": True, "clear": "pointerout"}}
    opacity = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}
    shown = [field.hover() for field in (Field(SERIES, "System", ""), x, y, *hover)]
    at_rest = [base | {"encoding": place | {"opacity": _opacity()}}] if visible else []
    return [*at_rest, base | {"params": [near], "encoding": place | {"opacity": opacity, "tooltip": shown}}]


def _limits(
    limits: Sequence[Limit], styles: Mapping[str, SeriesStyle], value: Field, along: Literal["x", "y"]
) -> list[Spec]:
    """Return a dashed line for each limit on the axis `along`, and its label at the start of the line."""
    if not limits:
        return []
    rows = [{"at": limit.value, "label": limit.label, SERIES: limit.series} for limit in limits]
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
    return _scaled(styles, EDGE, [style.colour for style in styles.values()])


def _dash(styles: Mapping[str, SeriesStyle]) -> Spec:
    return _scaled(styles, [2, 3], [_dash_px(style) for style in styles.values()])


def _scaled(styles: Mapping[str, SeriesStyle], always: Any, values: Sequence[Any]) -> Spec:
    """Return the encoding of a series by its value, and of ALWAYS by its own."""
    scale = {"domain": [ALWAYS, *styles], "range": [always, *values]}
    return {"field": SERIES, "type": "nominal", "scale": scale, "legend": None}


def _dash_px(style: SeriesStyle) -> list[float]:
    """Return a dash in pixels: matplotlib gives it in widths of the line."""
    return [1, 0] if style.dash == "-" else [round(_LINE_PX * length, 1) for length in style.dash[1]]


def _opacity(full: float = 1.0) -> Spec:
    return {"condition": {"test": _LIT, "value": full}, "value": _FAINT}
