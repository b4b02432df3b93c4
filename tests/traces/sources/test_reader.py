"""Every kind of fault in every source it applies to: one clear error, or a skipped and counted row."""

import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats import lines
from mezzotint.traces.sources.prompts import Prompts
from mezzotint.traces.table import limits
from mezzotint.traces.table.ingest import store
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace
from tests.traces.lab import IMPORTERS, VALID, outcome, parquet_bytes

TEXT = ("table", "prompts", "prompts as json")
"""Return an importer for each way of reading text."""
DDB, KATZ, BETA = VALID["diffusiondb"], VALID["katz"], VALID["sd-beta"]
GENTD26 = VALID["gentd26"] + b"2024-11-15 10:00:00,TXT_2_IMG,SUCCEED,g,4.0,30.0,m,2\n"
BEYOND = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
ZONES = pa.array(["2022-08-14 00:45:00+00:00", "2022-08-14 00:45:00"])


@pytest.mark.parametrize("importer", IMPORTERS)
def test_every_importer_accepts_gzip_bom_and_crlf(importer: str, tmp_path: Path) -> None:
    content = VALID[importer]
    trace = outcome(importer, content, tmp_path)
    assert isinstance(trace, Trace)
    if importer != "diffusiondb as parquet":
        zipped = outcome(importer, gzip.compress(content), tmp_path)
        marked = outcome(importer, b"\xef\xbb\xbf" + content, tmp_path)
        windows = outcome(importer, content.replace(b"\r", b"").replace(b"\n", b"\r\n"), tmp_path)
        for other in (zipped, marked, windows):
            assert isinstance(other, Trace)
            assert other.digest == trace.digest


@pytest.mark.parametrize(
    ("importer", "content", "message"),
    [
        ("diffusiondb", DDB.replace(b",512,512", b",nan,512", 1), "row 0, column width: found 'nan'"),
        ("diffusiondb", DDB.replace(b"+00:00\n", b"\n", 1), "row 1, column timestamp: .* with a zone"),
        ("diffusiondb as parquet", parquet_bytes(user_name=[1, 2]), "column user_name: found type int64"),
        ("diffusiondb as parquet", parquet_bytes(timestamp=["a", "b"]), "row 0, column timestamp: found 'a'"),
        ("diffusiondb as parquet", parquet_bytes(width=[512.0, np.nan]), "column width"),
        ("diffusiondb as parquet", parquet_bytes(timestamp=ZONES), "row 1, column timestamp: .* with no zone"),
        ("diffusiondb as parquet", parquet_bytes(image_name=["a", "a"]), "row 1, .*found 'a', which row 0 has"),
        ("diffusiondb as parquet", parquet_bytes(timestamp=BEYOND), "row 1, .*column timestamp: .* between 1900 and"),
        ("gentd26", GENTD26.replace(b",30.0,", b",-30,", 1), "row 0, column num_inference_steps: found -30"),
        ("gentd26", GENTD26.replace(b":00,TXT", b":00Z,TXT", 1), "row 1, column gmt_create: .* with no zone"),
        ("sd-beta", BETA.replace(b",42.5", b",-1"), "row 0, column gen_seconds: found -1.0, expected finite seconds"),
        ("katz", KATZ.replace(b"5,", b"NaN,"), "value 0: cannot be read as JSON .NaN is not a JSON number"),
        ("mjhq", VALID["mjhq"].replace(b'"b"', b'"a"'), "row 1, column request_id: found 'a', which row 0 has"),
    ],
)
def test_malformed_input_names_its_row_and_column(importer: str, content: bytes, message: str, tmp_path: Path) -> None:
    refused(importer, content, message, tmp_path)


BROKEN: dict[str, tuple[bytes, bytes]] = {
    "table": (b"\nb,", b"\nb\xe9,"),
    "prompts": ("naïve".encode(), b"na\xefve"),
    "prompts as json": (b"a fox", b"\xe9 fox"),
}
"""Return the replacement in a valid file that makes it partly Latin-1."""


@pytest.mark.parametrize("importer", TEXT[1:])  # a table may be in several encodings
def test_other_encodings_are_refused(importer: str, tmp_path: Path) -> None:
    content = VALID[importer]
    refused(importer, content.replace(*BROKEN[importer]), "(row|value) .*found bytes that are not UTF-8", tmp_path)
    text = content.decode()
    refused(importer, text.encode("utf-16"), "is UTF-16, expected UTF-8 text; convert it", tmp_path)
    for encoding in ("utf-16-le", "utf-16-be", "utf-32"):  # and no mark of UTF-16: the NULs between the letters show it
        assert isinstance(outcome(importer, text.encode(encoding), tmp_path), TraceError)


def test_invalid_utf_8_in_parquet_is_refused(tmp_path: Path) -> None:
    broken = pa.array([b"\xe9", b"a"]).view(pa.string())
    refused("diffusiondb as parquet", parquet_bytes(prompt=broken), "not valid .*UTF-?8", tmp_path)


def test_row_longer_than_a_block_is_named_where_it_may_begin(tmp_path: Path) -> None:
    huge = b"x" * 20_000_000
    refused("table", b"prompt\n" + huge + b"\na\n", "row 0 or one after it: .*--max-prompt-bytes", tmp_path)
    rows = b"prompt\n" + b"a fox\n" * 1_000_000
    refused("table", rows + huge + b"\na\n", "row [1-9][0-9]* or one after it: .*--max-prompt-bytes", tmp_path)


@pytest.mark.parametrize("importer", [*TEXT, "diffusiondb as parquet"])
def test_prompt_of_ten_megabytes_needs_max_prompt_bytes(importer: str, tmp_path: Path) -> None:
    huge = b"x" * 10_000_000
    content = parquet_bytes(prompt=["a", huge.decode()]) if importer not in TEXT else b"a\n" + huge + b"\n"
    if importer in BROKEN and importer != "prompts":
        content = VALID[importer].replace(BROKEN[importer][0], BROKEN[importer][1].replace(b"\xe9", huge), 1)
    error = refused(importer, content, "--max-prompt-bytes", tmp_path)
    assert len(str(error)) < 500
    assert isinstance(outcome(importer, content, tmp_path, limits=Limits(max_prompt_bytes=20_000_000)), Trace)


@pytest.mark.parametrize("importer", TEXT)
def test_gzip_bomb_is_refused(importer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FREE_BYTES", 1 << 20)
    blank = b" " * 99 + b"\n" if importer == "prompts" else b"\n" * 100  # other tables have no blank rows
    content = gzip.compress(VALID[importer] + blank * 30_000)
    assert len(content) < 15_000
    refused(importer, content, "allow its size with --max-bytes", tmp_path)
    small = outcome(importer, content, tmp_path, limits=Limits(max_bytes=2_000_000))
    assert isinstance(small, TraceError)
    assert "more than 2,000,000 bytes" in str(small)
    assert isinstance(outcome(importer, content, tmp_path, limits=Limits(max_bytes=4_000_000)), Trace)


def test_parquet_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FREE_BYTES", 1 << 20)
    table = pq.read_table(io.BytesIO(parquet_bytes())).slice(0, 1).drop_columns(["image_name"])
    many = pa.concat_tables([table.set_column(0, "prompt", [["x" * 50_000]])] * 4_000).combine_chunks()
    file = io.BytesIO()
    pq.write_table(many, file, compression="zstd")
    assert len(file.getvalue()) < 50_000  # and 200 MB of text
    refused("diffusiondb as parquet", file.getvalue(), "allow its size with --max-bytes", tmp_path)


def test_file_that_grows_while_being_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINES", 1)  # appended text would make it endless
    path = tmp_path / "t.txt"
    path.write_bytes(VALID["prompts"])
    reading = Prompts(path=str(path)).read(np.random.default_rng(0))
    batches = reading.batches

    def growing() -> Any:
        for batch in batches:
            with path.open("ab") as file:
                file.write(b"\n")
            yield batch

    reading.batches = growing()
    with pytest.raises(TraceError, match="wait until the file is finished"):
        store(reading, tmp_path / "o")
    assert os.listdir(tmp_path) == ["t.txt"]


@pytest.mark.parametrize("importer", ["table", "diffusiondb as parquet", "prompts as json"])
def test_path_that_is_no_regular_file_is_refused(importer: str, tmp_path: Path) -> None:
    name, source = IMPORTERS[importer]
    suffix = Path(name).suffix
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"one{suffix}").symlink_to(tmp_path / f"one{suffix}")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    before = sorted(os.listdir(tmp_path))
    for place, message in (
        ("folder", "is a folder"),
        ("one", "cannot be read"),
        ("absent", "no such file"),
        ("pipe", "is a pipe or a device"),
        ("nul\0", "cannot be read"),
        ("x" * 300, "cannot be read"),
    ):
        with pytest.raises(TraceError, match=message):
            store(source(path=str(tmp_path / (place + suffix))).read(np.random.default_rng(0)), tmp_path / "o")
    assert sorted(os.listdir(tmp_path)) == before


def refused(importer: str, content: bytes, message: str, folder: Path) -> TraceError:
    error = outcome(importer, content, folder)
    assert isinstance(error, TraceError)
    with pytest.raises(TraceError, match=message):
        raise error
    return error
