"""The canonical trace: what it accepts and refuses, its messages, and its digest."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.table import trace as trace_module
from mezzotint.traces.table.columns import LATER, SCHEMA
from mezzotint.traces.table.digest import content_digest
from mezzotint.traces.table.trace import Trace, make, read, write

requests = st.fixed_dictionaries(
    {
        "arrival_s": st.floats(0, 1e9),
        "user_id": st.none() | st.text(max_size=4),
        "prompt": st.none() | st.text(max_size=12),
        "width": st.none() | st.integers(1, 4096),
        "height": st.none() | st.integers(1, 4096),
        "frames": st.none() | st.integers(1, 999),
        "steps": st.none() | st.integers(1, 999),
        "images": st.none() | st.integers(1, 8),
        "base_model": st.none() | st.text(max_size=3),
        "controlnets": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "loras": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "seed": st.none() | st.integers(0, 2**63 - 1),
        "slo_s": st.none() | st.floats(1e-3, 1e9),
        "priority": st.none() | st.integers(0, 9),
    }
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    rows = sorted(rows, key=lambda row: row["arrival_s"])
    return pa.Table.from_pylist([{"request_id": str(i), **row} for i, row in enumerate(rows)], schema=SCHEMA)


traces = st.lists(requests, min_size=1, max_size=12).map(table_of)


def test_trace_exposes_its_columns(trace: Trace) -> None:
    assert len(trace) == 3
    assert trace.span_s == 1.5
    assert trace.arrival_s.tolist() == [0.0, 1.5, 1.5]
    assert trace.arrival_s.dtype == np.float64
    assert trace.column("width").tolist() == [512, 768, -1]
    assert trace.column("seed").tolist() == [0, 2**32 - 1, -1]
    assert trace.column("steps").dtype == np.int64
    assert trace.prompts().to_pylist() == ["a red fox", "", None]


@given(table=traces)
def test_codes_are_equal_where_the_values_are(table: pa.Table) -> None:
    """An empty text is none, the order of a list does not count, and an empty list is not none."""

    def value(cell: Any) -> Any:
        return sorted(name or "" for name in cell) if isinstance(cell, list) else cell or (None if cell == "" else cell)

    made = make(table, name="made", source="tests")
    for name in SCHEMA.names:
        values = [value(cell) for cell in made.table.column(name).to_pylist()]
        codes = made.codes(name).tolist()
        for first, first_code in zip(values, codes, strict=True):
            assert (first_code == -1) == (first is None)
            assert [first == other for other in values] == [first_code == code for code in codes]


@given(names=st.lists(st.none() | st.sampled_from(["", "a", "b", "c", "d"]), min_size=1), rows=st.integers(1, 5))
def test_texts_encoded_in_lots_have_the_codes_of_all_at_once(names: list[str | None], rows: int) -> None:
    """Codes count the different texts by their first request, whatever lies in one lot."""
    ids = [str(row) for row in range(len(names))]
    made = make({"request_id": ids, "arrival_s": [0.0] * len(ids), "user_id": names}, name="n", source="s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_module, "ENCODED", rows)
        found = made.encoded("user_id")
    expected = pa.array([name or None for name in names], pa.string()).dictionary_encode()
    assert found.equals(expected)


def test_every_column_carries_its_unit(trace: Trace, tmp_path: Path) -> None:
    write(trace, tmp_path / "t.parquet")
    for field in pq.read_schema(tmp_path / "t.parquet"):
        assert field.metadata[b"unit"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=traces, rows=st.integers(1, 5), compression=st.sampled_from(["none", "zstd", "snappy"]))
def test_trace_round_trips_through_parquet(table: pa.Table, rows: int, compression: str, tmp_path: Path) -> None:
    trace = make(table, name="n", source="s", notes={"synthetic": True, "skipped": 3})
    written = write(trace, tmp_path / "t.parquet")
    back = read(tmp_path / "t.parquet")
    assert back == written
    assert back.table.to_pylist() == table.to_pylist()
    # the same table in another layout is the same content
    raw = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(raw, tmp_path / "other.parquet", row_group_size=rows, compression=compression)
    assert read(tmp_path / "other.parquet").digest == trace.digest


@settings(max_examples=80)
@given(rows=st.lists(requests, min_size=2, max_size=6), data=st.data())
def test_digest_depends_on_every_cell(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    table = table_of(rows)
    name = data.draw(st.sampled_from(SCHEMA.names[2:]))
    row = data.draw(st.integers(0, len(rows) - 1))
    changed = table.to_pylist()
    was = changed[row][name]
    other = ["x"] if name in ("controlnets", "loras") else "x" if isinstance(was, str) else 7
    if pa.types.is_string(SCHEMA.field(name).type):
        other = "x"
    changed[row][name] = None if was == other else other
    assert content_digest(pa.Table.from_pylist(changed, schema=SCHEMA)) != content_digest(table)


def test_digest_distinguishes_null_empty_and_list_boundaries() -> None:
    def digest(**cells: Any) -> str:
        return make({"request_id": ["a", "b"], "arrival_s": [0, 1], **cells}, name="", source="").digest

    seen = {
        digest(prompt=["", None]), digest(prompt=[None, ""]), digest(prompt=["ab", "c"]),
        digest(prompt=["a", "bc"]), digest(loras=[["a"], ["b"]]), digest(loras=[["a", "b"], []]),
        digest(loras=[["a", "b"], None]), digest(loras=[["ab"], []]), digest(loras=[[None, ""], []]),
    }  # fmt: skip
    assert len(seen) == 9
    assert digest(arrival_s=[0.0, 1.0]) == digest(arrival_s=[-0.0, 1.0])


def test_digest_depends_on_rows_beyond_one_block() -> None:
    count = 70_000
    columns = {"request_id": [str(i) for i in range(count)], "arrival_s": np.arange(count, dtype=float)}
    trace = make(columns, name="n", source="s")
    changed = {**columns, "width": [None] * (count - 1) + [512]}
    assert make(changed, name="n", source="s").digest != trace.digest
    assert content_digest(pa.concat_tables([trace.table.slice(0, 3), trace.table.slice(3)])) == trace.digest


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("width", [512, -512, 512], "t: row 1, column width: found -512, expected a positive integer"),
        ("seed", [1, 1, -5], "t: row 2, column seed: found -5"),
        ("frames", [1, 0, 1], "t: row 1, column frames: found 0, expected a positive integer"),
        ("slo_s", [1.0, 2.0, 0.0], r"t: row 2, column slo_s: found 0\.0, expected finite seconds above 0, or null"),
        ("slo_s", [float("inf"), 2.0, 1.0], "t: row 0, column slo_s: found inf"),
        ("priority", [1, -1, 0], "t: row 1, column priority: found -1, expected an integer, 0 or more, or null"),
        ("arrival_s", [0.0, float("nan"), 1.0], "t: row 1, column arrival_s: found nan"),
        ("arrival_s", [-1.0, 0.0, 1.0], r"t: row 0, column arrival_s: found -1\.0"),
        ("arrival_s", [0.0, None, 1.0], "t: row 1, column arrival_s: found null, expected a value"),
        ("arrival_s", [0.0, 2.0, 1.0], r"t: row 2, column arrival_s: found 1\.0, expected at least 2\.0"),
        ("request_id", ["a", None, "c"], "t: row 1, column request_id: found null"),
        ("request_id", ["a", "b", "a"], "t: row 2, column request_id: found 'a', which row 0 has already"),
        ("width", [512, 2**31, 512], "t: row 1, column width: found 2147483648, expected int32"),
        ("width", [512, 512], "t: column width: found 2 values, expected 3"),
        ("loras", [["a"], "b", None], "t: row 1, column loras: found 'b'"),
        ("wdith", [1, 1, 1], "t: column wdith: not a column of a trace"),
    ],
)
def test_invalid_cell_is_named(columns: dict[str, Any], column: str, cells: list[Any], message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        make({**columns, column: cells}, name="n", source="s", where="t")
    assert "\n" not in str(caught.value)
    assert caught.value.args[0].count(";") >= 1 or "expected" in str(caught.value)


def test_file_with_other_columns_is_refused(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(trace, path)
    table = pq.read_table(path)
    wide = pa.array([1, 2, 3])
    for changed, message in (
        (table.append_column("cfg", wide), "column cfg: not a column of a trace"),
        (table.drop_columns("request_id"), "column request_id: missing"),
        (table.drop_columns("seed"), "the file was changed"),
        (table.set_column(4, "width", wide), "column width: found type int64, expected int32"),
        (table.append_column("width", wide), "column width: found type int64, expected int32"),
    ):
        pq.write_table(changed, path)
        with pytest.raises(TraceError, match=message):
            read(path)


def test_file_that_is_no_trace_is_refused(trace: Trace, tmp_path: Path) -> None:
    path = write(trace, tmp_path / "t.parquet").path
    assert path is not None
    whole = path.read_bytes()
    with pytest.raises(TraceError, match="no such file"):
        read(tmp_path / "absent.parquet")
    with pytest.raises(TraceError, match="is a folder"):
        read(tmp_path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"t\.parquet: cannot be read as Parquet"):
        read(path)
    pq.write_table(trace.table, path)
    with pytest.raises(TraceError, match="mezzotint trace import"):
        read(path)


def test_flipped_byte_is_always_detected(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(trace, path)
    whole = path.read_bytes()
    for place in range(4, len(whole) - 8, 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        try:
            back = read(path)
        except TraceError:
            continue
        assert back.table.to_pylist() == trace.table.to_pylist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "found trace layout 2, expected 1"),
        ({"digest": "0" * 64}, "the file was changed after it was written"),
        ({"digest": None}, "lacks a valid 'digest'"),
        ({"notes": []}, "lacks a valid 'notes'"),
    ],
)
def test_false_metadata_is_refused(trace: Trace, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.parquet"
    write(trace, path)
    table = pq.read_table(path)
    about = {**json.loads(table.schema.metadata[b"mezzotint"]), **change}
    pq.write_table(table.replace_schema_metadata({"mezzotint": json.dumps(about)}), path)
    with pytest.raises(TraceError, match=message):
        read(path)
    pq.write_table(table.replace_schema_metadata({"mezzotint": "{"}), path)
    with pytest.raises(TraceError, match="metadata is damaged"):
        read(path)


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    count = 50_000
    columns = {
        "request_id": [str(i) for i in range(count)],
        "arrival_s": np.sort(np.random.default_rng(0).random(count)),
    }
    big = make(columns, name="n", source="s")
    path = tmp_path / "t.parquet"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(TraceError, match=r"t\.parquet: cannot be written"):
            write(big, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize("column", LATER)
def test_trace_without_a_later_column_keeps_its_digest(column: str, tmp_path: Path) -> None:
    """An all-null column does not enter the digest, and a file from before the column is read as before."""
    trace = make({"request_id": ["a"], "arrival_s": [0.0]}, name="n", source="s")
    assert trace.digest == "8c6335befe532faf1a2282b28645d6a5d0b33964b76fd14b4d101d24d2da4503"
    assert content_digest(trace.table.drop_columns([column])) == trace.digest
    write(trace, tmp_path / "t.parquet")
    whole = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(whole.drop_columns([column]), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").table.schema.names == SCHEMA.names
    value = "{}" if pa.types.is_string(SCHEMA.field(column).type) else 1
    assert make({"request_id": ["a"], "arrival_s": [0.0], column: [value]}, name="n", source="s").digest != trace.digest


def test_too_many_rows_are_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows, all alike, in some kilobytes of file: every request still has a name of its own."""
    rows = pa.table({field.name: pa.repeat(None, 10**6).cast(field.type) for field in SCHEMA})
    about = {"schema": 1, "name": "b", "source": "s", "notes": {}, "digest": "0" * 64}
    pq.write_table(rows.replace_schema_metadata({"mezzotint": json.dumps(about)}), tmp_path / "t.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("was read"))
    with pytest.raises(TraceError, match=r"t.parquet: found 1,000,000 rows, at least [\d,]+ bytes in memory, in "):
        read(tmp_path / "t.parquet")
