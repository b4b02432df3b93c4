"""Arrivals at the rates of a file: what is read, and the law of the counts."""

import gzip
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mezzotint
from mezzotint.traces.arrivals.rates import Rates, read_rates
from mezzotint.traces.error import TraceError

HOURS = "hour,invocations\n0,60\n1,0\n2,300\n3,120\n"
EXPECTED = np.array([60.0, 0.0, 300.0, 120.0])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rates.csv"
    path.write_text(HOURS)
    return path


@pytest.mark.parametrize(
    ("text", "per", "edges_s", "rate_hz"),
    [
        ("4\n5\n0\n", "s", [0, 1, 2, 3], [4, 5, 0]),
        ("requests_per_minute\n30\n60\n", None, [0, 60, 120], [0.5, 1.0]),
        (HOURS, None, [0, 3600, 7200, 10800, 14400], [1 / 60, 0, 1 / 12, 1 / 30]),
        ("time,rps\n0,2\n10,4\n40,1\n", None, [0, 10, 40, 70], [2, 4, 1]),
        ("time,value\n2026-11-01T10:00:00Z,0.5\n2026-11-01T10:05:00Z,1.5\n", "s", [0, 300, 600], [0.5, 1.5]),
        ("Time;Req/min\n1761991200000;0,6\n1761991260000;1,2\n", None, [0, 60, 120], [0.01, 0.02]),
        ("timestamp\tcount\tnode\n100\t30\ta\n160\t90\ta\n", None, [0, 60, 120], [0.5, 1.5]),
        ("minute,count\n3,60\n4,120\n7,30\n", None, [0, 60, 120, 240, 300], [1, 2, 0, 0.5]),
        ("minute,count\n3,60\n4,120\n6.5,30\n", None, [0, 60, 210, 360], [1, 0.8, 0.2]),
        ("0,1\n2,3\n", "h", [0, 2, 4], [1 / 3600, 3 / 3600]),
        ("1787000000000000000,1\n1787000002000000000,3\n", "h", [0, 2, 4], [1 / 3600, 3 / 3600]),
        ("date|requests_per_day\n30/11/2026 23:00|86400\n01/12/2026 00:00|0\n", None, [0, 3600, 7200], [1, 0]),
        ("date,requests\n46000,86400\n46001,0\n", None, [0, 86_400, 172_800], [1, 0]),
        ('{"t": 0, "rps": 1}\n{"t": 5, "rps": 3}\n', None, [0, 5, 10], [1, 3]),
        ("[[0, 1], [2, 3]]", "s", [0, 2, 4], [1, 3]),
        ("[1, 3]", "min", [0, 60, 120], [1 / 60, 3 / 60]),
        ('{"status": "success", "data": {"result": [{"values": [[9, "1"], [11, "3"]]}]}}', "s", [0, 2, 4], [1, 3]),
    ],
)
def test_rates_and_counts_are_read_with_their_units(
    tmp_path: Path, text: str, per: Any, edges_s: list[float], rate_hz: list[float]
) -> None:
    path = tmp_path / "rates.txt"
    path.write_text(text)
    edges, rates, _ = read_rates(path, per)
    assert edges == pytest.approx(edges_s)
    assert rates == pytest.approx(rate_hz)


@pytest.mark.parametrize("form", ["gzip", "utf-16", "parquet"])
def test_rates_of_every_kind_of_table_are_the_same(tmp_path: Path, form: str) -> None:
    text, path = "time;rps;node\n0;0,5;a\n10;1,5;a\n", tmp_path / "rates"
    if form == "parquet":
        pd.read_csv(io.StringIO(text), sep=";", decimal=",").to_parquet(path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode(form))
    edges, rates, (read_as, left_out) = read_rates(path)
    assert (edges.tolist(), rates.tolist()) == ([0, 10, 20], [0.5, 1.5])
    assert read_as.value.endswith("rps per s, time as seconds of the file's own clock")
    assert (left_out.value, left_out.source) == ("node", "rates has them (not read)")


@pytest.mark.parametrize("interpolation", ["constant", "linear"])
@pytest.mark.parametrize("dispersion", [0.0, 1.0, 6.0])
def test_expected_count_is_the_integral_with_the_stated_dispersion(
    file: Path, interpolation: Any, dispersion: float
) -> None:
    process = Rates(str(file), interpolation=interpolation, dispersion=dispersion)
    expected = EXPECTED if interpolation == "constant" else np.array([30.0, 150.0, 210.0, 120.0])
    runs = 400
    times = [process.schedule(np.zeros(2_000), np.random.default_rng(seed)).times for seed in range(runs)]
    counts = np.array([np.histogram(each, 3600.0 * np.arange(5))[0] for each in times])
    assert np.abs(counts.mean(axis=0) - expected).max() <= 5 * math.sqrt(max(dispersion, 0.1) * 300 / runs)
    busy = expected > 0
    ratio = counts.var(axis=0)[busy] / expected[busy]
    if dispersion:
        assert ratio.mean() == pytest.approx(dispersion, rel=0.15)
    else:
        assert np.abs(counts - expected).max() < 2


def test_linear_interpolation_rises_within_an_interval(file: Path) -> None:
    times = Rates(str(file), interpolation="linear", dispersion=0.0).schedule(np.zeros(2_000), np.random.default_rng(1))
    rising = times.times[(times.times >= 3600) & (times.times < 7200)]
    early, late = (rising < 5400).sum(), (rising >= 5400).sum()
    assert late / early == pytest.approx(3.0, rel=0.1)  # of a rate that rises from 0: three quarters in the later half


def test_run_ends_with_the_file_and_states_its_settings(file: Path) -> None:
    chosen: dict[str, Any] = {
        "system": "vanilla",
        "trace.requests": 900,
        "arrivals": "rates",
        "arrivals.path": str(file),
    }
    run = mezzotint.run(**chosen)
    assert 400 < len(run.requests) < 560
    assert run.requests["arrival_s"].max() < 14_400
    stated = {entry["what"]: entry["value"] for entry in run.summary["assumptions"]}
    assert stated["interpolation of the arrival rates"] == "constant"
    assert stated["variance over mean of the arrivals in an interval"] == 1.0


def test_saved_configuration_has_the_whole_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    run = mezzotint.run("system=vanilla", "trace.requests=20", "arrivals=rates", f"arrivals.path={file.name}")
    assert run.config["arrivals"]["path"] == str(file)


def test_scaled_rates_have_their_mean_and_a_short_trace_is_said(file: Path) -> None:
    process = Rates(str(file), rate_rpm=20.0, dispersion=0.0)
    schedule = process.schedule(np.zeros(9_000), np.random.default_rng(1))
    assert len(schedule.times) == pytest.approx(20 * 240, abs=1)
    short = process.schedule(np.zeros(100), np.random.default_rng(1))
    assert short.times.tolist() == schedule.times[:100].tolist()
    assert any(stated.what.startswith("share of the arrival rates") for stated in short.assumptions)


@pytest.mark.parametrize(
    ("text", "per", "message"),
    [
        ("4\n5\n", None, "no unit; say it with arrivals.per=s, min, h or d"),
        ("time,rps\n0,1\n1,2\n", "min", "rps is per s, found arrivals.per=min"),
        ("time,rps\n0,1\n1,x\n", None, "row 1, column rps: found 'x'"),
        ("time,rps\n0,1\n1,-2\n", None, "row 1, column rps: found '-2'"),
        ("time,rps\n0,1\n\n0,2\n", None, "row 1, column time: .*after that of the row before"),
        ("time,rps\n2026-11-01T10:00:00,1\n1:60,2\n", None, "row 1, column time: found '1:60'"),
        ("time,rps,errors_per_s\n0,1,0\n1,1,0\n", None, "expected times and one column of rates"),
        ("time,rps\n0,0\n1,0\n", None, "no rate above 0 in 2 rows"),
        ("time,rps\n0,1\n", None, "one row"),
        ('{"status": "success", "data": {"result": []}}', "s", "exactly one series"),
        ("\n", None, "is empty"),
    ],
)
def test_table_without_rates_is_refused(tmp_path: Path, text: str, per: Any, message: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=f"rates.csv.*{message}"):
        Rates(str(path), per).schedule(np.zeros(10), np.random.default_rng(1))


def test_settings_that_mean_nothing_are_refused(file: Path) -> None:
    with pytest.raises(TraceError, match=r"dispersion=0.5, expected 0 .*1 \(Poisson\)"):
        Rates(str(file), dispersion=0.5)
    with pytest.raises(TraceError, match=r"no request arrives, with .* expected in 14400 s"):
        Rates(str(file), rate_rpm=1e-8).schedule(np.zeros(10), np.random.default_rng(1))
