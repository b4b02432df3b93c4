"""Published tables become canonical traces, and malformed ones are refused by row and column."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.describe import describe_trace
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.delimited import Csv
from mezzotint.traces.sources.file import File
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace, about, write

TextFile = Callable[..., Path]


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def published(**columns: Any) -> pa.Table:
    """DiffusionDB's own types, as its metadata.parquet has them."""
    minutes = np.array(["2022-08-10T00:02", "2022-08-10T00:00", "2022-08-10T00:02", "NaT"], "datetime64[us]")
    base: dict[str, Any] = {
        "image_name": ["w.png", "x.png", "y.png", "z.png"],
        "prompt": ["a", "b", "c", "d"],
        "part_id": pa.array([1, 1, 2, 2], pa.uint16()),
        "seed": pa.array([2**32 - 1, 1, 2, 3], pa.uint32()),
        "step": pa.array([50, 50, 150, 50], pa.uint16()),
        "cfg": pa.array([7.0, 7.0, 7.0, 7.0], pa.float32()),
        "sampler": pa.array([8, 8, 8, 8], pa.uint8()),
        "width": pa.array([512, 512, 768, 512], pa.uint16()),
        "height": pa.array([512, 640, 512, 512], pa.uint16()),
        "user_name": ["u", "deleted_account", None, "u"],
        "timestamp": pa.array(minutes, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "image_nsfw": pa.array([0.1, 2.0, 0.9, 0.1], pa.float32()),
        "prompt_nsfw": pa.array([0.1, 0.1, 0.1, 0.1], pa.float32()),
    }
    return pa.table({name: value for name, value in {**base, **columns}.items() if value is not None})


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., str]:
    def save(**columns: Any) -> str:
        pq.write_table(published(**columns), tmp_path / "metadata.parquet")
        return str(tmp_path / "metadata.parquet")

    return save


def test_diffusiondb_sample_is_imported(data: Path) -> None:
    path = data / "diffusiondb" / "metadata_1k.csv"
    trace = LOGS["diffusiondb"](path=str(path)).load(seeded())
    described = describe_trace(trace).to_dict()
    assert len(trace) == 1000
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert described["users"]["count"] == 173
    assert described["prompts"]["distinct"] == 917
    assert described["prompts"]["repeat_same_user_share"] == 1.0
    assert described["sessions"]["requests_mean"] == pytest.approx(4.6, abs=0.05)
    assert described["sizes"]["most"]["512x512"] == 0.635
    assert described["span_s"] / 3600 == pytest.approx(6.7, abs=0.05)
    # every arrival lies in the minute that the table states for its row
    table = pd.read_csv(path)
    stamped = pd.to_datetime(table["timestamp"])
    minute = ((stamped - stamped.min()).dt.total_seconds() // 60).to_numpy()
    rows = trace.table.column("request_id").cast(pa.int64()).to_numpy()
    assert (np.floor(trace.arrival_s / 60) == minute[rows]).all()
    assert trace.prompts().to_pylist() == table["prompt"].iloc[rows].tolist()


def test_seed_moves_arrivals_only_within_their_minute(data: Path) -> None:
    path = str(data / "diffusiondb" / "metadata_1k.csv")
    one, same, other = (LOGS["diffusiondb"](path=path).load(seeded(seed)) for seed in (1, 1, 2))
    assert one.digest == same.digest != other.digest
    assert one.prompts() == other.prompts()
    assert abs(one.arrival_s - other.arrival_s).max() < 60.0


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(minutes=st.lists(st.integers(0, 5_000_000), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_arrivals_stay_in_their_minute_and_in_file_order(minutes: list[int], seed: int, tmp_path: Path) -> None:
    count = len(minutes)
    stamps = pa.array(np.array(minutes, np.int64) * 60_000_000).cast(pa.timestamp("us", "UTC"))
    plain = {name: pa.array([512] * count) for name in ("width", "height", "step", "seed")}
    texts = {name: pa.array(["x"] * count) for name in ("prompt", "user_name")}
    path = tmp_path / "m.parquet"
    pq.write_table(pa.table({"timestamp": stamps, **plain, **texts}), path)
    trace = LOGS["diffusiondb"](path=str(path)).load(seeded(seed))
    rows = trace.table.column("request_id").cast(pa.int64()).to_numpy()
    assert rows.tolist() == sorted(range(count), key=lambda row: minutes[row])
    expected = np.array(minutes)[rows] - min(minutes)
    assert (np.floor(trace.arrival_s / 60) == expected).all()


def test_diffusiondb_parquet_is_imported(parquet: Callable[..., str]) -> None:
    trace = LOGS["diffusiondb"](path=parquet()).load(seeded())
    table = trace.table.to_pydict()
    assert table["request_id"] == ["x.png", "w.png", "y.png"]
    assert table["user_id"] == [None, "u", None]
    assert table["seed"] == [1, 2**32 - 1, 2]
    assert table["steps"] == [50, 50, 150]
    assert (table["width"], table["height"]) == ([512, 512, 768], [640, 512, 512])
    assert (np.floor(trace.arrival_s / 60) == [0, 2, 2]).all()
    assert trace.notes["skipped"] == {"no timestamp": 1}
    assert trace.notes["licence"] == "CC0-1.0"


def test_diffusiondb_nsfw_filter_and_limit_select_rows(parquet: Callable[..., str]) -> None:
    def kept(**options: Any) -> list[str]:
        loaded = LOGS["diffusiondb"](path=parquet(), **options).load(seeded())
        names: list[str] = loaded.table.column("request_id").to_pylist()
        return names

    assert kept(nsfw_max=1.0) == ["w.png", "y.png"]  # 2.0 is the mark of Stable Diffusion's own filter
    assert kept(nsfw_max=0.5) == ["w.png"]
    assert kept(nsfw_max=2.0) == kept()
    assert kept(limit=2) == ["x.png", "w.png"]
    with pytest.raises(TraceError, match="no requests are left of 4"):
        kept(nsfw_max=0.0)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"limit": 1.5}, {"nsfw_max": float("nan")}])
def test_invalid_reader_argument_is_named(parquet: Callable[..., str], wrong: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=rf"{next(iter(wrong))}="):
        LOGS["diffusiondb"](path=parquet(), **wrong).load(seeded())


def test_reader_limits_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt\na cat\n")
    with pytest.raises(TraceError, match="max_prompt_bytes=0"):
        Csv(path=path, limits=Limits(max_prompt_bytes=0)).load(seeded())
    with pytest.raises(TraceError, match="arrival='noon', expected one of auto"):
        Csv(path=path, arrival="noon").load(seeded())  # type: ignore[arg-type]
    assert len(Csv(path=path, limits=Limits(max_prompt_bytes=1 << 40)).load(seeded())) == 1
    write(Csv(path=path).load(seeded()), tmp_path / "a.parquet")
    with pytest.raises(TraceError, match="requests=0"):
        File(path=tmp_path / "a.parquet", requests=0).load(seeded())


def test_missing_network_asks_for_a_downloaded_file() -> None:
    pytest.importorskip("datasets")
    # offline mode is read once, at import, so it takes a fresh process
    script = (
        "import numpy; from mezzotint.traces.sources.published import LOGS;"
        "LOGS['diffusiondb']().load(numpy.random.default_rng(0))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "download metadata.parquet" in ended.stderr.strip().splitlines()[-1]


def test_file_source_reads_all_rows_or_a_head(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(trace, path)
    assert about(path) == (len(trace), trace.digest)
    head = File(path=path, requests=2).load(seeded())
    assert head.table == trace.table.slice(0, 2)
    write(head, tmp_path / "head.parquet")
    assert File(path=tmp_path / "head.parquet").load(seeded()).digest == head.digest != trace.digest
    assert head.path is None, "what is kept of a part must not lie where that of the whole does"
    for requests in (len(trace), len(trace) + 1, None):
        assert File(path=path, requests=requests).load(seeded()).path == path


def test_csv_is_imported_with_a_column_map(text_file: TextFile) -> None:
    path = text_file(
        "when,text,w,height,loras,extra,steps\n"
        "2024-11-15 16:57:51,second,512.0,512,a; b,x,50\n"
        '2024-11-15 16:57:50.5,"first, with a comma and a\nnew line",768,,,y,\n'
    )
    columns = {"arrival_s": "when", "prompt": "text", "width": "w"}
    trace = Csv(path=str(path), columns=columns).load(seeded())
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert trace.prompts().to_pylist() == ["first, with a comma and a\nnew line", "second"]
    assert trace.table.column("request_id").to_pylist() == ["1", "0"]
    assert trace.table.column("loras").to_pylist() == [None, ["a", "b"]]
    assert trace.column("width").tolist() == [768, 512]
    assert trace.column("height").tolist() == [-1, 512]
    assert trace.notes["columns_left_out"] == ["extra"]
    assert trace.name == "t"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "cannot be read as delimited text"),
        ("prompt,arrival_s\n", {}, "found no rows"),
        ("prompt,arrival_s\na,1\nb,2,3\n", {}, r"row 1: found 3 cells \(b,2,3\), expected 2 as in"),
        ("prompt,prompt\na,1\n", {}, "'prompt' twice"),
        ("text\na\n", {"columns": {"prompt": "txt"}}, "column 'txt' is missing, found text"),
        ("text\na\n", {"columns": {"promt": "text"}}, "cannot map 'text' to 'promt'"),
        ("arrival_s\n1\nsoon\n", {}, "row 1, column arrival_s: found 'soon', expected a number"),
        ("prompt,arrival_s\na,1\nb,\n", {}, "row 1, column arrival_s: found null"),
        ("arrival_s,seed\n1,1\n2,99999999999999999999\n", {}, "row 1, column seed: found '9999"),
    ],
)
def test_malformed_csv_is_refused(text_file: TextFile, text: str, options: dict[str, Any], message: str) -> None:
    path = text_file(text)
    with pytest.raises(TraceError, match=message) as caught:
        Csv(path=str(path), **options).load(seeded())
    assert "t.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
