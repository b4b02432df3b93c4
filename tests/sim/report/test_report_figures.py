"""What the figures draw, read back from their artists."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.colors import to_hex, to_rgb

from mezzotint.sim.report.figures import panels as figures
from mezzotint.sim.report.figures.over_time import over_time
from mezzotint.sim.report.figures.palette import WIDTH, series_styles, short, stacked_panels
from mezzotint.sim.report.runs import Run, latency_quantiles, load_runs

Fabricate = Callable[..., Path]


@pytest.fixture
def sweep(fabricate: Fabricate, tmp_path: Path) -> list[Run]:
    for system in ("vanilla", "nirvana", "modm-throughput"):
        for rate in (6.0, 16.0):
            for seed in (1, 2):
                fabricate(f"{system}-{rate}-{seed}", system, rate_rpm=rate, seed=seed, requests=300)
    return load_runs([tmp_path])


def test_latency_distributions_are_nondecreasing_and_end_at_one(sweep: list[Run]) -> None:
    figure = figures.latency_distribution(sweep)
    assert figure is not None
    assert len(figure.axes) == 2
    for panel in figure.axes:
        curves = [line for line in panel.lines if len(line.get_xdata()) > 100]
        assert len(curves) == 3
        for line in curves:
            assert (np.diff(line.get_xdata()) >= 0).all()
            assert line.get_ydata()[[0, -1]] == pytest.approx([0, 1])
        assert panel.get_xlabel().endswith("(s)")
        dashed = [line.get_xdata()[0] for line in panel.lines if line.get_linestyle() == "--"]
        assert dashed == pytest.approx([183.0, 366.0])
        assert all(low <= limit <= high for limit in dashed for low, high in [panel.get_xlim()])


def test_stacked_hit_shares_sum_to_one(sweep: list[Run]) -> None:
    figure = figures.hit_share(sweep)
    assert figure is not None
    for panel in figure.axes:
        lengths: dict[float, float] = {}
        for patch in panel.patches:
            lengths[round(patch.get_y(), 6)] = lengths.get(round(patch.get_y(), 6), 0) + patch.get_width()
        assert len(lengths) == 2, "vanilla has no cache"
        assert list(lengths.values()) == pytest.approx([1.0, 1.0])


def test_slo_violations_are_drawn_against_the_rate(sweep: list[Run]) -> None:
    figure = figures.slo_violations(sweep)
    assert figure is not None
    assert [panel.get_title(loc="left") for panel in figure.axes] == [
        "SLO 2x standalone latency",
        "SLO 4x standalone latency",
    ]
    for panel in figure.axes:
        for line in panel.lines:
            assert list(line.get_xdata()) == [6.0, 16.0]
            assert all(0 <= rate <= 1 for rate in line.get_ydata())
        assert panel.collections, "a band over seeds"


def test_single_rate_is_drawn_as_bars(fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "nirvana"):
        fabricate(system, system, rate_rpm=14.0, requests=300)
    runs = load_runs([tmp_path])
    figure = figures.slo_violations(runs)
    assert figure is not None
    expected = [run.number("slo", "2x", "violation_rate") for run in runs]
    assert [patch.get_width() for patch in figure.axes[0].patches] == pytest.approx(expected)


def test_series_keeps_its_colour_in_every_figure(sweep: list[Run]) -> None:
    styles = series_styles(sweep)
    bars = figures.throughput([run for run in sweep if run.load.rate_rpm == 6.0])
    assert bars is not None
    assert [to_hex(p.get_facecolor()).upper() for p in bars.axes[0].patches] == [
        styles[name].colour for name in sorted(styles)
    ]
    for curves in (figures.slo_violations(sweep), figures.throughput(sweep)):
        assert curves is not None
        drawn = [line.get_color() for line in curves.axes[0].lines if line.get_linestyle() != ":"]
        assert drawn == [styles[name].colour for name in sorted(styles)]


def test_thirteen_systems_look_different(fabricate: Fabricate, tmp_path: Path) -> None:
    for index in range(13):
        fabricate(str(index), f"system-{index}", requests=10)
    styles = series_styles(load_runs([tmp_path])).values()
    assert len({(style.colour, str(style.dash)) for style in styles}) == 13


def test_time_series_show_queue_and_gpus(sweep: list[Run]) -> None:
    figure = over_time(sweep)
    assert figure is not None
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert [title for title in titles if "busy" in title] == ["6 rpm: GPUs busy", "16 rpm: GPUs busy"]
    assert sum(title.endswith("requests waiting") for title in titles) == 6, "a strip for each system and load"
    for run in sweep:
        (run.path / "cluster.parquet").unlink()
    assert over_time(sweep) is None


def test_names_are_shown_verbatim(fabricate: Fabricate, tmp_path: Path) -> None:
    for index, name in enumerate((r"$\frac{", "_hidden", "x" * 200, "two\nlines")):
        fabricate(str(index), name, requests=50)
    runs = load_runs([tmp_path])
    for draw in (figures.latency_distribution, figures.throughput, figures.slo_violations, over_time):
        figure = draw(runs)
        assert figure is not None
        figure.draw_without_rendering()
    shown = figures.latency_distribution(runs)
    assert shown is not None
    texts = [text.get_text() for text in shown.legends[0].texts]
    assert {r"$\frac{", "two lines", " _hidden"} < set(texts)
    assert all(len(short(name)) <= 45 for name in ("x" * 200, "_" * 300, ""))


def test_drawing_leaves_rc_params_unchanged(sweep: list[Run]) -> None:
    before: dict[str, Any] = dict(mpl.rcParams)
    figures.throughput(sweep)
    assert dict(mpl.rcParams) == before


def test_one_system_at_six_sizes_is_one_curve(fabricate: Fabricate, tmp_path: Path) -> None:
    sizes = (1000, 200, 50, 4000, 100, 10000)
    for size in sizes:
        system = {"name": "nirvana", "cache": {"capacity": size, "shards": size // 50}}
        fabricate(f"n{size}", "nirvana", requests=20, config={"system": system})
    fabricate("v", "vanilla", requests=20)
    runs = load_runs([tmp_path])
    assert {run.family for run in runs} == {"nirvana", "vanilla"}
    assert [run.setting.value for run in runs if run.setting] == sorted(sizes)
    for figure in (figures.slo_violations(runs), figures.throughput(runs)):
        assert figure is not None
        (curve,) = (line for line in figure.axes[0].lines if len(line.get_xdata()) == 6)
        assert list(curve.get_xdata()) == sorted(sizes)
        assert figure.axes[0].get_xlabel() == "cache.capacity"
        assert not figure.axes[0].patches


def test_every_figure_has_the_same_font_size_and_width(sweep: list[Run]) -> None:
    for draw in (figures.latency_distribution, figures.slo_violations, figures.hit_share, over_time):
        figure = draw(sweep)
        assert figure is not None
        assert figure.get_figwidth() == WIDTH
        assert {panel.xaxis.label.get_fontsize() for panel in figure.axes} == {9.0}


def test_many_latency_distributions_are_rows_of_ranges(fabricate: Fabricate, tmp_path: Path) -> None:
    """One row for each of nine systems, from the 10th to the 90th percentile of its latency, with two more marks."""
    for index in range(9):
        fabricate(f"{index}", f"system-{index}", requests=20 + 5 * index)
    runs = load_runs([tmp_path])
    shown = figures.latency_distribution(runs)
    assert shown is not None
    (panel,) = shown.axes
    assert [label.get_text().replace("\n", " ") for label in panel.get_yticklabels()] == [run.series for run in runs]
    bars: list[Any] = list(panel.patches)
    assert len(bars) == len(runs)
    for bar, run in zip(bars, runs, strict=True):
        quantiles = latency_quantiles(run, np.array([0.1, 0.9]))
        assert [bar.get_x(), bar.get_x() + bar.get_width()] == pytest.approx(quantiles, rel=0.01)
    labels = [text.get_text() for text in shown.legends[0].texts]
    assert labels[:3] == ["p10 to p90", "p50", "p99"]
    (tmp_path / "8/requests.parquet").unlink()
    shown = figures.latency_distribution(runs)
    assert shown is not None
    assert shown.axes[0].get_ylabel() == "Share of completed requests", "eight can be told apart as curves"


def test_limit_that_no_run_of_a_load_has_gets_no_panel(fabricate: Fabricate, tmp_path: Path) -> None:
    """Sizes 1, 2 and 3 at two loads; only the lower load has 4x."""

    def once(summary: dict[str, Any]) -> None:
        del summary["slo"]["4x"]

    for rate in (6.0, 16.0):
        for size in (1, 2, 3):
            system = {"name": "nirvana", "cache": {"capacity": size}}
            fabricate(
                f"{rate}-{size}",
                rate_rpm=rate,
                requests=20,
                change=once if rate > 6 else None,
                config={"system": system},
            )
    figure = figures.slo_violations(load_runs([tmp_path]))
    assert figure is not None
    assert [panel.get_title(loc="left") for panel in figure.axes if panel.get_visible()] == [
        "SLO 2x, 6 rpm",
        "SLO 2x, 16 rpm",
        "SLO 4x, 6 rpm",
    ]


def test_wide_axis_is_logarithmic_with_few_ticks(fabricate: Fabricate, tmp_path: Path) -> None:
    """Sizes over decades, too many to label: an even selection is labelled, always with the largest."""
    sizes = [10 * 2**power for power in range(12)]
    for size in sizes:
        fabricate(f"n{size}", requests=20, config={"system": {"name": "nirvana", "cache": {"capacity": size}}})
    figure = figures.throughput(load_runs([tmp_path]))
    assert figure is not None
    panel = figure.axes[0]
    assert panel.get_xscale() == "log"
    marked = [round(place) for place in panel.xaxis.get_major_locator().locs]
    assert set(marked) < set(sizes)
    assert 2 <= len(marked) <= 7
    assert marked[-1] == sizes[-1]
    assert len({sizes.index(high) - sizes.index(low) for low, high in pairwise(marked)}) == 1


def test_values_of_one_system_are_shaded_from_dark_to_light(fabricate: Fabricate, tmp_path: Path) -> None:
    sizes = (10, 1000, 200, 40, 5, 70, 20)
    for size in sizes:
        fabricate(f"n{size}", requests=20, config={"system": {"name": "nirvana", "cache": {"capacity": size}}})
    runs = sorted(load_runs([tmp_path]), key=lambda run: run.setting.value if run.setting else 0.0)
    styles = series_styles(runs)
    light = [to_rgb(styles[run.series].colour) for run in runs]
    weights = (0.2126, 0.7152, 0.0722)
    shades = [float(np.dot(colour, weights)) for colour in light]
    assert shades == sorted(shades)
    assert len({styles[run.series].marker for run in runs}) == len(sizes)
    assert {styles[run.series].dash for run in runs} == {"-"}


def test_series_without_a_gauge_still_shows_the_other(fabricate: Fabricate, tmp_path: Path) -> None:
    for system, gone in (("vanilla", "busy"), ("nirvana", "queued")):
        path = fabricate(system, system, requests=50) / "cluster.parquet"
        pq.write_table(pq.read_table(path).drop_columns([gone]), path)
    runs = load_runs([tmp_path])
    figure = over_time(runs)
    assert figure is not None
    busy, first, second, bar = figure.axes  # sorted by name, then the explanation of the shades
    assert len(busy.collections) == 1
    assert [len(panel.lines) for panel in (first, second)] == [0, 1]
    assert first.texts[0].get_text() == "no data"
    assert second.texts[0].get_text().startswith("peak ")
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0%", "50%", "100%"]
    alone = over_time([run for run in runs if run.system == "vanilla"])
    assert alone is not None
    assert len(alone.axes) == 2  # nothing is shaded or explained
    assert not alone.axes[0].collections


def test_panels_are_stacked_vertically() -> None:
    figure, shown = stacked_panels([1.0, 3.0, 2.0])
    assert figure.axes == shown
    assert (figure.get_figwidth(), figure.get_figheight()) == (WIDTH, pytest.approx(6.0))
