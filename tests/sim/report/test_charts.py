"""What the figures draw, read back from their data."""

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.figures.palette import series_styles
from mezzotint.sim.report.interactive import UNFILTERED_SERIES, Chart, picture, svg
from mezzotint.sim.report.runs import Run, latency_quantiles, load_runs

Fabricate = Callable[..., Path]


def rows_of(chart: Chart) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(chart.spec["data"]["values"]))


def axis(chart: Chart) -> dict[str, Any]:
    """Return the encoding of the chart's x axis."""
    found: dict[str, Any] = chart.spec["layer"][0]["encoding"]["x"]
    return found


def of_sizes(fabricate: Fabricate, tmp_path: Path, *sizes: int) -> list[Run]:
    for size in sizes:
        system = {"name": "nirvana", "cache": {"capacity": size, "shards": size // 50}}
        fabricate(f"n{size}", "nirvana", requests=20, config={"system": system})
    return load_runs([tmp_path])


@pytest.mark.parametrize("chart", ["cost", "latency", "slo", "throughput", "hits", "over_time"])
def test_every_figure_draws_all_its_series_in_their_colours(chart: str, sweep: list[Run]) -> None:
    panels = getattr(charts, chart)(sweep)
    systems = {"nirvana", "modm-throughput"} if chart == "hits" else {run.series for run in sweep}
    assert panels
    assert all(set(rows_of(panel).series) - {UNFILTERED_SERIES} == systems for panel in panels)
    image = svg(picture(panels, series_styles(sweep))).decode().lower()
    assert chart == "hits" or all(style.colour.lower() in image for style in series_styles(sweep).values())


def test_chart_has_the_values_of_the_runs(fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "nirvana"):
        fabricate(system, system, rate_rpm=14.0, requests=300)
    runs = load_runs([tmp_path])
    late = rows_of(charts.slo(runs)[0]).set_index("series").value
    usd = rows_of(charts.cost(runs)[0]).set_index("series").usd
    for run in runs:
        assert late[run.series] == pytest.approx(run.number("slo", "2x", "violation_rate"), rel=1e-5)
        assert usd[run.series] == pytest.approx(run.number("cost_usd", "per_image"), rel=1e-5)


def test_latency_distributions_are_nondecreasing_and_end_at_one(sweep: list[Run]) -> None:
    panels = charts.latency(sweep)
    assert len(panels) == 2
    for panel in panels:
        for _, curve in rows_of(panel).groupby("series"):
            assert (np.diff(curve.latency_s) >= 0).all()
            assert list(curve.share.iloc[[0, -1]]) == [0, 1]
            assert (curve.low <= curve.latency_s).all()
            assert (curve.latency_s <= curve.high).all()
        limits = [layer["data"]["values"] for layer in panel.spec["layer"] if "data" in layer]
        assert [limit["at"] for limit in limits[0]] == pytest.approx([183.0, 366.0])


def test_stacked_hit_shares_sum_to_one(sweep: list[Run]) -> None:
    for panel in charts.hits(sweep):
        assert rows_of(panel).groupby("series").share.sum().to_dict() == pytest.approx(
            {"nirvana": 1.0, "modm-throughput": 1.0}, abs=1e-5
        ), "vanilla has no cache"


def test_numbers_are_drawn_against_the_rate(sweep: list[Run]) -> None:
    for panel in (*charts.slo(sweep), *charts.throughput(sweep)):
        rows = rows_of(panel)
        assert set(rows.x) == {6.0, 16.0}
        assert (rows[rows.series != UNFILTERED_SERIES].low <= rows[rows.series != UNFILTERED_SERIES].high).all()
    assert [panel.title for panel in charts.slo(sweep)] == ["SLO 2x standalone latency", "SLO 4x standalone latency"]


def test_no_cluster_data_gives_no_chart_over_time(sweep: list[Run]) -> None:
    assert len(charts.over_time(sweep)) == 4
    for run in sweep:
        (run.path / "cluster.parquet").unlink()
    assert charts.over_time(sweep) == []


def test_series_without_a_gauge_still_shows_the_other(fabricate: Fabricate, tmp_path: Path) -> None:
    for system, gone in (("vanilla", "busy"), ("nirvana", "queued")):
        path = fabricate(system, system, requests=50) / "cluster.parquet"
        pq.write_table(pq.read_table(path).drop_columns([gone]), path)
    queued, busy = charts.over_time(load_runs([tmp_path]))
    assert (set(rows_of(queued).series), set(rows_of(busy).series)) == ({"vanilla"}, {"nirvana"})


def test_names_are_shown_verbatim(fabricate: Fabricate, tmp_path: Path) -> None:
    for index, name in enumerate((r"$\frac{", "_hidden", "a <b> & 'c'")):
        fabricate(str(index), name, requests=50)
    runs = load_runs([tmp_path])
    image = svg(picture(charts.latency(runs), series_styles(runs))).decode()
    assert all(name in image for name in (r"$\frac{", "_hidden", "a &lt;b&gt; &amp; "))


def test_one_system_at_six_sizes_is_one_curve(fabricate: Fabricate, tmp_path: Path) -> None:
    """A system without the number is level."""
    fabricate("v", "vanilla", requests=20)
    runs = of_sizes(fabricate, tmp_path, 1000, 200, 50, 4000, 100, 10000)
    for panel in (charts.slo(runs)[0], charts.throughput(runs)[0]):
        curves = rows_of(panel).groupby("series")
        assert list(curves.get_group("nirvana").x) == [50, 100, 200, 1000, 4000, 10000]
        assert list(curves.get_group("vanilla").x) == [50, 10000]
        assert len(set(curves.get_group("vanilla").value)) == 1
        assert axis(panel)["axis"]["title"] == "cache.capacity"


def test_wide_axis_is_logarithmic_with_few_ticks(fabricate: Fabricate, tmp_path: Path) -> None:
    """Sizes over decades, too many to label: an even selection is labelled, always with both ends."""
    sizes = [10 * 2**power for power in range(11)]
    x = axis(charts.throughput(of_sizes(fabricate, tmp_path, *sizes))[0])
    assert x["scale"]["type"] == "log"
    ticks = x["axis"]["values"]
    assert (ticks[0], ticks[-1]) == (sizes[0], sizes[-1])
    assert 2 <= len(ticks) <= 7
    assert len({sizes.index(high) - sizes.index(low) for low, high in pairwise(ticks)}) == 1


def test_many_latency_distributions_are_rows_of_ranges(fabricate: Fabricate, tmp_path: Path) -> None:
    for index in range(9):
        fabricate(f"{index}", f"system-{index}", requests=20 + 5 * index)
    runs = load_runs([tmp_path])
    (panel,) = charts.latency(runs)
    rows = rows_of(panel).set_index("series")
    assert list(rows.index) == [run.series for run in runs]
    for run in runs:
        quantiles = latency_quantiles(run, np.array([0.1, 0.5, 0.9, 0.99]))
        assert list(rows.loc[run.series]) == pytest.approx(quantiles, rel=0.01)
    (tmp_path / "8/requests.parquet").unlink()
    assert "share" in rows_of(charts.latency(runs)[0]), "eight can be told apart as curves"


def test_limit_that_no_run_of_a_load_has_gets_no_panel(fabricate: Fabricate, tmp_path: Path) -> None:
    """Sizes 1, 2 and 3 at two loads; only the lower load has 4x."""

    def once(summary: dict[str, Any]) -> None:
        del summary["slo"]["4x"]

    for rate, change in ((6.0, None), (16.0, once)):
        for size in (1, 2, 3):
            config = {"system": {"name": "nirvana", "cache": {"capacity": size}}}
            fabricate(f"{rate}-{size}", rate_rpm=rate, requests=20, change=change, config=config)
    titles = [panel.title for panel in charts.slo(load_runs([tmp_path]))]
    assert titles == ["SLO 2x, 6 rpm", "SLO 2x, 16 rpm", "SLO 4x, 6 rpm"]
