"""The report's figures as charts that answer to the pointer: each function takes runs and returns its panels."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, log10
from typing import Any

import numpy as np
import pandas as pd

from mezzotint.figures.page import number
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.report.beliefs import beliefs as found_beliefs
from mezzotint.sim.report.compare import (
    SeriesAtLoad,
    Spread,
    cells,
    common_loads,
    hit_shares,
    limit_text,
    slo_multiples,
    steps_order,
    thinned,
)
from mezzotint.sim.report.figures.over_time import MAX_SERIES, first_series, time_unit
from mezzotint.sim.report.figures.palette import series_styles
from mezzotint.sim.report.figures.panels import (
    LOG_LATENCY_RATIO,
    LOG_RATIO,
    Axis,
    slo_panels,
    step_colours,
    throughput_panels,
)
from mezzotint.sim.report.interactive import ALWAYS, Chart, Field, Limit, Spec, bars, lines, points
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run, latency_quantiles

_PROBABILITIES = np.array([*range(100), 99.5, 99.9, 100]) / 100
_SPANS = 60
_LOAD = Field("load", "Load", "")


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
            spec = points(_frame(rows), x, y, series_styles(runs), hover=[_LOAD], connected=True)
            charts.append(Chart(f"SLO {limit_text(name)}", spec))
    return charts


def latency(runs: Sequence[Run]) -> list[Chart]:
    """Return the cumulative share of completed requests against latency (s), a panel for each of up to three loads."""
    charts = []
    loads = common_loads(runs)
    for load in loads:
        drawn, rows = [], []
        for cell in cells([run for run in runs if run.load == load]):
            found = [each for run in cell.runs if (each := latency_quantiles(run, _PROBABILITIES)) is not None]
            if found:
                drawn.append(cell)
                means, lows, highs = np.mean(found, axis=0), np.min(found, axis=0), np.max(found, axis=0)
                band = {"low": lows, "high": highs} if len(found) > 1 else {}
                rows.append(pd.DataFrame({"series": cell.series, "latency_s": means, "share": _PROBABILITIES, **band}))
        if rows:
            frame = pd.concat(rows, ignore_index=True)
            limits = _limits(drawn)
            low, high = frame.latency_s.min(), max([frame.latency_s.max(), *(limit.value for limit in limits)])
            is_log = low > 0 and high / low > LOG_LATENCY_RATIO
            x = Field("latency_s", "Latency, arrival to finish (s)")
            x = replace(x, scale="log", domain=(low, high), ticks=_decades(low, high)) if is_log else x
            y = Field("share", "Share of completed requests", ".1~%", domain=(0.0, 1.0))
            spec = lines(frame, x, y, series_styles(runs), limits=limits, sparse=False, along="y")
            charts.append(Chart(load.label, spec))
    return charts


def slo(runs: Sequence[Run]) -> list[Chart]:
    """Return the share of requests that missed each limit, along the number that the runs vary or as bars."""
    value = Field("value", "Requests over the limit", ".1~%", domain=(0.0, 1.0))
    axis, found = slo_panels(runs)
    return [Chart(title, _panel(axis, panel, value, runs, is_share=True)) for title, panel in found]


def throughput(runs: Sequence[Run]) -> list[Chart]:
    """Return completed requests per minute, along the number that the runs vary or as bars."""
    value = Field("value", "Completed (requests/min)")
    axis, found = throughput_panels(runs)
    return [Chart(title, _panel(axis, panel, value, runs, is_share=False)) for title, panel in found]


def hits(runs: Sequence[Run]) -> list[Chart]:
    """Return the share of cache lookups by steps skipped, misses included, a bar for each series."""
    shares = {(cell.series, cell.load): bar for cell in cells(runs) if (bar := hit_shares(cell)) is not None}
    loads = common_loads([run for run in runs if (run.series, run.load) in shares])
    words = {"miss": "miss", "unknown": "hit, K not recorded"}
    keys = sorted({key for (_, load), bar in shares.items() if load in loads for key in bar}, key=steps_order)
    colours = {words.get(key, f"K = {key}"): colour for key, colour in step_colours(keys).items()}
    ordered = {words.get(key, f"K = {key}"): None for key in keys}
    charts = []
    for load in loads:
        rows = [
            {"series": series, "k": words.get(key, f"K = {key}"), "share": share}
            for (series, at), bar in shares.items()
            if at == load
            for key, share in bar.items()
        ]
        x, part = Field("share", "Share of cache lookups", ".1~%", domain=(0.0, 1.0)), Field("k", "Steps skipped", "")
        spec = bars(_frame(rows), x, series_styles(runs), part=part, colours={key: colours[key] for key in ordered})
        charts.append(Chart(load.label, spec))
    return charts


def over_time(runs: Sequence[Run]) -> list[Chart]:
    """Return requests waiting and the share of GPUs busy against time, for the first seed of each series."""
    drawn = [cell for cell in cells(runs) if first_series(cell, "queued", 1) or first_series(cell, "busy", 1)]
    loads = common_loads([run for cell in drawn for run in cell.runs])
    names = thinned(sorted({cell.series for cell in drawn if cell.load in loads}, key=natural), MAX_SERIES)
    waiting = Field("value", "Requests waiting")
    busy = Field("value", "Share of GPUs busy", ".0%", domain=(0.0, 1.0))
    charts = []
    for column, y in (("queued", waiting), ("busy", busy)):
        for load in loads:
            at = [cell for cell in drawn if cell.load == load and cell.series in names]
            found = [(cell, series) for cell in at if (series := first_series(cell, column, _SPANS)) is not None]
            if not found:
                continue
            unit, seconds = time_unit(max(float(time[-1]) for _, (time, _) in found))
            rows = []
            for cell, (time, value) in found:
                gpus = cell.runs[0].number("gpu", "count") or max(float(value.max()), 1.0)
                shown = value if column == "queued" else np.clip(value / gpus, 0.0, 1.0)
                rows.append(pd.DataFrame({"series": cell.series, "time": time / seconds, "value": shown}))
            frame, x = pd.concat(rows, ignore_index=True), Field("time", f"Time ({unit})")
            what = "requests waiting" if column == "queued" else "GPUs busy"
            charts.append(Chart(f"{load.label}: {what}", lines(frame, x, y, series_styles(runs), sparse=False)))
    return charts


def beliefs(runs: Sequence[Run]) -> list[Chart]:
    """Return the mean estimated seconds against the true ones, a point for each series, load and size."""
    rows = [
        {
            "series": each.series,
            "load": each.load,
            "size": each.size,
            "cost_s": each.cost_s,
            "estimate_s": each.estimate_s,
            "ratio": each.ratio,
        }
        for each in found_beliefs(runs)
    ]
    if not rows:
        return []
    x, y = Field("cost_s", "Seconds on the GPUs (mean)"), Field("estimate_s", "Estimated seconds (mean)")
    hover = [_LOAD, Field("size", "Size", ""), Field("ratio", "Estimated over true")]
    return [Chart("", points(_frame(rows), x, y, series_styles(runs), hover=hover))]


def _panel(
    axis: Axis | None, panel: Sequence[tuple[SeriesAtLoad, Spread]], value: Field, runs: Sequence[Run], is_share: bool
) -> Spec:
    """Return a panel of curves along `axis`, or of bars without one."""
    styles = series_styles(runs)
    rows: list[dict[str, Any]] = []
    if axis is None:
        alike = len({cell.load for cell, _ in panel}) == 1
        for cell, spread in panel:
            name = cell.series if alike else f"{cell.series}, {cell.load.label}"
            saving = cell.spread("cache", "compute_saving")
            saved = f", saves {saving.mean:.0%}" if saving and abs(saving.mean) >= 0.005 else ""
            text = f"{spread.mean:.1%}" if is_share else number(spread.mean, 3) + saved
            rows.append({"series": cell.series, "name": name, "value": spread.mean, "text": text, **_ends(spread)})
        longest = max(spread.high for _, spread in panel) or 1.0
        room = 1.3 if is_share else 2.2 * longest  # for the text after a bar
        value = replace(value, domain=(0.0, room), ticks=(0.0, 0.25, 0.5, 0.75, 1.0) if is_share else ())
        return bars(_frame(rows), value, styles, name=Field("name", "System", ""))
    places = sorted({place for cell, _ in panel if (place := axis.value(cell)) is not None})
    for cell, spread in panel:
        place = axis.value(cell)
        for at in [place] if place is not None else [places[0], places[-1]] if places else []:
            rows.append({"series": axis.curve(cell), "x": at, "value": spread.mean, **_ends(spread)})
    if axis.key is None and not is_share:
        rows += [{"series": ALWAYS, "x": rate, "value": rate} for rate in places]
    is_log = bool(places) and places[0] > 0 and places[-1] / places[0] >= LOG_RATIO
    x = Field("x", axis.title, ",.6~r")
    x = replace(x, scale="log", domain=(places[0], places[-1]), ticks=thinned(places, 6)) if is_log else x
    return lines(_frame(rows), x, value, styles)


def _limits(drawn: Sequence[SeriesAtLoad]) -> list[Limit]:
    """Return a line for each limit (s): one for all series that share it, else one for each."""
    found = []
    for name in slo_multiples([run for cell in drawn for run in cell.runs]):
        if name == OWN:
            continue  # each request has another
        limits = {cell.series: round(value.mean, 6) for cell in drawn if (value := cell.spread("slo", name, "limit_s"))}
        for limit in sorted(set(limits.values())):
            owners = [series for series, value in limits.items() if value == limit]
            found.append(Limit(limit, name, owners[0] if len(owners) == 1 < len(limits) else ALWAYS))
    return found


def _decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from `low` to `high`, and their triples if these are few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1.0, 3.0) if high / low < 100 else (1.0,)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]


def _ends(spread: Spread, base: float = 0.0, sign: float = 1.0) -> dict[str, float]:
    """Return the range over replicas as columns; nothing with one replica."""
    ends = sorted(base + sign * end for end in (spread.low, spread.high))
    return dict(zip(("low", "high"), ends, strict=True)) if spread.count > 1 else {}


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows))
