"""The report's figures: each takes finished runs and returns a Figure, or None without its data."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from conf.palette import EDGE, GREY, house_style, panels
from sim.study.compare import Cell, by_steps, cells, common_loads, hit_shares, slo_multiples
from sim.study.draw import bar, cumulative, ink, latency_axis, slo_limits, step_colours
from sim.study.identity import Load
from sim.study.palette import legend, marks, name_rows, short
from sim.study.runs import Floats, Run, latency_quantiles, time_series
from sim.study.tables import number

_CDF_POINTS = 2001
_TIME_POINTS = 120


@house_style()
def latency_distribution(runs: Sequence[Run]) -> Figure | None:
    """Cumulative share of completed requests against latency (s), a panel for each of up to three loads."""
    probabilities = np.linspace(0.0, 1.0, _CDF_POINTS)
    drawn: list[tuple[Load, list[tuple[Cell, list[Floats]]]]] = []
    for load in common_loads(runs):
        curves = [
            (
                cell,
                [curve for run in cell.runs if (curve := latency_quantiles(run, probabilities)) is not None],
            )
            for cell in cells(runs)
            if cell.load == load
        ]
        if curves := [(cell, replicas) for cell, replicas in curves if replicas]:
            drawn.append((load, curves))
    if not drawn:
        return None
    looks = marks(runs)
    figure, axes = panels(len(drawn), width=10.0 if len(drawn) > 1 else 7.0, height=4.1)
    limits = False
    for panel, (load, curves) in zip(axes[0], drawn, strict=True):
        panel.set_title(load.label, pad=8)
        for cell, replicas in curves:
            cumulative(panel, np.array(replicas), probabilities, looks[cell.series])
        limits |= slo_limits(panel, [cell for cell, _ in curves], looks)
        latency_axis(panel, [curve for _, replicas in curves for curve in replicas])
        panel.set_xlabel("Latency, arrival to finish (s)")
        panel.set_ylim(0, 1.02)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0][0].set_ylabel("Completed requests no slower")
    for level, name in ((0.5, "p50"), (0.99, "p99")):
        for panel in axes[0]:
            panel.axhline(level, color=GREY, linewidth=0.7, zorder=1)
        axes[0][-1].annotate(name, (1.01, level), xycoords=("axes fraction", "data"), va="center", color=EDGE)
    extra = [Line2D([], [], color=GREY, linestyle="--", label="SLO limit, × standalone")] if limits else []
    legend(figure, sorted({cell.series for _, curves in drawn for cell, _ in curves}), looks, extra)
    return figure


@house_style()
def slo_violations(runs: Sequence[Run]) -> Figure | None:
    """Share of requests that missed each SLO, against the request rate; bars where rates do not vary."""
    measured = [cell for cell in cells(runs) if any(run.summary["slo"] for run in cell.runs)]
    rates = {(cell.series, cell.load.rate_rpm) for cell in measured if cell.load.rate_rpm is not None}
    if len(rates) > len({series for series, _ in rates}):
        return _violation_curves([cell for cell in measured if cell.load.rate_rpm is not None], runs)
    return _violation_bars(measured, runs)


def _violation_curves(measured: Sequence[Cell], runs: Sequence[Run]) -> Figure | None:
    points = {
        name: [(cell, value) for cell in measured if (value := cell.spread("slo", name, "violation_rate"))]
        for name in slo_multiples(runs)
    }
    points = {name: values for name, values in points.items() if values}
    if not points:
        return None
    looks = marks(runs)
    columns = min(3, len(points))
    rows = -(-len(points) // columns)
    figure, axes = panels(columns, rows, width=(6.5, 9.0, 10.0)[columns - 1], height=3.2 * rows + 0.7)
    for panel in axes.flat[len(points) :]:
        panel.set_visible(False)
    for panel, (name, values) in zip(axes.flat, points.items(), strict=False):
        panel.set_title(f"SLO {name} standalone latency")
        for series in sorted({cell.series for cell, _ in values}):
            line = [(cell.load.rate_rpm, value) for cell, value in values if cell.series == series]
            rate, look = [rate for rate, _ in line], looks[series]
            panel.plot(
                rate,
                [value.mean for _, value in line],
                color=look.colour,
                linestyle=look.dash,
                marker=look.marker,
            )
            if any(value.count > 1 for _, value in line):
                low, high = [value.low for _, value in line], [value.high for _, value in line]
                panel.fill_between(rate, low, high, color=look.colour, alpha=0.18, linewidth=0)
        panel.set_xlabel("Request rate (requests/min)")
        panel.set_ylim(-0.02, 1.04)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    for row in axes:
        row[0].set_ylabel("Requests over the limit")
    legend(figure, sorted({cell.series for values in points.values() for cell, _ in values}), looks)
    return figure


def _violation_bars(measured: Sequence[Cell], runs: Sequence[Run]) -> Figure | None:
    """One row a system and one panel an SLO multiple; loads that have no rate share a row's height."""
    multiples = [
        name for name in slo_multiples(runs) if any(cell.spread("slo", name, "violation_rate") for cell in measured)
    ]
    if not multiples:
        return None
    looks = marks(runs)
    loads = {cell.load for cell in measured}
    names = [cell.series if len(loads) == 1 else f"{cell.series}, {cell.load.label}" for cell in measured]
    columns = min(4, len(multiples))
    rows = -(-len(multiples) // columns)
    tall = 0.34 * len(measured) + 1.1
    figure, axes = panels(columns, rows, width=10.0 if columns > 1 else 7.0, height=tall * rows)
    for panel in axes.flat[len(multiples) :]:
        panel.set_visible(False)
    for panel, multiple in zip(axes.flat, multiples, strict=False):
        panel.set_title(f"SLO {multiple} standalone latency")
        name_rows(panel, names)
        for row, cell in enumerate(measured):
            if value := cell.spread("slo", multiple, "violation_rate"):
                bar(panel, row, value.mean, value.low, value.high, looks[cell.series], f"{value.mean:.1%}")
        panel.set_xlim(0, 1.25)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlabel("Requests over the limit")
    return figure


@house_style()
def hit_share(runs: Sequence[Run]) -> Figure | None:
    """Share of lookups by steps skipped, misses included, a bar for each series; every bar sums to one."""
    shares = {(cell.series, cell.load): bar for cell in cells(runs) if (bar := hit_shares(cell)) is not None}
    loads = common_loads([run for run in runs if (run.series, run.load) in shares])
    if not loads:
        return None
    names = sorted({series for series, load in shares if load in loads})
    keys = sorted({key for (_, load), bar in shares.items() if load in loads for key in bar}, key=by_steps)
    colours = step_colours(keys)
    figure, axes = panels(len(loads), width=10.0 if len(loads) > 1 else 7.5, height=0.42 * len(names) + 1.7)
    for panel, load in zip(axes[0], loads, strict=True):
        panel.set_title(load.label)
        name_rows(panel, names)
        for row, series in enumerate(names):
            left = 0.0
            for key, share in shares.get((series, load), {}).items():
                panel.barh(
                    row,
                    share,
                    left=left,
                    height=0.66,
                    color=colours[key],
                    edgecolor="white",
                    linewidth=0.6 if share >= 0.02 else 0,
                )
                if share >= (0.06 if len(loads) == 1 else 0.11):
                    panel.text(
                        left + share / 2,
                        row,
                        f"{share:.0%}",
                        ha="center",
                        va="center",
                        fontsize=7.5,
                        color=ink(colours[key]),
                    )
                left += share
        panel.set_xlim(0, 1)
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlabel("Share of cache lookups")
    words = {"miss": "miss", "unknown": "hit, K not recorded"}
    figure.legend(
        [Line2D([], [], marker="s", linestyle="", markersize=8, color=colours[key]) for key in keys],
        [words.get(key, f"K = {short(key, 12)}") for key in keys],
        loc="outside lower center",
        ncols=min(len(keys), 9),
        handletextpad=0.2,
        columnspacing=1.4,
    )
    return figure


@house_style()
def throughput(runs: Sequence[Run]) -> Figure | None:
    """Completed requests per minute, a bar for each series, and the compute its cache saved."""
    known = {
        (cell.series, cell.load): (value, cell.spread("cache", "compute_saving"))
        for cell in cells(runs)
        if (value := cell.spread("throughput_rpm")) is not None
    }
    loads = common_loads([run for run in runs if (run.series, run.load) in known])
    if not loads:
        return None
    looks = marks(runs)
    names = sorted({series for series, load in known if load in loads})
    figure, axes = panels(len(loads), width=10.0 if len(loads) > 1 else 7.5, height=0.38 * len(names) + 1.3)
    for panel, load in zip(axes[0], loads, strict=True):
        panel.set_title(load.label)
        name_rows(panel, names)
        for row, series in enumerate(names):
            if (series, load) not in known:
                continue
            value, saving = known[series, load]
            text = number(value.mean) + (f", saves {saving.mean:.0%}" if saving and abs(saving.mean) >= 0.005 else "")
            bar(panel, row, value.mean, value.low, value.high, looks[series], text)
        longest = max(value.high for (_, of), (value, _) in known.items() if of == load)
        panel.set_xlim(0, max(longest, 1e-9) * (1.75 if len(loads) > 2 else 1.45))
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.set_xlabel("Completed (requests/min)")
    return figure


@house_style()
def over_time(runs: Sequence[Run]) -> Figure | None:
    """Requests waiting and GPUs busy against time: the first replica of each series at up to three loads."""
    rows: tuple[tuple[str, str], ...] = (("queued", "Requests waiting"), ("busy", "Busy GPUs"))
    drawn: dict[Load, dict[tuple[str, str], tuple[Floats, Floats]]] = {}
    for cell in cells(runs):
        for column, _ in rows:
            found = next((x for run in cell.runs if (x := time_series(run, column, _TIME_POINTS))), None)
            if found:
                drawn.setdefault(cell.load, {})[cell.series, column] = found
    loads = common_loads([run for run in runs if run.load in drawn])
    rows = tuple(row for row in rows if any(column == row[0] for load in loads for _, column in drawn[load]))
    if not loads or not rows:
        return None
    looks = marks(runs)
    figure, axes = panels(
        len(loads),
        len(rows),
        width=10.0 if len(loads) > 1 else 7.5,
        height=2.2 * len(rows) + 0.7,
        share_y=False,
    )
    for index, load in enumerate(loads):
        longest = max(time.max() for time, _ in drawn[load].values())
        unit, seconds = ("h", 3600) if longest >= 7200 else ("min", 60) if longest >= 120 else ("s", 1)
        axes[0][index].set_title(load.label)
        for panel, (column, label) in zip(axes[:, index], rows, strict=True):
            for (series, of), (time, value) in sorted(drawn[load].items()):
                if of == column:
                    panel.plot(time / seconds, value, color=looks[series].colour, linestyle=looks[series].dash)
            scale = loads if column == "busy" else [load]
            highest = max(
                (value.max() for at in scale for (_, of), (_, value) in drawn[at].items() if of == column),
                default=1.0,
            )
            panel.set_ylim(-0.03 * max(highest, 1), 1.06 * max(highest, 1))
            panel.set_xlim(left=0)
            panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            if index == 0:
                panel.set_ylabel(label)
        axes[-1][index].set_xlabel(f"Time ({unit})")
    legend(figure, sorted({series for load in loads for series, _ in drawn[load]}), looks, markers=False)
    return figure
