"""Delimited text: what Arrow's threads hold, and which columns are taken for which."""

import gzip
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from traces.error import TraceError
from traces.sources.formats import delimited
from traces.sources.formats.delimited import read_delimited, read_header
from traces.table.limits import Limits

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
