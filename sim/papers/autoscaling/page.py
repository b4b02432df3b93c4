"""Page of autoscaling in Markdown, and its figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import mezzotint.figures.page
from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, GREY, INK, house_style, panels
from mezzotint.sim.papers.autoscaling.days import FIXED, MAX_LATE, STUDY, cheapest
from mezzotint.sim.papers.study import Results

HOURS = 0.5
"""Hours of one point of the series (BIN_S of the command)."""

STYLES = {scaler.name: colour for scaler, colour in zip(STUDY.scalers, COLOURS, strict=False)}
STYLES |= {"perfect knowledge": INK, FIXED: GREY}

KEYS = {scaler.name: scaler.key.rpartition(".")[2] for scaler in STUDY.scalers}


def line_of(row: Results) -> str:
    """Return a cluster's results in a line."""
    return (
        f"{_name(row)}: {percent(row['late'], 2)} late, p95 {row['p95_s']:.2f} s, {row['usd_per_1000']:.2f} USD per "
        f"1,000 images, {row['gpu_h']:.1f} GPU-hours, {row['switches']} loads"
    )


def _name(row: Results) -> str:
    if row["kind"] == FIXED:
        return f"fixed, {row['setting']:g} GPUs"
    start = "" if row["startup_s"] is None else f", start-up {row['startup_s']:g} s"
    return f"{row['kind']}, {KEYS[row['kind']]} {row['setting']:g}{start}"


@house_style()
def draw(facts: Results) -> Figure:
    """Draw two panels for each day: arrivals and GPUs over the day, and price against violations."""
    figure, grid = panels(2, len(facts["days"]), width=12.0, height=3.6 * len(facts["days"]), share_y=False)
    for (over_time, prices), day in zip(grid, facts["days"], strict=True):
        _draw_series(over_time, day)
        _draw_prices(prices, day)
        over_time.set_title(day["title"])
    grid[0][1].legend(fontsize=8)
    return figure


def _draw_series(axes: Axes, day: Results) -> None:
    rates = axes.twinx()
    for kind, series in day["series"].items():
        hours = [HOURS * (place + 0.5) for place in range(len(series["gpus"]))]
        axes.plot(hours, series["gpus"], color=STYLES[kind], label=kind, linestyle=":" if kind == FIXED else "-")
        if kind == FIXED:
            rates.fill_between(hours, series["rpm"], color=GREY, alpha=0.2, linewidth=0)
    rates.set_ylim(0, None)
    rates.set_ylabel("requests a minute (area)")
    rates.grid(False)
    axes.set_ylim(0, None)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4))
    axes.set_xlabel("hour")
    axes.set_ylabel("GPUs on or starting")


def _draw_prices(axes: Axes, day: Results) -> None:
    for kind, colour in STYLES.items():
        rows = [row for row in day["rows"] if row["kind"] == kind and row["startup_s"] is None]
        rows.sort(key=lambda row: row["setting"])
        late, prices = [row["late"] for row in rows], [row["usd_per_1000"] for row in rows]
        axes.plot(late, prices, color=colour, marker="o", markersize=4, label=kind)
    axes.set_xscale("symlog", linthresh=1e-3, linscale=0.5)
    axes.set_xlim(-1e-4, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axes.set_ylim(0, None)
    axes.set_xlabel("requests over twice the standalone latency")
    axes.set_ylabel("USD per 1,000 images")


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    days = [_day(day) for day in facts["days"]]
    return mezzotint.figures.page.render(
        __package__, "page.md.jinja", facts=facts, image=image, days=days, max_late=MAX_LATE, startups=_startups(facts)
    )


def _day(day: Results) -> Results:
    own = {scaler.name: scaler.own for scaler in STUDY.scalers}
    plain = [row for row in day["rows"] if row["startup_s"] is None]
    best = cheapest(day["rows"])
    shown = [row for row in plain if row["setting"] == own.get(row["kind"])]
    return {
        "title": day["title"],
        "note": day["note"],
        "requests": day["requests"],
        "limit_s": day["limit_s"],
        "defaults": [_cells(row) for row in shown],
        "best": [_cells(row) for row in best.values()],
        "saved": ", ".join(
            f"{kind} {percent(row['usd_per_1000'] / best[FIXED]['usd_per_1000'] - 1, 0, sign=True)}"
            for kind, row in best.items()
            if FIXED in best and kind != FIXED
        ),
    }


def _cells(row: Results) -> list[str]:
    numbers = [percent(row["late"], 2), f"{row['p95_s']:.2f}", f"{row['usd_per_1000']:.2f}", f"{row['gpu_h']:.1f}"]
    return [_name(row), *numbers, percent(row["busy"], 0), str(row["switches"])]


def _startups(facts: Results) -> list[list[str]]:
    """Return a row for each controller: violations and price at each start-up time."""
    rows = [row for row in facts["days"][0]["rows"] if row["startup_s"] is not None]
    return [
        [kind, *(f"{percent(row['late'], 2)}, {row['usd_per_1000']:.2f}" for row in rows if row["kind"] == kind)]
        for kind in dict.fromkeys(row["kind"] for row in rows)
    ]
