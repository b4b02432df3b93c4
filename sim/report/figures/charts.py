"""The report's figures: each function takes runs and returns the charts of a figure, none without data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor, log10
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from mezzotint.figures.page import number
from mezzotint.figures.palette import EDGE, GREY
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.report import beliefs as estimates
from mezzotint.sim.report.compare import (
    SeriesAtLoad,
    Spread,
    cells,
    common_loads,
    hit_shares,
    limit_text,
    slo_multiples,
    steps_order,
    thin_out,
)
from mezzotint.sim.report.figures.palette import series_styles
from mezzotint.sim.report.interactive import UNFILTERED_SERIES, Chart, Field, Limit, Spec, bars, lines, points, ranges
from mezzotint.sim.report.labels import natural, short_key
from mezzotint.sim.report.runs import Floats, Run, latency_quantiles, time_series
from mezzotint.sim.report.tenants import are_told_apart, tail_latencies

MAX_SERIES = 12
"""Of more series, evenly spaced ones are drawn over time, including both ends."""

_MAX_CURVES = 8
"""With more distributions on one panel, each becomes a row with its range instead of a curve."""

_LOG_RATIO = 20.0  # largest to smallest value from which a linear axis crowds the small ones
_LOG_LATENCY_RATIO = 30.0  # longest to shortest latency from which a linear axis hides the short ones
_PROBABILITIES = np.array([*range(100), 99.5, 99.9, 100]) / 100
_RANGE = (0.1, 0.5, 0.9, 0.99)
_SPANS = 60

Curves = Sequence[tuple[SeriesAtLoad, Sequence[Floats]]]
"""Quantiles of the latency (s) at _PROBABILITIES, of each replica of a series."""

_LOAD = Field("load", "Load", "")
_SHARE_LATE = Field("value", "Requests over the limit", ".1~%", domain=(0.0, 1.0))
_COMPLETED = Field("value", "Completed (requests/min)")


@dataclass(frozen=True, slots=True)
class Axis:
    """An x axis: a configuration key, or None for the request rate, and its title."""

    key: str | None
    title: str

    def value(self, cell: SeriesAtLoad) -> float | None:
        """Return a cell's position on the axis; None if the setting does not apply to its system."""
        if self.key is None:
            return cell.load.rate_rpm
        setting = cell.runs[0].setting
        return None if setting is None else setting.value

    def curve(self, cell: SeriesAtLoad) -> str:
        """Return the name of the curve that a cell is a point of."""
        return cell.series if self.key is None else cell.runs[0].family or cell.series


def axis_of(runs: Sequence[Run]) -> Axis | None:
    """Return the axis with the most values: the rate, or a setting with more values; None if neither varies."""
    rates: dict[str, set[float]] = {}
    for run in runs:
        if run.load.rate_rpm is not None:
            rates.setdefault(run.series, set()).add(run.load.rate_rpm)
    max_rates = max(map(len, rates.values()), default=0)
    settings = {run.setting for run in runs if run.setting is not None}
    if len(settings) > max(max_rates, 1):
        key = next(iter(settings)).key
        return Axis(key, short_key(key))
    return Axis(None, "Request rate (requests/min)") if max_rates > 1 else None


def cost(runs: Sequence[Run]) -> list[Chart]:
    """Return the share of requests within each limit against the cost of an image, a point for each system and load."""
    charts = []
    for name in slo_multiples(runs):
        rows = [
            {
                "series": cell.series,
                "load": cell.load.label,
                "usd": usd.mean,
                "within": 1 - late.mean,
                **_ends(late, 1.0, -1.0),
            }
            for cell in sorted(cells(runs), key=lambda cell: (natural(cell.series), cell.load.order))
            if (usd := cell.spread("cost_usd", "per_image")) and (late := cell.spread("slo", name, "violation_rate"))
        ]
        if rows:
            x = Field("usd", "Cost per image (US$)", "$,.3~r")
            y = Field("within", "Requests within the limit", ".1~%", domain=(0.0, 1.0))
            spec = points(pd.DataFrame(rows), x, y, series_styles(runs), hover=[_LOAD], connected=True)
            charts.append(Chart(f"SLO {limit_text(name)}", spec))
    return charts


def latency(runs: Sequence[Run]) -> list[Chart]:
    """Return the distribution of the latency (s) of completed requests, a panel for each of up to three loads.

    A cumulative curve for each series, or a row with its range for each of more than eight.
    """
    panels: dict[str, list[tuple[SeriesAtLoad, list[Floats]]]] = {}
    for load in common_loads(runs):
        for cell in cells([run for run in runs if run.load == load]):
            replicas = [curve for run in cell.runs if (curve := latency_quantiles(run, _PROBABILITIES)) is not None]
            if replicas:
                panels.setdefault(load.label, []).append((cell, replicas))
    in_rows = max(map(len, panels.values()), default=0) > _MAX_CURVES
    draw = _latency_ranges if in_rows else _latency_curves
    return [Chart(title, draw(curves, runs)) for title, curves in panels.items()]


def _latency_curves(curves: Curves, runs: Sequence[Run]) -> Spec:
    rows = []
    for cell, replicas in curves:
        band = {"low": np.min(replicas, axis=0), "high": np.max(replicas, axis=0)} if len(replicas) > 1 else {}
        means = np.mean(replicas, axis=0)
        rows.append(pd.DataFrame({"series": cell.series, "latency_s": means, "share": _PROBABILITIES, **band}))
    frame, limits = pd.concat(rows, ignore_index=True), _limits([cell for cell, _ in curves])
    x = _latency_axis("latency_s", frame.latency_s.min(), frame.latency_s.max(), limits)
    y = Field("share", "Share of completed requests", ".1~%", domain=(0.0, 1.0))
    return lines(frame, x, y, series_styles(runs), limits=limits, sparse=False, along="y")


def _latency_ranges(curves: Curves, runs: Sequence[Run]) -> Spec:
    columns = [f"p{round(100 * share)}" for share in _RANGE]
    rows = []
    for cell, replicas in curves:
        quantiles = np.interp(_RANGE, _PROBABILITIES, np.mean(replicas, axis=0))
        rows.append({"series": cell.series} | dict(zip(columns, quantiles, strict=True)))
    frame, limits = pd.DataFrame(rows), _limits([cell for cell, _ in curves])
    x = _latency_axis("p50", frame.p10.min(), frame.p99.max(), limits)
    x = replace(x, title="Latency (s), p10 to p90, p50 and p99")
    return ranges(frame, x, series_styles(runs), limits=limits)


def _latency_axis(column: str, low: float, high: float, limits: Sequence[Limit]) -> Field:
    """Return the axis of latencies from `low` to `high` (s): logarithmic if they are far apart."""
    high = max([high, *(limit.value for limit in limits)])
    x = Field(column, "Latency, arrival to finish (s)")
    is_log = low > 0 and high / low > _LOG_LATENCY_RATIO
    return replace(x, scale="log", domain=(low, high), ticks=_decades(low, high)) if is_log else x


def slo(runs: Sequence[Run]) -> list[Chart]:
    """Return the share of requests that missed each limit, along the number that the runs vary or as bars."""
    axis = axis_of(runs)
    loads = [None] if axis is None or axis.key is None else common_loads(runs)
    charts = []
    for name, load in product(slo_multiples(runs), loads):
        title = f"SLO {name}, {load.label}" if load is not None and len(loads) > 1 else f"SLO {limit_text(name)}"
        measured = [cell for cell in cells(runs) if load is None or cell.load == load]
        charts += _panel(title, axis, measured, ("slo", name, "violation_rate"), runs)
    return charts


def throughput(runs: Sequence[Run]) -> list[Chart]:
    """Return completed requests per minute, along the number that the runs vary or as bars."""
    axis, keys = axis_of(runs), ("throughput_rpm",)
    if axis is not None and axis.key is None:
        return _panel("", axis, cells(runs), keys, runs)
    known = [run for run in runs if run.number(*keys) is not None]
    charts = []
    for load in common_loads(known):
        charts += _panel(load.label, axis, [cell for cell in cells(runs) if cell.load == load], keys, runs)
    return charts


def hits(runs: Sequence[Run]) -> list[Chart]:
    """Return the share of cache lookups by steps skipped, misses included, a bar for each series."""
    shares = {(cell.series, cell.load): bar for cell in cells(runs) if (bar := hit_shares(cell)) is not None}
    loads = common_loads([run for run in runs if (run.series, run.load) in shares])
    keys = sorted({key for (_, load), bar in shares.items() if load in loads for key in bar}, key=steps_order)
    colours = {_steps_text(key): colour for key, colour in _step_colours(keys).items()}
    x, part = Field("share", "Share of cache lookups", ".1~%", domain=(0.0, 1.0)), Field("k", "Steps skipped", "")
    charts = []
    for load in loads:
        rows = [
            {"series": series, "k": _steps_text(key), "share": share}
            for (series, of_load), bar in shares.items()
            if of_load == load
            for key, share in bar.items()
        ]
        charts.append(Chart(load.label, bars(pd.DataFrame(rows), x, series_styles(runs), part=part, colours=colours)))
    return charts


def _steps_text(key: str) -> str:
    return {"miss": "miss", "unknown": "hit, K not recorded"}.get(key, f"K = {key}")


def _step_colours(keys: Sequence[str]) -> dict[str, str]:
    """Return colours, dark to light for few to many steps skipped, greys for hits without a K and for misses."""
    numbered = [key for key in keys if key not in ("miss", "unknown")]
    scale, last = mpl.colormaps["viridis"], max(1, len(numbered) - 1)
    colours = {key: to_hex(scale(0.12 + 0.46 * index / last)) for index, key in enumerate(numbered)}
    colours |= {"unknown": EDGE, "miss": GREY}
    return {key: colours[key] for key in keys}


def over_time(runs: Sequence[Run]) -> list[Chart]:
    """Return requests waiting and the share of GPUs busy against time, for the first seed of each series."""
    figures = {
        "queued": ("requests waiting", Field("value", "Requests waiting")),
        "busy": ("GPUs busy", Field("value", "Share of GPUs busy", ".0%", domain=(0.0, 1.0))),
    }
    over = [
        (cell, column, series)
        for cell, column in product(cells(runs), figures)
        if (series := next((values for run in cell.runs if (values := time_series(run, column, _SPANS))), None))
    ]
    loads = common_loads([run for cell, *_ in over for run in cell.runs])
    names = thin_out(sorted({cell.series for cell, *_ in over if cell.load in loads}, key=natural), MAX_SERIES)
    charts = []
    for (column, (title, y)), load in product(figures.items(), loads):
        curves = [
            (cell, series) for cell, of, series in over if of == column and cell.load == load and cell.series in names
        ]
        if curves:
            longest_s = max(float(time[-1]) for _, (time, _) in curves)
            unit, seconds = ("h", 3600) if longest_s >= 7200 else ("min", 60) if longest_s >= 120 else ("s", 1)
            rows = []
            for cell, (time, value) in curves:
                if column == "busy":
                    gpus = cell.runs[0].number("gpu", "count") or max(float(value.max()), 1.0)
                    value = np.clip(value / gpus, 0.0, 1.0)
                rows.append(pd.DataFrame({"series": cell.series, "time": time / seconds, "value": value}))
            frame, x = pd.concat(rows, ignore_index=True), Field("time", f"Time ({unit})")
            charts.append(Chart(f"{load.label}: {title}", lines(frame, x, y, series_styles(runs), sparse=False)))
    return charts


def beliefs(runs: Sequence[Run]) -> list[Chart]:
    """Return the mean estimated seconds against the true ones, a point for each series, load and size."""
    frame = estimates.beliefs(runs)
    if frame.empty:
        return []
    x, y = Field("cost_s", "Seconds on the GPUs (mean)"), Field("estimate_s", "Estimated seconds (mean)")
    hover = [
        _LOAD,
        Field("size", "Size", ""),
        Field("requests", "Requests", ",d"),
        Field("ratio", "Estimated over true"),
    ]
    return [Chart("", points(frame, x, y, series_styles(runs), hover=hover))]


def tenants(runs: Sequence[Run]) -> list[Chart]:
    """Return the distribution of the tenants' p95 latencies (s), of the first seed, a panel for each load."""
    panels: dict[str, list[pd.DataFrame]] = {}
    for cell in cells(runs) if are_told_apart(runs) else ():
        if (p95_s := tail_latencies(cell.runs[0])) is not None:
            shares = np.arange(1, len(p95_s) + 1) / len(p95_s)
            rows = pd.DataFrame({"series": cell.series, "p95_s": p95_s, "share": shares})
            panels.setdefault(cell.load.label, []).append(rows)
    x, y = Field("p95_s", "Latency p95 of a tenant (s)"), Field("share", "Share of tenants", ".1~%", domain=(0.0, 1.0))
    return [
        Chart(title, lines(pd.concat(rows), x, y, series_styles(runs), sparse=False, along="y"))
        for title, rows in panels.items()
    ]


def _panel(
    title: str, axis: Axis | None, measured: Sequence[SeriesAtLoad], keys: tuple[str, ...], runs: Sequence[Run]
) -> list[Chart]:
    """Return a panel of the number under `keys`, as curves along `axis` or as bars without one; none without data.

    A share of requests over the limit, or a throughput.
    """
    by_rate = axis is not None and axis.key is None
    values = [
        (cell, spread)
        for cell in measured
        if (spread := cell.spread(*keys)) and not (by_rate and cell.load.rate_rpm is None)  # which has no place there
    ]
    if not values:
        return []
    is_share = keys[0] == "slo"
    if axis is None:
        return [Chart(title, _bars(values, is_share, runs))]
    rows: list[dict[str, Any]] = []
    xs = sorted({x for cell, _ in values if (x := axis.value(cell)) is not None})
    for cell, spread in values:
        own_x = axis.value(cell)
        # a system without the setting is a level line
        for x in [own_x] if own_x is not None else [xs[0], xs[-1]] if xs else []:
            rows.append({"series": axis.curve(cell), "x": x, "value": spread.mean, **_ends(spread)})
    if not rows:
        return []
    y = _SHARE_LATE if is_share else _COMPLETED
    if by_rate and not is_share:
        rows += [{"series": UNFILTERED_SERIES, "x": rate, "value": rate} for rate in xs]
        y = replace(y, title="Requests/min (dotted: offered)")
    is_log = bool(xs) and xs[0] > 0 and xs[-1] / xs[0] >= _LOG_RATIO
    field = Field("x", axis.title, ",.6~r")
    field = replace(field, scale="log", domain=(xs[0], xs[-1]), ticks=thin_out(xs, 6)) if is_log else field
    return [Chart(title, lines(pd.DataFrame(rows), field, y, series_styles(runs)))]


def _bars(values: Sequence[tuple[SeriesAtLoad, Spread]], is_share: bool, runs: Sequence[Run]) -> Spec:
    """Return a bar for each system and load; throughput bars also name the saved compute."""
    has_one_load = len({cell.load for cell, _ in values}) == 1
    rows = []
    for cell, spread in values:
        name = cell.series if has_one_load else f"{cell.series}, {cell.load.label}"
        saving = cell.spread("cache", "compute_saving")
        saved = f", saves {saving.mean:.0%}" if saving and abs(saving.mean) >= 0.005 else ""
        text = f"{spread.mean:.1%}" if is_share else number(spread.mean, 3) + saved
        rows.append({"series": cell.series, "name": name, "value": spread.mean, "text": text, **_ends(spread)})
    longest = max(spread.high for _, spread in values) or 1.0
    # an axis longer than the bars has room for the text after them
    x = (
        replace(_SHARE_LATE, domain=(0.0, 1.3), ticks=(0.0, 0.25, 0.5, 0.75, 1.0))
        if is_share
        else replace(_COMPLETED, domain=(0.0, 2.2 * longest))
    )
    return bars(pd.DataFrame(rows), x, series_styles(runs), name=Field("name", "System", ""))


def _limits(drawn: Sequence[SeriesAtLoad]) -> list[Limit]:
    """Return a line for each limit (s): one for all series that share it, else one for each."""
    limit_lines = []
    for name in slo_multiples([run for cell in drawn for run in cell.runs]):
        if name == OWN:
            continue  # each request has another
        limits = {cell.series: round(value.mean, 6) for cell in drawn if (value := cell.spread("slo", name, "limit_s"))}
        for limit in sorted(set(limits.values())):
            owners = [series for series, value in limits.items() if value == limit]
            limit_lines.append(Limit(limit, name, owners[0] if len(owners) == 1 < len(limits) else UNFILTERED_SERIES))
    return limit_lines


def _decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from `low` to `high`, and their triples if these are few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1.0, 3.0) if high / low < 100 else (1.0,)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]


def _ends(spread: Spread, base: float = 0.0, sign: float = 1.0) -> dict[str, float]:
    """Return the range over replicas as columns; nothing with one replica."""
    ends = sorted(base + sign * end for end in (spread.low, spread.high))
    return dict(zip(("low", "high"), ends, strict=True)) if spread.count > 1 else {}
