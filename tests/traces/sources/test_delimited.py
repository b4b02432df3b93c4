"""Delimited text: what Arrow's threads hold, and which columns are taken for which."""

import gzip
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sim.commands import run_command
from traces.error import TraceError
from traces.sources.delimited import Csv
from traces.sources.formats import delimited
from traces.sources.formats.delimited import read_delimited, read_header
from traces.table.ingest import ORDER_ONLY
from traces.table.limits import Limits
from traces.table.trace import Trace

NOT_UTF8 = b"p,t\n\xff\xfe\xfa,1\n"


def read_all(path: Path) -> None:
    limits = Limits()
    for _ in read_delimited(path, limits, read_header(path, limits)):
        pass


@pytest.mark.parametrize("fails", [True, False])
def test_a_reading_ends_after_arrow_has_released_the_file(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_bytes(NOT_UTF8)
    lent: list[weakref.ref[Any]] = []

    def slow(file: Any, *_: Any) -> Any:  # as Arrow at its worst: a thread is the last to hold file and block
        block = file.read(1 << 10)
        lent.extend((weakref.ref(file), weakref.ref(block)))
        threading.Thread(target=lambda *held: time.sleep(0.2), args=(file, block)).start()
        if fails:
            raise pa.ArrowInvalid("In CSV column #0: Row #2: CSV conversion error to string: invalid UTF8 data")
        return pa.RecordBatchReader.from_batches(pa.schema({"p": pa.string(), "t": pa.string()}), [])

    monkeypatch.setattr(delimited.pa.csv, "open_csv", slow)
    if fails:
        with pytest.raises(TraceError, match="row 0, column p: found bytes that are not UTF-8"):
            read_all(tmp_path / "x.csv")
    else:
        read_all(tmp_path / "x.csv")
    assert [each() for each in lent] == [None, None]


@pytest.mark.parametrize("content", [NOT_UTF8, gzip.compress(bytes(range(48, 90)) * 100_000)[:-30]])
def test_an_error_is_told_at_once(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    start = time.monotonic()
    with pytest.raises(TraceError):
        read_all(tmp_path / "x.csv")
    assert time.monotonic() - start < delimited.RELEASE_S / 2


def imported(folder: Path, text: str, **options: Any) -> Trace:
    (folder / "x.csv").write_text(text)
    return Csv(path=folder / "x.csv", **options).load(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text,timestamp,user", {"prompt": "text", "arrival_s": "timestamp", "user_id": "user"}),
        ("Caption,Created At,User-Name", {"prompt": "Caption", "arrival_s": "Created At", "user_id": "User-Name"}),
        ("prompt,time,text", {"prompt": "prompt", "arrival_s": "time"}),  # the canonical name goes first
        ("seconds,time,text", {"prompt": "text", "arrival_s": "time"}),
    ],
)
def test_usual_names_are_mapped_by_themselves(header: str, columns: dict[str, str], tmp_path: Path) -> None:
    assert imported(tmp_path, f"{header}\n1,2,3\n").notes["columns"] == columns


def test_a_map_goes_before_names_and_may_say_none(tmp_path: Path) -> None:
    table = "text,time,made\na fox,3,4\n"
    assert imported(tmp_path, table, columns={"arrival_s": "made"}).arrival_s.tolist() == [4.0]
    assert imported(tmp_path, table, columns={"arrival_s": ""}).notes["arrival_s"] == ORDER_ONLY
    mapped = imported(tmp_path, table, columns={"user_id": "text"}).notes["columns"]
    assert mapped == {"user_id": "text", "arrival_s": "time"}  # one column is not taken twice


def test_two_columns_that_may_be_one_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"x.csv: found the columns time, created_at, each of .*--map arrival_s=time"):
        imported(tmp_path, "prompt,time,created_at\na,1,2\n")


@pytest.mark.parametrize(
    ("cells", "written"),
    [
        (("2022-08-14 00:45:00", "2022-08-14 00:46:30"), "ISO 8601 dates"),
        (("1660000000", "1660000090"), "seconds since 1970"),
        (("1660000000000", "1660000090000"), "milliseconds since 1970"),
        (("5", "95"), "seconds of the file's own clock"),
    ],
)
def test_times_are_read_as_they_are_written(cells: tuple[str, str], written: str, tmp_path: Path) -> None:
    trace = imported(tmp_path, "time\n" + "\n".join(cells) + "\n")
    assert np.diff(trace.arrival_s).tolist() == [90.0]
    assert trace.notes["arrival_written"] == written


def test_the_import_prints_what_it_mapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("text,created_at\na fox,2022-08-14 00:45:00\n")
    assert run_command("trace import", ["csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.parquet")]) == 0
    said = capsys.readouterr().out
    assert "columns: prompt = text, arrival_s = created_at" in said
    assert "arrivals are read as ISO 8601 dates" in said
