"""Whatever the file: a trace, or one clear error, and nothing left behind."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.lab import IMPORTERS, VALID, hold_to_form, outcome
from traces.error import TraceError
from traces.table.ingest import store
from traces.table.trace import Trace, make, read, write


@pytest.mark.parametrize("importer", IMPORTERS)
def test_every_importer_takes_what_it_should(importer: str, tmp_path: Path) -> None:
    content = VALID[importer]
    trace = outcome(importer, content, tmp_path)
    assert isinstance(trace, Trace)
    if importer != "diffusiondb as parquet":
        zipped = outcome(importer, gzip.compress(content), tmp_path)
        marked = outcome(importer, b"\xef\xbb\xbf" + content, tmp_path)
        windows = outcome(importer, content.replace(b"\r", b"").replace(b"\n", b"\r\n"), tmp_path)
        assert isinstance(zipped, Trace)
        assert isinstance(marked, Trace)
        assert isinstance(windows, Trace)
        assert zipped.digest == marked.digest == windows.digest == trace.digest


fuzz = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.parametrize("importer", IMPORTERS)
@fuzz
@given(content=st.binary(max_size=300), zipped=st.booleans())
def test_any_bytes(importer: str, content: bytes, zipped: bool, tmp_path: Path) -> None:
    outcome(importer, gzip.compress(content) if zipped else content, tmp_path)


pieces = st.sampled_from(
    [b'"', b"'", b",", b"\n", b"\r", b"\0", b"\t", b"[", b"{", b"}", b"]", b":", b"\\u", b"\\", b"-", b"1e999", b"nan",
     b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"9" * 30, b"2024-01-01T00:00:00Z", b"0001-01-01 00:00:00+23:59",
     b"9999-12-31 23:59:59-23:59", b"Infinity", b"true", b"null", b"\xed\xa0\x80", b" " * 50]
)  # fmt: skip


@pytest.mark.parametrize("importer", IMPORTERS)
@fuzz
@given(data=st.data())
def test_damaged_files(importer: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(VALID[importer])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        length = data.draw(st.sampled_from([0, 0, 1, 4, 30]))
        content[at : at + length] = data.draw(pieces | st.binary(max_size=4))
    outcome(importer, bytes(content), tmp_path)


@pytest.mark.parametrize("importer", IMPORTERS)
def test_files_cut_short(importer: str, tmp_path: Path) -> None:
    content = VALID[importer]
    for end in range(0, len(content), max(1, len(content) // 40)):
        outcome(importer, content[:end], tmp_path)
    zipped = gzip.compress(content)
    for end in range(1, len(zipped), max(1, len(zipped) // 15)):
        assert isinstance(outcome(importer, zipped[:end], tmp_path), TraceError)


@settings(max_examples=150)
@given(cells=st.lists(st.text(max_size=30) | pieces.map(lambda piece: piece.decode(errors="replace")), min_size=1))
def test_any_cells_as_times(cells: list[str]) -> None:
    from traces.sources.formats.cells import ArrivalParser, Timestamps
    from traces.table.validation import Origin

    for name in ("auto", "seconds", "unix", "timestamp"):
        try:
            clock = ArrivalParser(name, Timestamps(), {})  # type: ignore[arg-type]
            read_times = clock.read(pa.chunked_array([cells], pa.string()), Origin("t"))
        except TraceError as error:
            hold_to_form(error)
        else:
            assert len(read_times) == len(cells)


@pytest.mark.parametrize(
    ("importer", "content", "message"),
    [
        ("csv", b"", "it is empty"),
        ("csv", "prompt\na\n".encode("utf-16"), "is UTF-16, expected UTF-8"),
        ("prompts", "a fox\n".encode("utf-16-be"), "row 0, column prompt"),
        ("csv", b"prompt,arrival_s\na,1\nb\xe9,2\n", "row 1, column prompt: found bytes that are not UTF-8"),
        ("prompts", b"a\nb\xe9\n", "row 1, column prompt: found bytes that are not UTF-8"),
        ("prompts as json", b'["a", "b\xe9"]', "value 0: found bytes that are not UTF-8"),
        ("csv", b"prompt,arrival_s\na,1\nb\0,2\n", "row 1, column prompt: found .* without NUL"),
        ("csv", b"loras,arrival_s\na,1\na;b\0,2\n", "row 1, column loras: found .* without NUL"),
        ("csv", b"prompt,arrival_s\na,1\nb\n", "row 1: found 1 cells"),
        ("csv", b'prompt,arrival_s\na,1\n"b,2\nc,3\n', "row"),
        ("csv", b'arrival_s,prompt\n1,a\n2,"b\n3,c\n4,d\n', "row 1: found a quote that is opened and never closed"),
    ],
)
def test_what_is_wrong_is_said(importer: str, content: bytes, message: str, tmp_path: Path) -> None:
    error = outcome(importer, content, tmp_path)
    assert isinstance(error, TraceError)
    with pytest.raises(TraceError, match=message):
        raise error


@pytest.mark.parametrize("importer", IMPORTERS)
def test_things_that_are_no_files(importer: str, tmp_path: Path) -> None:
    name, source = IMPORTERS[importer]
    suffix = Path(name).suffix
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"one{suffix}").symlink_to(tmp_path / f"two{suffix}")
    (tmp_path / f"two{suffix}").symlink_to(tmp_path / f"one{suffix}")
    (tmp_path / f"dangling{suffix}").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    before = sorted(os.listdir(tmp_path))
    for place, message in (
        ("folder", "is a folder"),
        ("one", "cannot be read"),
        ("dangling", "no such file"),
        ("absent", "no such file"),
        ("pipe", "is a pipe or a device"),
        ("nul\0", "cannot be read"),
        ("x" * 300, "cannot be read"),
        (f"folder{suffix}/../one{suffix}/x", "cannot be read"),
    ):
        with pytest.raises(TraceError, match=message):
            store(source(path=str(tmp_path / (place + suffix))).read(np.random.default_rng(0)), tmp_path / "o")
    for place in ("one", "pipe"):
        with pytest.raises(TraceError):
            read(tmp_path / (place + suffix))
    assert sorted(os.listdir(tmp_path)) == before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_traces(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write(
        make({"request_id": list("abc"), "arrival_s": [0, 1, 2], "prompt": ["a", "b", "c"]}, name="n", source="s"), path
    )
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content)))
    content[at : at + data.draw(st.sampled_from([0, 1, 50]))] = data.draw(st.binary(max_size=6))
    path.write_bytes(bytes(content))
    try:
        read(path)
    except TraceError as error:
        hold_to_form(error, "t.parquet")


def test_a_killed_import_leaves_no_trace_where_one_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"prompt\n" + b"a fox\n" * 50)
    script = (
        "import os, sys, numpy, pathlib; from traces.table import ingest; from traces.sources.delimited import Csv;"
        "ingest.write_table = lambda *a, **k: os._exit(9);"
        "ingest.store(Csv(path=sys.argv[1]).read(numpy.random.default_rng(0)), pathlib.Path(sys.argv[2]))"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path), str(tmp_path / "o.parquet")])
    assert ended.returncode == 9
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == ["t.csv"]
