"""Delimited text: the roles of columns, the formats of times, and faults with their cell."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.delimited import Csv
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace


def imported(folder: Path, text: str, **options: Any) -> Trace:
    (folder / "t.csv").write_text(text, encoding="utf-8")
    return Csv(path=folder / "t.csv", **options).load(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text,timestamp,user", {"prompt": "text", "arrival_s": "timestamp", "user_id": "user"}),
        ("Caption,Created At,User-Name", {"prompt": "Caption", "arrival_s": "Created At", "user_id": "User-Name"}),
        ("prompt,time,text", {"prompt": "prompt", "arrival_s": "time"}),  # the canonical name goes first
        ("seconds,time,text", {"prompt": "text", "arrival_s": "time"}),
    ],
)
def test_common_column_names_are_mapped_automatically(header: str, columns: dict[str, str], tmp_path: Path) -> None:
    assert imported(tmp_path, f"{header}\n1,2,3\n").notes["columns"] == columns


def test_column_map_overrides_names_and_may_map_to_none(tmp_path: Path) -> None:
    table = "text,time,made\na fox,3,4\n"
    assert imported(tmp_path, table, columns={"arrival_s": "made"}).arrival_s.tolist() == [4.0]
    assert imported(tmp_path, table, columns={"arrival_s": ""}).notes["arrival_s"] == ORDER_ONLY
    mapped = imported(tmp_path, table, columns={"user_id": "text"}).notes["columns"]
    assert mapped == {"user_id": "text", "arrival_s": "time"}  # one column is not taken twice


def test_csv_is_imported_with_a_column_map(tmp_path: Path) -> None:
    text = (
        "when,text,w,height,loras,extra,steps\n"
        "2024-11-15 16:57:51,second,512.0,512,a; b,x,50\n"
        '2024-11-15 16:57:50.5,"first, with a comma and a\nnew line",768,,,y,\n'
    )
    trace = imported(tmp_path, text, columns={"arrival_s": "when", "prompt": "text", "width": "w"})
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert trace.prompts().to_pylist() == ["first, with a comma and a\nnew line", "second"]
    assert trace.table.column("request_id").to_pylist() == ["1", "0"]
    assert trace.table.column("loras").to_pylist() == [None, ["a", "b"]]
    assert (trace.column("width").tolist(), trace.column("height").tolist()) == ([768, 512], [-1, 512])
    assert (trace.notes["columns_left_out"], trace.name) == (["extra"], "t")


@pytest.mark.parametrize(
    ("cells", "written"),
    [
        (("2022-08-14 00:45:00", "2022-08-14 00:46:30"), "ISO 8601 dates"),
        (("2022-08-14T02:45:00+02:00", "2022-08-14 00:46:30Z"), "ISO 8601 dates"),
        (("1660000000", "1660000090"), "seconds since 1970"),
        (("1660000000000", "1660000090000"), "milliseconds since 1970"),
        (("5", "95"), "seconds of the file's own clock"),
    ],
)
def test_time_formats_are_detected(cells: tuple[str, str], written: str, tmp_path: Path) -> None:
    trace = imported(tmp_path, "time\n" + "\n".join(cells) + "\n")
    assert np.diff(trace.arrival_s).tolist() == [90.0]
    assert trace.notes["arrival_written"] == written


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=9))
def test_milliseconds_and_seconds_give_the_same_trace(tmp_path: Path, ticks: list[int]) -> None:
    """Whole milliseconds of 31.7 years: nothing in that range is refused or moved by a microsecond."""
    start = 1_000_000_000_000
    ms = [str(start + tick) for tick in ticks]
    in_ms = imported(tmp_path, "\n".join(["arrival_s", *ms, ""]), arrival="unix-ms").arrival_s
    seconds = [f"{int(cell) / 1000:.3f}" for cell in ms]
    in_s = imported(tmp_path, "\n".join(["arrival_s", *seconds, ""]), arrival="unix").arrival_s
    np.testing.assert_array_equal(in_ms, in_s)
    np.testing.assert_allclose(in_ms, (np.sort(ticks) - min(ticks)) / 1000, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "it is empty"),
        ("prompt,arrival_s\n", {}, "found no rows"),
        ("prompt,arrival_s\na,1\nb,2,3\n", {}, r"row 1: found 3 cells \(b,2,3\), expected 2 as in"),
        ("prompt,prompt\na,1\n", {}, "'prompt' twice"),
        ('arrival_s,prompt\n1,a\n2,"b\n3,c\n4,d\n', {}, "row 1: found a quote that is opened and never closed"),
        ("prompt,time,created_at\na,1,2\n", {}, "columns time, created_at, each of .*--map arrival_s=time"),
        ("text\na\n", {"columns": {"prompt": "txt"}}, "column 'txt' is missing, found text"),
        ("text\na\n", {"columns": {"promt": "text"}}, "cannot map 'text' to 'promt'"),
        ("text\na\n", {"arrival": "noon"}, "arrival='noon', expected one of auto"),
        ("text\na\n", {"limits": Limits(max_prompt_bytes=0)}, "max_prompt_bytes=0"),
        ("text\na\n", {"delimiter": "--"}, "delimiter='--', expected one ASCII character"),
        ("arrival_s\n1\nsoon\n", {}, "row 1, column arrival_s: found 'soon', expected a number"),
        ("prompt,arrival_s\na,1\nb,\n", {}, "row 1, column arrival_s: found null"),
        ("arrival_s,seed\n1,1\n2,99999999999999999999\n", {}, "row 1, column seed: found '9999"),
        ("width,arrival_s\n512,1\n-512,2\n", {}, "row 1, column width: found -512, expected a positive"),
        ("width,arrival_s\n512,nan\n", {}, "row 0, column arrival_s: found nan, expected finite seconds"),
        ("loras,arrival_s\na,1\na;b\0,2\n", {}, "row 1, column loras: found .* without NUL"),
        ("request_id,arrival_s\na,2\nb,1\na,1\n", {}, "row 2, column request_id: found 'a', which row 0 has"),
        ("arrival_s\n2024-01-01T00:00+02:00\n2024-01-01\n", {}, "row 1, column arrival_s: .* with no zone"),
        ("arrival_s\n1660000000000\n", {"arrival": "seconds"}, "row 0, .*--arrival unix, mill.* unix-ms"),
        ("arrival_s\n1660000000\n1660000060000\n", {"arrival": "unix"}, "row 1, .*between 1900 and 2100 .*unix-ms"),
        ("arrival_s\n2022-01-01\n9999-01-01\n", {}, "row 1, .*9999-01-01.* between 1900 and 2100"),
        ("arrival_s\n2022-01-01\n1970-01-01\n", {}, r"row 0, .*52 years after that of row 1, expected at most 1e\+09"),
    ],
)
def test_malformed_csv_is_refused(text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        imported(tmp_path, text, **options)
    assert "t.csv" in str(caught.value) or "limits" in options
    assert "\n" not in str(caught.value)
