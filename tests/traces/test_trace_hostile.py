"""Whatever the file: a trace, or one clear error, and nothing left behind."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import opening
from traces.intake import store
from traces.opening import Limits
from traces.schema import Trace, TraceError, make, read, write
from traces.sources import Streamed, prompts
from traces.sources.delimited import Csv
from traces.sources.diffusiondb import DiffusionDB
from traces.sources.gentd26 import GenTD26
from traces.sources.katz import Katz
from traces.sources.mjhq import Mjhq
from traces.sources.partiprompts import PartiPrompts
from traces.sources.prompts import Prompts

IMPORTERS: dict[str, tuple[str, Callable[..., Streamed]]] = {
    "csv": ("t.csv", Csv),
    "diffusiondb": ("t.csv", DiffusionDB),
    "diffusiondb as parquet": ("t.parquet", DiffusionDB),
    "gentd26": ("t.csv", GenTD26),
    "katz": ("t.json", Katz),
    "mjhq": ("t.json", Mjhq),
    "partiprompts": ("t.tsv", PartiPrompts),
    "prompts": ("t.txt", Prompts),
    "prompts as json": ("t.json", Prompts),
}
"""Every importer, with a name that its files may have."""


def parquet_bytes() -> bytes:
    file = io.BytesIO()
    columns: dict[str, Any] = {
        "image_name": ["a.png", "b.png"], "prompt": ["a fox", "a red fox"], "seed": [1, 2], "step": [50, 50],
        "width": [512, 512], "height": [512, 512], "user_name": ["u", None], "image_nsfw": [0.1, 0.2],
        "timestamp": pa.array([0, 60], pa.timestamp("s", "UTC")), "prompt_nsfw": [0.1, 0.2],
    }  # fmt: skip
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


DDB_ROW = b"a fox,1,50,512,512,u,2022-08-14 00:45:00+00:00\n"
VALID: dict[str, bytes] = {
    "csv": b'prompt,arrival_s,width,loras\n"a, ""fox""",1.5,512,a;b\nb,2,,\n',
    "diffusiondb": b"prompt,seed,step,width,height,user_name,timestamp\n" + DDB_ROW * 2,
    "diffusiondb as parquet": parquet_bytes(),
    "gentd26": (
        b"gmt_create,predict_type,predict_status,groupId,num_images_per_prompt,num_inference_steps,"
        b"checkpoint_model_version_id,num_lora\n2024-11-15 10:00:00,TXT_2_IMG,SUCCEED,g,4.0,30.0,m,2\n"
    ),
    "katz": json.dumps(
        [{"timestamp": 5, "ip": "n", "scene_id": "A", "base_model_id": None, "controlnets": ["c"], "loras": None}]
    ).encode(),
    "mjhq": b'{"a": {"category": "c", "prompt": "p"}, "b": {"category": "c", "prompt": "\\u00e9"}}',
    "partiprompts": b'Prompt\tCategory\tChallenge\tNote\na "fox\tA\tB\t\n',
    "prompts": "a fox\r\n\nna\u00efve\n".encode(),
    "prompts as json": b'["a fox", {"prompt": "b"}]',
}


def hold_to_form(error: TraceError, name: str = "") -> None:
    assert "\n" not in str(error)
    assert name in str(error)
    assert str(error).isprintable()


def outcome(importer: str, content: bytes, folder: Path, **options: Any) -> TraceError | Trace:
    """What storing the content ends in; fails on anything but a trace or one line of TraceError."""
    name, source = IMPORTERS[importer]
    (folder / name).write_bytes(content)
    out = folder / "o.parquet"
    try:
        store(source(path=str(folder / name), **options).read(np.random.default_rng(0)), out)
        trace = read(out)
        out.unlink()
        assert len(trace)
        return trace
    except TraceError as error:
        hold_to_form(error, name)
        return error
    finally:
        assert os.listdir(folder) == [name]


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


fuzz = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


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


@settings(max_examples=150, deadline=None)
@given(cells=st.lists(st.text(max_size=30) | pieces.map(lambda piece: piece.decode(errors="replace")), min_size=1))
def test_any_cells_as_times(cells: list[str]) -> None:
    from traces.sources.cells import Clock, Timestamps
    from traces.validation import Origin

    for name in ("auto", "seconds", "unix", "timestamp"):
        try:
            read_times = Clock(name, Timestamps()).read(pa.chunked_array([cells], pa.string()), Origin("t"))  # type: ignore[arg-type]
        except TraceError as error:
            hold_to_form(error)
        else:
            assert len(read_times) == len(cells)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["2024-01-01 00:00:00", "2024-01-01T00:00:00Z"],
            "row 1, column arrival_s: found .* with a zone, expected none",
        ),
        (["2024-01-01T00:00:00+02:00", "2024-01-01"], "row 1, column arrival_s: found '2024-01-01' with no zone"),
        (["2024-01-01T00:00:00+0200", "", "2024-01-01T00:00:00"], "row 2, column arrival_s"),
    ],
)
def test_times_with_and_without_a_zone(tmp_path: Path, cells: list[str], message: str) -> None:
    content = "\n".join(["prompt,arrival_s", *(f"p,{cell}" for cell in cells)]).encode()
    error = outcome("csv", content, tmp_path)
    assert isinstance(error, TraceError)
    if "" in cells:
        assert "row 2" in str(error) or "row 1, column arrival_s: found null" in str(error)
    else:
        with pytest.raises(TraceError, match=message):
            raise error


def test_zones_are_brought_together(tmp_path: Path) -> None:
    content = b"arrival_s\n2024-01-01T02:00:00+02:00\n2024-01-01T00:00:30Z\n2023-12-31T19:01:00-05\n"
    trace = outcome("csv", content, tmp_path)
    assert isinstance(trace, Trace)
    assert trace.arrival_s.tolist() == [0.0, 30.0, 60.0]


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


@pytest.mark.parametrize("importer", ["csv", "diffusiondb", "diffusiondb as parquet", "katz", "mjhq", "prompts"])
def test_a_prompt_of_ten_megabytes(importer: str, tmp_path: Path) -> None:
    huge = b"x" * 10_000_000
    contents = {
        "csv": b"prompt,arrival_s\na,1\n" + huge + b",2\n",
        "diffusiondb": VALID["diffusiondb"] + DDB_ROW.replace(b"a fox", huge),
        "katz": VALID["katz"].replace(b'"n"', b'"' + huge + b'"'),
        "mjhq": VALID["mjhq"].replace(b"\\u00e9", huge),
        "prompts": b"a\n" + huge + b"\n",
    }
    if importer == "diffusiondb as parquet":
        table = pq.read_table(io.BytesIO(VALID[importer]))
        file = io.BytesIO()
        pq.write_table(table.set_column(1, "prompt", [["a", huge.decode()]]), file)
        contents[importer] = file.getvalue()
    error = outcome(importer, contents[importer], tmp_path)
    assert isinstance(error, TraceError)
    assert "--max-prompt-bytes" in str(error)
    assert len(str(error)) < 500
    assert isinstance(
        outcome(importer, contents[importer], tmp_path, limits=Limits(max_prompt_bytes=20_000_000)), Trace
    )


@pytest.mark.parametrize("importer", ["csv", "prompts", "prompts as json"])
def test_a_gzip_bomb(importer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FREE_BYTES", 1 << 20)
    parts = {
        "csv": (b"prompt\n", b"a fox  \n" * 8, b""),
        "prompts": (b"", b" " * 63 + b"\n", b""),
        "prompts as json": (b'["a"', b" " * 64, b"]"),
    }
    head, body, tail = parts[importer]
    content = gzip.compress(head + body * 75_000 + tail)
    assert len(content) < 20_000
    error = outcome(importer, content, tmp_path)
    assert isinstance(error, TraceError)
    assert "allow its size with --max-bytes" in str(error)
    small = outcome(importer, content, tmp_path, limits=Limits(max_bytes=2_000_000))
    assert isinstance(small, TraceError)
    assert "more than 2,000,000 bytes" in str(small)
    if importer == "prompts as json":
        assert isinstance(outcome(importer, content, tmp_path, limits=Limits(max_bytes=9_000_000)), Trace)


def test_a_parquet_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FREE_BYTES", 1 << 20)
    table = pq.read_table(io.BytesIO(VALID["diffusiondb as parquet"])).slice(0, 1).drop_columns(["image_name"])
    many = pa.concat_tables([table.set_column(0, "prompt", [["x" * 50_000]])] * 20_000).combine_chunks()
    file = io.BytesIO()
    pq.write_table(many, file, compression="zstd")
    assert len(file.getvalue()) < 200_000  # and a gigabyte of text
    error = outcome("diffusiondb as parquet", file.getvalue(), tmp_path)
    assert isinstance(error, TraceError)
    assert "allow its size with --max-bytes" in str(error)


def test_settings_of_limits() -> None:
    for wrong in ({"max_prompt_bytes": 0}, {"max_bytes": -1}, {"max_bytes": 1.5}):
        with pytest.raises(TraceError, match="limits: max_"):
            Limits(**wrong)


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


@pytest.mark.parametrize("importer", ["csv", "katz", "prompts", "diffusiondb as parquet"])
def test_a_file_that_grows_while_it_is_read(importer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "LINES", 1)
    name, source = IMPORTERS[importer]
    path = tmp_path / name
    path.write_bytes(VALID[importer])
    reading = source(path=str(path)).read(np.random.default_rng(0))
    batches = reading.batches

    def growing() -> Any:
        for batch in batches:
            with path.open("ab") as file:
                file.write(b"\n")
            yield batch

    reading.batches = growing()
    with pytest.raises(TraceError, match="wait until the file is finished"):
        store(reading, tmp_path / "o")
    assert os.listdir(tmp_path) == [name]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        "import os, sys, numpy, pathlib; from traces import intake; from traces.sources.delimited import Csv;"
        "intake.write_tables = lambda *a, **k: os._exit(9);"
        "intake.store(Csv(path=sys.argv[1]).read(numpy.random.default_rng(0)), pathlib.Path(sys.argv[2]))"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path), str(tmp_path / "o.parquet")])
    assert ended.returncode == 9
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == ["t.csv"]
