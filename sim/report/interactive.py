"""Charts in Vega-Lite, and what shows them: pages that answer to the pointer, and SVG and PNG files.

A chart is a Vega-Lite specification (JSON) with its data as CSV. A page has one legend for all its charts. A click in
the legend hides or shows a series everywhere; pointing at a series, in the legend or in a chart, highlights it
everywhere. vl-convert has the libraries that draw a chart in a page, and draws it as a file with the same ones.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from markupsafe import Markup

from mezzotint.figures.page import render
from mezzotint.figures.palette import DARK, EDGE, INK, LIGHT, on_dark
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.run.refusal import check_memory_limit

Spec = dict[str, Any]
"""A Vega-Lite specification."""

SERIES = "series"
"""The column of a chart's frame that holds the name of the series."""

_LINE_PX = 1.8
_FAINT = 0.12
_BAR_PX = 26
_PANEL_PX = 210
_PICTURE_PX = 330  # width of a panel in a file, readable on a phone
_LEGEND_PX = 18
_POINT_AREA = 42  # square pixels
_ADDRESS_SPACE_BYTES = 80 << 30
_SHAPES = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"},
    "X": "stroke",
}
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.1"
"""The version that draws. In 6.4, the hover box of the point nearest to the pointer lacks its names."""

_PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_FILE_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""vl-convert holds the first, so that text is measured alike on every machine. The others are as wide."""

UNFILTERED_SERIES = "\u00a0"
"""Name of the series of marks that the legend neither hides nor dims."""

_IS_VISIBLE = f"datum.series === '{UNFILTERED_SERIES}' || indexof(shown, datum.series) >= 0"
_IS_HIGHLIGHTED = f"lit === null || lit === datum.series || datum.series === '{UNFILTERED_SERIES}'"


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
        series: the only series that the limit holds for; UNFILTERED_SERIES if it holds for all.
    """

    value: float
    label: str
    series: str = UNFILTERED_SERIES


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
        folded: True if the page shows it only when it is opened.
    """

    title: str
    caption: str
    charts: Sequence[Chart]
    svg: bytes | None = None
    folded: bool = False

    @property
    def columns(self) -> int:
        """Panels side by side on a wide screen, which has room for three: four of them in pairs."""
        count = len(self.charts)
        return 2 if count == 4 else min(count, 3)

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
    limits: Sequence[Limit] = (),
    sparse: bool = True,
    along: Literal["x", "y"] = "x",
) -> Spec:
    """Return a line for each series, with a band from column `low` to `high` if the frame has them.

    Args:
        frame: columns `series`, `x.column`, `y.column`.
        limits: vertical lines, in units of x.
        sparse: True to mark every point; False to mark only the one nearest to the pointer.
        along: the axis along which a line runs; its band spreads along the other.
    """
    encoding = {"x": x.channel(), "y": y.channel()}
    across, start, orient = (y, "y", "vertical") if along == "x" else (x, "x", "horizontal")
    layers, hover = [], []
    if "low" in frame:
        band = encoding | _look(styles, "color") | {"opacity": _opacity(0.18, 0.03)} | _ends(across, start)
        layers.append(_layer("area", band, orient=orient))
        hover = _interval(across)
    order = {"field": (x if along == "x" else y).column, "type": "quantitative"}
    drawn = encoding | _look(styles, "color", "strokeDash") | {"opacity": _opacity(), "order": order}
    layers.append(_layer("line", drawn, strokeWidth=_LINE_PX))
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
        hover: further fields of the hover box.
        connected: True to join the points of a series in the order of the rows.
        limits: horizontal lines, in units of y.
    """
    encoding, layers = {"x": x.channel(), "y": y.channel()}, []
    if connected:
        frame = frame.assign(row=range(len(frame)))
        order = {"order": {"field": "row", "type": "quantitative"}, "opacity": _opacity(0.6)}
        layers.append(_layer("line", encoding | _look(styles, "color", "strokeDash") | order, strokeWidth=1.2))
    if "low" in frame:
        drawn = encoding | _look(styles, "color") | {"opacity": _opacity()} | _ends(y, "y")
        layers.append(_layer("rule", drawn, strokeWidth=1.4))
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
    row = {"y": _rows(frame, name), "opacity": _opacity()}
    look = _look(styles, "color")
    if part is not None and colours is not None:
        scale = {"domain": list(colours), "range": list(colours.values())}
        legend = {"title": part.title, "orient": "bottom", "columns": 3, "symbolType": "square"}
        look["color"] = {"field": part.column, "type": "nominal", "scale": scale, "legend": legend}
        look["order"] = {"field": "place", "type": "quantitative"}
        frame = frame.assign(place=frame[part.column].map(list(colours).index))
    shown = [name, *([part] if part else []), x, *hover, *(_interval(x) if "low" in frame else [])]
    encoding = {"x": x.channel(stack="zero" if part else None), "tooltip": [field.hover() for field in shown]}
    layers = [_layer("bar", row | look | encoding, height={"band": 0.72}, stroke=LIGHT)]
    end = x.channel()
    if "low" in frame:
        layers.append(_layer("rule", row | _ends(x, "x"), color=INK))
        end = x.channel(field="high")
    if "text" in frame:
        text = {"x": end, "text": {"field": "text", "type": "nominal"}}
        layers.append(_layer("text", row | text, align="left", dx=6, color=INK))
    return _in_rows(frame, layers, name)


def ranges(frame: pd.DataFrame, x: Field, styles: Mapping[str, SeriesStyle], *, limits: Sequence[Limit] = ()) -> Spec:
    """Return a row for each series: a bar from column `p10` to `p90`, a dot at `p50`, a stroke at `p99`.

    Args:
        frame: columns `series`, `p10`, `p50`, `p90` and `p99`, in the units of x.
        limits: vertical lines, in units of x.
    """
    name = Field(SERIES, "System", "")
    shown = [name, *(Field(column, column, x.format) for column in ("p10", "p50", "p90", "p99"))]
    row = {"y": _rows(frame, name), "opacity": _opacity(), "tooltip": [field.hover() for field in shown]}
    row |= _look(styles, "color")
    layers = [
        _layer("bar", row | _ends(x, "x", "p10", "p90") | {"opacity": _opacity(0.4)}, height={"band": 0.5}),
        _layer("rule", row | _ends(x, "x", "p90", "p99")),
        _layer("point", row | {"x": x.channel(field="p50")}, filled=True, size=_POINT_AREA),
        _layer("tick", row | {"x": x.channel(field="p99")}, thickness=2, height=11),
    ]
    return _in_rows(frame, [*layers, *_limits(limits, styles, x, "x")], name)


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
    return bytes(_vl_convert().vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[]).encode())


def png(spec: Spec, scale: float = 2.0) -> bytes:
    """Return a picture as PNG of `scale` pixels for each pixel of the SVG."""
    return bytes(_vl_convert().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale, allowed_base_urls=[]))


def _vl_convert() -> Any:
    """Return the library that draws. Raises ConfigError under a limit on virtual memory, where it would crash."""
    import vl_convert  # takes half a second

    check_memory_limit(_ADDRESS_SPACE_BYTES, " for figures, since V8 reserves it")
    return vl_convert


def page(
    title: str,
    answer: str,
    figures: Sequence[PageFigure],
    styles: Mapping[str, SeriesStyle],
    body: str,
    *,
    generator: str,
    warnings: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a self-contained HTML page: title, facts, answer, figures, body. Equal values give equal bytes.

    Args:
        answer: the sentences that a reader looks for.
        styles: series of the legend, in its order.
        body: the rest of the page as Markup. Tables go in `<div class="wide">`.
        generator: the command that makes the page.
        warnings: what a reader must know beside the answer, such as runs that are overloaded.
        facts: what the answer is about, by name: the rows of a header.
    """
    shown: Spec = {"$schema": _SCHEMA, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    shown |= {"params": _signals(styles), "config": _config(_PAGE_FONT, None)}
    drawn = json.dumps([shown, *(chart.spec for figure in figures for chart in figure.charts)])
    colours = {style.colour for style in styles.values()} | set(re.findall(r'"(#[0-9a-fA-F]{6})"', drawn))
    return render(
        "mezzotint.sim.report",
        "page.html.jinja",
        title=title,
        answer=answer,
        facts=facts,
        warnings=warnings,
        light=LIGHT,
        dark=DARK,
        shades={colour: on_dark(colour) for colour in sorted(colours)},
        figures=figures,
        legend=[(name, style.colour, _dash_px(style)) for name, style in styles.items()],
        body=body,
        generator=generator,
        shown=shown,
        libraries=Markup(_vl_convert().javascript_bundle(vl_version=VEGA_LITE)),
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
        "transform": [{"filter": _IS_VISIBLE}],
        "layer": list(layers),
        "usermeta": {"legend": list(frame[SERIES].unique())},
    }


def _in_rows(frame: pd.DataFrame, layers: Sequence[Spec], name: Field) -> Spec:
    """Return a chart whose rows have their names beside them, and need no legend. A hidden row stays empty."""
    height = _BAR_PX * frame[name.column].nunique()
    return _spec(frame, layers) | {"height": height, "usermeta": {"legend": []}}


def _rows(frame: pd.DataFrame, name: Field) -> Spec:
    """Return the encoding of names beside rows, in the order of the frame."""
    # a setting in brackets has a line of its own
    split = "split(replace(datum.label, ' (', '\\n('), '\\n')"
    sort = list(frame[name.column].unique())
    axis = {"labelExpr": split, "labelLimit": 140, "labelFontSize": 11, "labelLineHeight": 12}
    axis |= {"labelOffset": -6 if any(" (" in row for row in sort) else 0}
    axis |= {"ticks": False, "domain": False, "grid": False}
    return {"field": name.column, "type": "nominal", "scale": {"domain": sort}, "title": None, "axis": axis}


def _signals(styles: Mapping[str, SeriesStyle]) -> list[Spec]:
    """Return what the legend sets: the series that are shown, and the one that is highlighted."""
    return [{"name": "shown", "value": list(styles)}, {"name": "lit", "value": None}]


def _config(font: str, background: str | None) -> Spec:
    text = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": EDGE}
    rules = {"gridColor": "#ececec", "domainColor": "#b8b8b8", "tickColor": "#b8b8b8", "tickCount": 5}
    return {
        "font": font,
        "background": background,
        "view": {"stroke": None},
        "axis": text | rules | {"titleColor": INK},
        "legend": text | {"titleColor": INK},
        "text": {"fontSize": 11.5},
        "title": {"anchor": "start", "fontSize": 12, "color": INK},
    }


def _legend(names: Sequence[str], styles: Mapping[str, SeriesStyle]) -> Spec:
    """Return the legend of a picture: a line for each series, with its name."""
    row = {"field": SERIES, "type": "nominal", "sort": list(names), "axis": None}
    line = {"x": {"value": 0}, "x2": {"value": 27}} | _look(styles, "color", "strokeDash")
    text = {"x": {"value": 34}, "text": {"field": SERIES}}
    return {
        "width": _PICTURE_PX,
        "height": {"step": _LEGEND_PX},
        "data": {"values": [{SERIES: name} for name in names]},
        "encoding": {"y": row},
        "layer": [
            _layer("rule", line, strokeWidth=2.5),
            _layer("text", text, align="left", limit=_PICTURE_PX - 34),
        ],
    }


def _points(x: Field, y: Field, styles: Mapping[str, SeriesStyle], hover: Sequence[Field], visible: bool) -> list[Spec]:
    """Return the points if they are visible, and the one nearest to the pointer, which shows its values.

    A line of UNFILTERED_SERIES has none. The layer that answers to the pointer is the one with `params`: a file leaves
    it out.
    """
    encoding = {"x": x.channel(), "y": y.channel()} | _look(styles, "color", "shape")
    near = {"name": "near", "select": {"type": "point", "on": "pointermove", "nearest": True, "clear": "pointerout"}}
    opacity = {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0}
    shown = [field.hover() for field in (Field(SERIES, "System", ""), x, y, *hover)]
    layers = [_layer("point", encoding | {"opacity": opacity, "tooltip": shown}, filled=True, size=_POINT_AREA)]
    layers[0]["params"] = [near]
    if visible:
        layers.insert(0, _layer("point", encoding | {"opacity": _opacity()}, filled=True, size=_POINT_AREA))
    return [{"transform": [{"filter": f"datum.series !== '{UNFILTERED_SERIES}'"}]} | layer for layer in layers]


def _limits(
    limits: Sequence[Limit], styles: Mapping[str, SeriesStyle], value: Field, along: Literal["x", "y"]
) -> list[Spec]:
    """Return a dashed line for each limit on the axis `along`, and its label at the start of the line."""
    if not limits:
        return []
    rows = [{"at": limit.value, "label": limit.label, SERIES: limit.series} for limit in limits]
    data = {"data": {"values": rows}, "transform": [{"filter": _IS_VISIBLE}]}
    drawn = {along: value.channel(field="at"), "opacity": _opacity()} | _look(styles, "color")
    text = {"y" if along == "x" else "x": {"value": 4}, "text": {"field": "label", "type": "nominal"}}
    offset = {"dx": 3, "baseline": "top"} if along == "x" else {"dy": -5}
    return [
        data | _layer("rule", drawn, strokeDash=[5, 4]),
        data | _layer("text", drawn | text, align="left", **offset),
    ]


def _layer(kind: str, encoding: Spec, **mark: Any) -> Spec:
    return {"mark": {"type": kind, **mark}, "encoding": encoding}


def _ends(value: Field, along: str, low: str = "low", high: str = "high") -> Spec:
    """Return the encoding of an interval on the axis `along`."""
    return {along: value.channel(field=low), f"{along}2": {"field": high}}


def _interval(value: Field) -> list[Field]:
    return [Field("low", "lowest", value.format), Field("high", "highest", value.format)]


def _look(styles: Mapping[str, SeriesStyle], *channels: Literal["color", "strokeDash", "shape"]) -> Spec:
    """Return the encoding of the series by its colour, dash or marker; UNFILTERED_SERIES comes first."""
    values: dict[str, list[Any]] = {
        "color": [EDGE, *(style.colour for style in styles.values())],
        "strokeDash": [[2, 3], *(_dash_px(style) for style in styles.values())],
        "shape": ["circle", *(_SHAPES[style.marker] for style in styles.values())],
    }
    domain, base = [UNFILTERED_SERIES, *styles], {"field": SERIES, "type": "nominal", "legend": None}
    return {channel: base | {"scale": {"domain": domain, "range": values[channel]}} for channel in channels}


def _dash_px(style: SeriesStyle) -> list[float]:
    """Return a dash in pixels: matplotlib gives it in widths of the line."""
    return [1, 0] if style.dash == "-" else [round(_LINE_PX * length, 1) for length in style.dash[1]]


def _opacity(full: float = 1.0, faint: float = _FAINT) -> Spec:
    return {"condition": {"test": _IS_HIGHLIGHTED, "value": full}, "value": faint}
