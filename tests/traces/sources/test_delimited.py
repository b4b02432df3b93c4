"""Delimited text: which columns take which role."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.run.commands import run_command
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.delimited import Csv
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace


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
def test_common_column_names_are_mapped_automatically(header: str, columns: dict[str, str], tmp_path: Path) -> None:
    assert imported(tmp_path, f"{header}\n1,2,3\n").notes["columns"] == columns


def test_column_map_overrides_names_and_may_map_to_none(tmp_path: Path) -> None:
    table = "text,time,made\na fox,3,4\n"
    assert imported(tmp_path, table, columns={"arrival_s": "made"}).arrival_s.tolist() == [4.0]
    assert imported(tmp_path, table, columns={"arrival_s": ""}).notes["arrival_s"] == ORDER_ONLY
    mapped = imported(tmp_path, table, columns={"user_id": "text"}).notes["columns"]
    assert mapped == {"user_id": "text", "arrival_s": "time"}  # one column is not taken twice


def test_ambiguous_columns_are_refused_by_name(tmp_path: Path) -> None:
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
def test_time_formats_are_detected(cells: tuple[str, str], written: str, tmp_path: Path) -> None:
    trace = imported(tmp_path, "time\n" + "\n".join(cells) + "\n")
    assert np.diff(trace.arrival_s).tolist() == [90.0]
    assert trace.notes["arrival_written"] == written


def test_import_prints_its_column_mapping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("text,created_at\na fox,2022-08-14 00:45:00\n")
    assert run_command("trace import", ["csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.parquet")]) == 0
    output = capsys.readouterr().out
    assert "columns: prompt = text, arrival_s = created_at" in output
    assert "arrivals are read as ISO 8601 dates" in output
