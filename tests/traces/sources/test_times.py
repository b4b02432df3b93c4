"""Impossible times are refused where they are read, with their row; all others are read exactly."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.describe.arrivals import arrival_statistics
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.delimited import Csv
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.ingest import store
from mezzotint.traces.table.trace import Trace, read
from mezzotint.traces.table.validation import LONGEST_S
from tests.traces.lab import parquet_bytes

NO_RNG = np.random.default_rng(0)


def csv(tmp_path: Path, cells: list[str], arrival: str) -> Trace:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s\n" + "\n".join(cells) + "\n")
    written = store(Csv(path=str(path), arrival=arrival).read(NO_RNG), tmp_path / "t.parquet")  # type: ignore[arg-type]
    return read(written.path)


@pytest.mark.parametrize(
    ("arrival", "cells", "message"),
    [
        (
            "seconds",
            ["1660000000000", "1660000060000"],
            r"row 0, column arrival_s: found 16.*--arrival unix, mill.* unix-ms",
        ),
        ("unix", ["1660000000", "1660000060000"], r"row 1, .*between 1900 and 2100 .*unix-ms"),
        ("auto", ["2022-01-01", "9999-01-01"], r"row 1, .*9999-01-01.* between 1900 and 2100"),
        ("auto", ["2022-01-01", "1970-01-01"], r"row 0, .*52 years after that of row 1, expected at most 1e\+09 s"),
    ],
)
def test_implausible_time_is_refused_with_its_row(tmp_path: Path, arrival: str, cells: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=r"t\.csv: " + message) as caught:
        csv(tmp_path, cells, arrival)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "t.parquet").exists()


def test_out_of_calendar_time_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "t.parquet").write_bytes(parquet_bytes(timestamp=pa.array([0, 2**62], pa.timestamp("us", "UTC"))))
    with pytest.raises(TraceError, match=r"row 1, column timestamp: .* between 1900 and 2100"):
        LOGS["diffusiondb"](path=str(tmp_path / "t.parquet")).load(NO_RNG)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=9))
def test_milliseconds_and_seconds_give_the_same_trace(tmp_path: Path, ticks: list[int]) -> None:
    """Whole milliseconds of 31.7 years: nothing in that range is refused or moved by a microsecond."""
    start = 1_000_000_000_000
    in_ms = csv(tmp_path, [str(start + tick) for tick in ticks], "unix-ms").arrival_s
    in_s = csv(tmp_path, [f"{(start + tick) / 1000:.3f}" for tick in ticks], "unix").arrival_s
    np.testing.assert_array_equal(in_ms, in_s)
    np.testing.assert_allclose(in_ms, (np.sort(ticks) - min(ticks)) / 1000, rtol=0, atol=1e-6)


@given(st.lists(st.floats(0, 20_000), min_size=25, max_size=60).map(sorted))
def test_dispersion_is_variance_over_mean_of_the_counts(arrivals: list[float]) -> None:
    since = np.array(arrivals) - arrivals[0]
    for window_s, value in arrival_statistics(np.array(arrivals)).dispersion.items():
        whole = int(since[-1] // window_s)
        counts = np.bincount((since[since < whole * window_s] // window_s).astype(int), minlength=whole)
        assert value == pytest.approx(counts.var(ddof=1) / counts.mean())


def test_longest_trace_is_described_in_little_memory() -> None:
    import tracemalloc

    tracemalloc.start()
    arrival_statistics(np.linspace(0.0, LONGEST_S, 100))
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
