"""Tables of requests: kinds of files, the roles of columns, the formats of times, and faults with their cell."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mezzotint
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import read_clock
from mezzotint.traces.sources.file import File
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.logged import SOURCES
from mezzotint.traces.sources.table import Table, import_table
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace, read, write
from mezzotint.traces.table.validation import Origin

ROWS = {
    "created_at": ["2026-11-03T10:00:00Z", "2026-11-03T10:00:09Z"],
    "prompt": ['a "red" boat, 🎨\nsecond line', "ein Boot; blau"],
    "size": ["512x768", "1024x1024"],
}
FRAME = pd.DataFrame(ROWS)
CSV = FRAME.to_csv(index=False)


def imported(folder: Path, content: str | bytes, **options: Any) -> Trace:
    path = folder / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Table(path=path, **options).load(np.random.default_rng(0))


def said(trace: Trace) -> str:
    return "\n".join(trace.notes[SAID])


def packed_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(FRAME), file)
    return file.getvalue()


def arrow(of: Any) -> bytes:
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with io.BytesIO() as file:
        with of(file, table.schema) as writer:
            writer.write_table(table)
        return file.getvalue()


def zipped(content: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.csv", content)
    return file.getvalue()


KINDS: dict[str, bytes] = {
    "utf-8 with a mark": b"\xef\xbb\xbf" + CSV.encode(),
    "semicolons": FRAME.to_csv(index=False, sep=";").encode(),
    "tabs": FRAME.to_csv(index=False, sep="\t").encode(),
    "bars": FRAME.to_csv(index=False, sep="|").encode(),
    "excel's first line": b"sep=;\r\n" + FRAME.to_csv(index=False, sep=";").encode(),
    "utf-16": FRAME.to_csv(index=False, sep=";").encode("utf-16"),
    "utf-16, the other order": b"\xfe\xff" + CSV.encode("utf-16-be"),
    "spaces after the delimiter": b"created_at, prompt, size\n" + b"\n".join(
        f'{when}, "{prompt}", {size}'.encode()
        for when, prompt, size in zip(
            ROWS["created_at"], ['a ""red"" boat, 🎨\nsecond line', "ein Boot; blau"], ROWS["size"], strict=True
        )
    ),
    "gzip": gzip.compress(CSV.encode(), mtime=0),
    "zstd": pa.compress(CSV.encode(), "zstd", asbytes=True),
    "zip": zipped(CSV),
    "json lines": FRAME.to_json(orient="records", lines=True).encode(),
    "json array": FRAME.to_json(orient="records", indent=1).encode(),
    "json lines, gzip": gzip.compress(FRAME.to_json(orient="records", lines=True).encode(), mtime=0),
    "parquet": packed_parquet(),
    "arrow file": arrow(pa.ipc.new_file),
    "arrow stream": arrow(pa.ipc.new_stream),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_trace(kind: str, tmp_path: Path) -> None:
    trace = imported(tmp_path, KINDS[kind])
    assert trace.prompts().to_pylist() == ROWS["prompt"]
    assert trace.arrival_s.tolist() == [0.0, 9.0]
    assert (trace.column("width").tolist(), trace.column("height").tolist()) == ([512, 1024], [768, 1024])
    assert trace.digest == imported(tmp_path, CSV).digest


def test_windows_text_is_read_and_said(tmp_path: Path) -> None:
    trace = imported(tmp_path, "time,prompt\n1,café at night…\n".encode("cp1252"))
    assert trace.prompts().to_pylist() == ["café at night…"]
    assert "Windows-1252" in said(trace)


def test_frames_of_pandas_give_the_trace_of_their_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = imported(tmp_path, CSV)
    path = mezzotint.trace(FRAME)
    assert read(path).digest == csv.digest
    assert "created_at as arrival_s" in capsys.readouterr().err
    indexed = FRAME.assign(created_at=pd.to_datetime(FRAME.created_at)).set_index("created_at")
    assert read(mezzotint.trace(indexed)).digest == csv.digest
    gaps = pd.DataFrame({"time": [1.5, 2.0], "my_prompt": ["a", "b"], "steps": [20, np.nan]})
    trace = read(mezzotint.trace(gaps, tmp_path / "o.parquet", columns={"prompt": "my_prompt"}))
    assert trace.column("steps").tolist() == [20, -1]
    assert mezzotint.trace(tmp_path / "o.parquet") == tmp_path / "o.parquet"
    run = mezzotint.run("system=vanilla", "arrivals=poisson", "shapes=model", trace=path)
    assert run.summary["trace"]["digest"].endswith(csv.digest)


def test_index_of_a_frame_is_columns_and_a_period_is_its_start() -> None:
    hours = pd.period_range("2026-11-01", periods=2, freq="h")
    assert read(mezzotint.trace(pd.DataFrame({"time": hours, "prompt": ["a", "b"]}))).arrival_s.tolist() == [0, 3600]
    assert read(mezzotint.trace(pd.DataFrame({"prompt": ["a", "b"]}, index=hours))).arrival_s.tolist() == [0, 3600]
    frame = pd.DataFrame({"time": [1.5, 2.0], "user": ["x", "y"], "prompt": ["a", "b"]})
    plain = read(mezzotint.trace(frame)).digest
    for indexed in (frame.set_index("time", drop=False), frame.set_index(["user", "time"])):
        assert read(mezzotint.trace(indexed)).digest == plain
    with pytest.raises(TraceError, match="found 'time' in the index and in a column, with other values; rename one"):
        mezzotint.trace(frame.set_index(pd.Index([3, 4], name="time")))


@pytest.mark.parametrize("source", [[{"time": 0, "prompt": "a"}], pd.Series(["a"]), {"prompt": ["a"]}, None])
def test_what_is_no_frame_is_refused_with_the_way_to_one(source: Any) -> None:
    with pytest.raises(TraceError, match=rf"found {type(source).__name__}, expected a pandas DataFrame or the name"):
        mezzotint.trace(source)


def test_file_and_plan_take_a_table_as_the_command_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = imported(tmp_path, CSV)
    assert File(path=tmp_path / "t.csv").load(np.random.default_rng(0)).digest == trace.digest
    assert "t.csv: taken: created_at as arrival_s" in capsys.readouterr().err
    made = import_table(tmp_path / "t.csv", tmp_path / "made")
    assert read(made).digest == trace.digest
    assert import_table(tmp_path / "t.csv", tmp_path / "made") == made == import_table(made, tmp_path / "other")


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("text,Created At,User-Name", "a,1,u", {"prompt": "a", "user_id": "u"}),
        ("prompt,createdAt,tenant", "a,1,u", {"prompt": "a", "user_id": "u"}),
        ("time,num_inference_steps,cfg_scale,n", "1,30,4.5,4", {"steps": 30, "guidance": 4.5, "images": 4}),
        ("time,nSteps,numImages,guidanceScale", "1,30,4,4.5", {"steps": 30, "guidance": 4.5, "images": 4}),
        ("time,size", "1,1024×768", {"width": 1024, "height": 768}),
        ("time,resolution", "1,1024*768", {"width": 1024, "height": 768}),
        ("time,size", "1,512", {"width": 512, "height": 512}),
        ("time,size,prompt", "1,auto,a", {"width": None, "height": None}),
        ("time,w,h", "1,640,480", {"width": 640, "height": 480}),
        ("time,latency_ms", "1,6100", {"latency_s": 6.1}),
        ("time,e2e (ms)", "1,6100", {"latency_s": 6.1}),
        ("time,response_time_us", "1,6100000", {"latency_s": 6.1}),
        ("time,duration", "1,6.1", {"latency_s": 6.1}),
        ("time,E2E Latency (ms)", "1,9000", {"latency_s": 9.0}),
        ("time,e2eLatencyMs", "1,9000", {"latency_s": 9.0}),
        ("time,duration_d", "1,4.1", {"latency_s": 4.1}),
        ("time,width,height,size", "1,512,768,11000", {"width": 512, "height": 768}),
        ("time,slo_ms,gen_seconds", "1,9000,4", {"slo_s": 9.0, "gen_s": 4.0}),
        ("time,negative_prompt,denoising_strength", "1,blur,0.6", {"negative_prompt": "blur", "strength": 0.6}),
        ("time,image_path", "1,a.png", {"input_images": 1}),
        ("time,num_input_images", "1,2", {"input_images": 2}),
        ("time,image_paths", '1,"[""a"", ""b""]"', {"input_images": 2}),
        ("time,lora_names", "1,a; b", {"loras": ["a", "b"]}),
        ("time,model,priority,req_id", "1,flux,2,x", {"base_model": "flux", "priority": 2, "request_id": "x"}),
        ("time,prompt,seed", "1,a,-1", {"seed": None}),
        ("time,size,seconds,fps", "1,1280x720,5,16", {"frames": 81}),
        ("time,video_duration,frame_rate", "1,3.4,24", {"frames": 81}),
        ("time,clip_length_ms,fps", "1,5000,16", {"frames": 81}),
        ("time,duration,fps", "1,5,16", {"frames": 81, "latency_s": None}),
        ("time,request.prompt,body.size", "1,a,512x768", {"prompt": "a", "height": 768}),
        ("time,seconds,fps,num_frames", "1,5,16,77", {"frames": 77}),
    ],
)
def test_usual_names_are_read(header: str, cells: str, expected: dict[str, Any], tmp_path: Path) -> None:
    row = imported(tmp_path, f"{header}\n{cells}\n").table.to_pylist()[0]
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("time,my_prompt\n1,a fox\n", {}, "my_prompt looks like prompt.*--map prompt=my_prompt, or --leave-out"),
        (
            "time,deadline\n1787000000,1787000030\n",
            {},
            "deadline: found times such as 1787000030.*--map slo_s= for none",
        ),
        ("time,deadline_ms\n1,1787000030000\n", {}, "deadline_ms: found times such as"),
        ("time,deadline_s\n0,10\n3,13\n9,20\n", {}, "found times such as 20, 11 s after .*seconds from a request's"),
        ("time,deadline\n1,2026-11-03T10:00:30Z\n", {}, "found times such as 2026.*seconds from a request's arrival"),
        ("time,promptText\n1,a fox\n", {}, "--map prompt=promptText"),
        ("time,promt\n1,a fox\n", {}, "promt looks like prompt"),
        ("prompt,my timestamp\na,3\n", {}, "--map 'arrival_s=my timestamp'"),
        ("time,image_widht,w2\n1,512,3\n", {}, "image_widht looks like width"),
        ("time,sampler_steps_used\n1,20\n", {}, "looks like steps"),
        ("time,prompt,secconds,fps\n1,a,5,16\n", {}, "secconds looks like video_s"),
        ("time,prompt,seconds\n1,a,5\n", {}, "seconds of a video without frames per second"),
        ("time,prompt,video_length,fps\n1,a,81,16\n", {}, "81, which may be frames or seconds; say --map frames="),
        ("time,prompt,latency\n1,a,6100\n", {}, "6100, which may be of any unit; say --unit latency=ms, or s$"),
        ("time,prompt,latency\n1,a,4100.5\n", {}, "4100.5, which may be of any unit; say --unit latency=ms, or s$"),
        ("time,prompt,timeTaken_d\n1,a,4100.5\n", {}, "4100.5, which may be of any unit; say --unit timeTaken_d=ms"),
        ("arrival_d,prompt\n1,a\n", {}, "arrival_d looks like arrival_s"),
        ('{"timestamp": 30000, "hash_ids": [1]}', {}, "milliseconds; say --unit timestamp=ms"),
        ("timestamp\n46329.416667\n46329.417361\n", {}, "a spreadsheet's days, or seconds.*--unit timestamp=d, or s"),
        ('{"timestamp": 300.0, "text": "a", "extra": {"n": 2}}', {}, "milliseconds; say --unit timestamp=ms"),
        ('{"timestamp": 0, "input_length": 3, "hash_ids": [1]}', {}, "milliseconds; say --unit timestamp=ms"),
        ("time,text,caption\n1,a,b\n", {}, "columns text, caption, each of which may be prompt.*--map prompt=text"),
    ],
)
def test_column_that_looks_like_a_missing_one_is_asked_about(
    text: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=message):
        imported(tmp_path, text, **options)


def test_answer_to_the_question_is_taken(tmp_path: Path) -> None:
    asked = "time,my_prompt,latency\n1,a fox,6100\n"
    trace = imported(tmp_path, asked, columns={"prompt": "my_prompt"}, units={"latency": "ms"})
    assert trace.table.select(["prompt", "latency_s"]).to_pylist() == [{"prompt": "a fox", "latency_s": 6.1}]
    days = "timestamp\n46329.416667\n46329.417361\n"
    columns = {"size": "", "video_s": ""}
    trace = imported(tmp_path, "time,size,seconds,fps\n0,1240,8,16\n1,1241,8,\n", columns=columns)
    assert trace.table.select(["width", "frames"]).to_pylist() == [{"width": None, "frames": None}] * 2
    trace = imported(tmp_path, days, units={"timestamp": "d"})
    assert trace.arrival_s.tolist() == pytest.approx([0, 60], abs=0.1)
    assert trace.notes["arrival_written"] == "days of a spreadsheet since 1899-12-30"
    assert imported(tmp_path, days, units={"timestamp": "s"}).arrival_s[0] == 46329.416667
    aiperf = '{"timestamp": 300.0, "text": "a"}{"timestamp": 4450.0, "text": "b"}'
    assert imported(tmp_path, aiperf, units={"timestamp": "ms"}).arrival_s.tolist() == [0.3, 4.45]
    trace = imported(tmp_path, asked, leave_out=["my_prompt", "latency"])
    assert trace.prompts().to_pylist() == [None]
    assert "my_prompt (as told)" in said(trace)
    table = "time,duration,fps\n1,5,16\n"
    assert imported(tmp_path, table, columns={"latency_s": "duration"}).table["latency_s"].to_pylist() == [5.0]
    assert "my_prompt (looks like prompt" in said(imported(tmp_path, "time,prompt,my_prompt\n1,a,b\n"))


@pytest.mark.parametrize("orient", ["records", "columns", "index", "split", "table"])
@pytest.mark.parametrize("index", [None, ["2026-01-01", "2026-01-02", "2026-01-04"]])
def test_table_that_pandas_wrote_is_read(tmp_path: Path, orient: Any, index: list[str] | None) -> None:
    frame = pd.DataFrame({"prompt": ["a", "b", None], "steps": [30, 20, 50]}, index and pd.to_datetime(index))
    if index and orient == "records":
        frame = frame.reset_index(names="time")  # pandas writes no labels there
    trace = imported(tmp_path, frame.to_json(orient=orient, date_format="iso"))
    assert trace.table.select(["prompt", "steps"]).to_pylist() == [
        {"prompt": "a", "steps": 30}, {"prompt": "b", "steps": 20}, {"prompt": None, "steps": 50},
    ]  # fmt: skip
    assert trace.arrival_s.tolist() == ([0.0, 86_400.0, 259_200.0] if index else [0.0, 1.0, 2.0])


def test_times_of_day_count_from_the_earliest_over_midnight(tmp_path: Path) -> None:
    trace = imported(tmp_path, "time,prompt\n23:58:00,a\n23:59:30.5,b\n0:01,c\n\n")
    assert trace.arrival_s.tolist() == [0.0, 90.5, 180.0]
    assert trace.notes["arrival_written"] == "times of day over 2 days, from the earliest on"
    trace = imported(tmp_path, "time,prompt\n11:59 am,a\n12:00:01 PM,b\n1:00:00 p.m.,c\n12:30 AM,d\n")
    assert trace.arrival_s.tolist() == [0.0, 61.0, 3660.0, 45_060.0]
    with pytest.raises(TraceError, match=r"row 1, column time: found '24:05:09', expected a time of day such as"):
        imported(tmp_path, "time,prompt\n13:05:07,a\n24:05:09,b\n")
    for day in ("date", "day"):  # a known name, and another
        trace = imported(tmp_path, f"{day},time,prompt\n2026-01-01,13:05:07,a\n2026-01-03,13:05:09,b\n")
        assert trace.arrival_s.tolist() == [0.0, 172_802.0]
        assert f"{day} (the days of time, which has the times of day)" in said(trace)


def test_index_of_times_is_the_arrivals_and_a_column_without_a_name_has_one(tmp_path: Path) -> None:
    rows = ("2026-01-01{},a", "2026-01-02{},b", "2026-01-04{},c")
    for name in ("", "index"):
        trace = imported(tmp_path, "\n".join([f"{name},prompt", *(row.format("") for row in rows)]))
        assert trace.arrival_s.tolist() == [0.0, 86_400.0, 259_200.0]
    trace = imported(
        tmp_path, "\n".join([",arrival_s,prompt", *(row.format(f",{9 * n}") for n, row in enumerate(rows))])
    )
    assert trace.arrival_s.tolist() == [0.0, 9.0, 18.0]
    assert "Unnamed: 0 (another clock; the arrivals are arrival_s (--map 'arrival_s=Unnamed: 0'" in said(trace)
    assert "Unnamed: 0 (the number of the row)" in said(imported(tmp_path, ",prompt\n0,a\n1,b\n"))


def test_what_is_taken_and_left_out_is_said(tmp_path: Path) -> None:
    trace = imported(tmp_path, "time;text;zone;text2;colour;id\n1;a;eu;a;red;7\n2;b;eu;b;blue;7\n")
    assert trace.notes["columns"] == {"prompt": "text", "arrival_s": "time"}
    assert trace.notes["columns_left_out"] == {
        "zone": "constant, 'eu'",
        "text2": "a duplicate of text",
        "colour": "unknown name",
        "id": "its names of requests are not unique; --map request_id=id insists",
    }
    for part in ("semicolon, UTF-8, 2 rows", "text as prompt", "time as arrival_s (seconds of", "zone (constant"):
        assert part in said(trace)


def test_column_map_overrides_names_and_may_map_to_none(tmp_path: Path) -> None:
    table = "text,time,made\na fox,3,4\n"
    assert imported(tmp_path, table, columns={"arrival_s": "made"}).arrival_s.tolist() == [4.0]
    assert imported(tmp_path, table, columns={"arrival_s": ""}).notes["arrival_s"] == ORDER_ONLY
    mapped = imported(tmp_path, table, columns={"user_id": "text"}).notes["columns"]
    assert mapped == {"user_id": "text", "arrival_s": "time"}  # one column is not taken twice


def test_canonical_names_cells_and_order_are_kept(tmp_path: Path) -> None:
    text = (
        "arrival_s,prompt,width,height,loras,extra,steps\n"
        "2024-11-15 16:57:51,second,512.0,512,a; b,x,50\n"
        '2024-11-15 16:57:50.5,"first, with a comma and a\nnew line",768,,,y,\n'
    )
    trace = imported(tmp_path, text)
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert trace.prompts().to_pylist() == ["first, with a comma and a\nnew line", "second"]
    assert trace.table.column("request_id").to_pylist() == ["1", "0"]
    assert trace.table.column("loras").to_pylist() == [None, ["a", "b"]]
    assert (trace.column("width").tolist(), trace.column("height").tolist()) == ([768, 512], [-1, 512])
    assert trace.name == "t"
    assert trace.table.schema == SCHEMA


@pytest.mark.parametrize(
    ("header", "cells", "gap_s", "written"),
    [
        ("time", ("2022-08-14 00:45:00", "2022-08-14 00:46:30"), 90, "ISO 8601 dates"),
        ("time", ("2022-08-14T02:45:00+02:00", "2022-08-14 00:46:30Z"), 90, "ISO 8601 dates"),
        ("time", ("2022-08-14 00:45:00 UTC", "2022-08-14 00:46:30 UTC"), 90, "ISO 8601 dates"),
        ("time", ('"2026-11-03 10:36:37,988"', '"2026-11-03 10:36:38,112"'), 0.124, "ISO 8601 dates"),
        ("TIMESTAMP", ("2023-11-16 18:17:03.0010000", "2023-11-16 18:17:03.0020000"), 0.001, "ISO 8601 dates"),
        ("time", ("2023-11-16 18:17:03.0010000", "2023-11-16 18:17:03.0010003"), 3e-7, "ISO 8601 dates"),
        ("time", ("2023-11-16 18:17:03.123456789", "2023-11-16 18:17:03.123456799"), 1e-8, "ISO 8601 dates"),
        ("time", ("1660000000", "1660000090"), 90, "seconds since 1970"),
        ("time", ("1.787e+09", "1.78700001e+09"), 10, "seconds since 1970"),
        ("time", ("1787000000.5", "1787000001.75"), 1.25, "seconds since 1970"),
        ("time", ("1660000000000", "1660000090000"), 90, "milliseconds since 1970"),
        ("ts", ("1660000000000000", "1660000000000250"), 2.5e-4, "microseconds since 1970"),
        ("ts", ("1660000000000000000", "1660000000000000250"), 2.5e-7, "nanoseconds since 1970"),
        ("send_time_us", ("1787000000000000", "1787000010000000"), 10, "microseconds since 1970"),
        ("timestamp_ms", ("1.787e+12", "1.78700001e+12"), 10, "milliseconds since 1970"),
        ("arrival_s", ("1787000000000", "1787000010000"), 10, "milliseconds since 1970"),
        ("time", ("5", "95"), 90, "seconds of the file's own clock"),
        ("arrival_time_us", ("0", "10000000"), 10, "microseconds of the file's own clock"),
        ("arrival_ms", ("0", "12500"), 12.5, "milliseconds of the file's own clock"),
        ("arrival (ns)", ("0", "2500000000"), 2.5, "nanoseconds of the file's own clock"),
        ("time_min", ("1", "2.5"), 90, "minutes of the file's own clock"),
        ("time", ('"0,0"', '"12,5"'), 12.5, "seconds of the file's own clock"),
        ("time", ("11/3/2026 1:05 PM", "11/14/2026 1:05 PM"), 11 * 86400, "dates with the month first"),
        ("time", ("3/11/2026 13:05:00", "14/11/2026 13:05:01"), 11 * 86400 + 1, "dates with the day first"),
        ("time", ("03.11.2026 13:05", "04.11.2026 13:05"), 86400, "dates with the day first"),
        ("time", ("03/Nov/2026:10:00:00 +0000", "03/Nov/2026:10:00:07 +0000"), 7, "ISO 8601 dates"),
        ("time", ("1787000000000.0", "1787000002377.25"), 2.37725, "milliseconds since 1970"),
        ("time", ('"Nov 3, 2026 @ 10:00:00.000"', '"Nov 3, 2026 @ 10:00:04.250"'), 4.25, "ISO 8601 dates"),
        ("date", ("46329.5", "46330.0"), 43200, "days of a spreadsheet since 1899-12-30"),
    ],
)
def test_time_formats_are_detected(
    header: str, cells: tuple[str, str], gap_s: float, written: str, tmp_path: Path
) -> None:
    trace = imported(tmp_path, "\n".join([header, *cells, ""]))
    assert np.diff(trace.arrival_s)[0] == pytest.approx(gap_s, rel=1e-9)
    assert trace.notes["arrival_written"] == written
    assert written in said(trace)


def test_order_of_day_and_month_is_asked_and_taken(tmp_path: Path) -> None:
    text = "time,prompt\n3/11/2026 10:00,a\n4/11/2026 10:00,b\n"
    with pytest.raises(TraceError, match=r"row 0, column time: .*--dates month-first or --dates day-first"):
        imported(tmp_path, text)
    assert imported(tmp_path, text, dates="day-first").arrival_s.tolist() == [0.0, 86400.0]
    assert imported(tmp_path, text, dates="month-first").arrival_s.tolist() == [0.0, 31 * 86400.0]


@pytest.mark.parametrize(
    ("text", "taken", "remark"),
    [
        ("send_time_us,arrival_us,prompt\n1787000000000000,0,a\n1787000010000000,10000000,b\n", 10, "send.*agrees"),
        ("timestamp,arrival,prompt\n1787000000,0,a\n1787000010,12,b\n", 12, "by up to 2 s .row 1,"),
        ("started_at,created_at\n2026-11-03T10:00:05Z,2026-11-03T10:00:00Z\n2026-11-03T10:00:30Z,2026-11-03T10:00:01Z\n",
         1, "started_at .another clock; .*--map arrival_s=started_at takes it.; it differs by up to 24 s"),
        ("time,created_at\n1,x\n2,y\n", 1, "no clock"),
    ],
)  # fmt: skip
def test_of_two_clocks_one_is_taken_and_said(text: str, taken: float, remark: str, tmp_path: Path) -> None:
    if "no clock" in remark:
        text = text.replace("created_at", "offset")
    trace = imported(tmp_path, text)
    assert np.diff(trace.arrival_s).tolist() == [taken]
    assert pd.Series([said(trace)]).str.contains(remark).all()


@pytest.mark.parametrize(
    ("times", "remark"),
    [
        (
            ("2026-10-25 02:59:50", "2026-10-25 02:00:00", "2026-10-25 02:00:07"),
            "row 1: .* 3,590 s, as at the end of",
        ),
        (("10", "90", "0", "5"), "row 2: the clock goes back by 90 s, as at the start of another run"),
        (("10", "90", "88", "95"), "row 2: the clock goes back by 2 s$"),
        (("9", "8", "7", "6", "5", "4"), "not in the order of arrival"),
        (("2026-11-03 10:00:00", "2026-11-03 10:00:01"), "no zone and are read as UTC"),
        (("2026-11-03T10:00Z", "2026-11-03T09:00Z", "2026-11-03T10:10Z"), "goes back by 3,600 s$"),
        (("1787000000", "1786996400", "1787000009"), "goes back by 3,600 s$"),
        (("5", "5"), "all 2 requests arrive at one instant"),
    ],
)
def test_clock_that_goes_back_is_said_with_its_row(times: tuple[str, ...], remark: str, tmp_path: Path) -> None:
    prompts = [f"{time},{'ab'[index % 2]}" for index, time in enumerate(times)]
    trace = imported(tmp_path, "\n".join(["time,prompt", *prompts, ""]))
    assert pd.Series(trace.notes[SAID]).str.contains(remark).any()


@pytest.mark.parametrize(
    ("time", "hour"),
    [
        ("2026-11-03 10:00:00 PST", 18),
        ("2026-11-03T10:00:00CEST", 8),
        ("2026-11-03T10:00:00+01:00[Europe/Berlin]", 9),
        ("2026-11-03 10:00:00 UT", 10),
        ("03/11/2026 10:00:00 EST", 15),
    ],
)
def test_zone_with_one_offset_is_read_by_its_name(time: str, hour: int) -> None:
    cells = pa.chunked_array([[time, time.replace(":00", ":30", 1)]])
    clock = read_clock(cells, Origin("log", {"arrival_s": "time"}), dates="day-first")
    assert [when.isoformat() for when in clock.times.to_pylist()] == [
        f"2026-11-03T{hour:02}:{minute}:00+00:00" for minute in ("00", "30")
    ]


@pytest.mark.parametrize("zone", ["CST", "IST", "Europe/Berlin"])
def test_zone_without_one_offset_is_asked_for(zone: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="with the offset of its zone, not its name"):
        imported(tmp_path, f"time,prompt\n2026-11-03 10:00:00 {zone},a\n")


NO_REQUESTS = "a count for each interval|expected a row a request|expected a record|expected the names of the columns"


@pytest.mark.parametrize(
    "text",
    [
        "4\n5\n4\n7\n12\n",
        "4.5\n5.25\n",
        "hour,invocations\n0,1.07\n1,1.03\n",
        "time,requests_per_minute\n0,10\n60,12\n",
        "timestamp,rps\n1787000000,10\n1787000060,12\n",
        "Time;QPS\n2026-11-03T10:00:00Z;3\n",
        "timestamp,model,request_count\n1787000000,flux,10\n",
        "Time,Requests/s\n0,10\n",
        "time,value\n0,10\n60,12\n",
        "HashOwner,HashFunction,1,2,3\na,b,0,4,2\n",
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
        "time,busy\n0,1\n60,4\n120,3\n180,8\n240,1\n",  # a number at equal intervals
        '[{"hour": 1, "invocations": 3}]',
        "[4, 5, 4, 7]",
        "time,busy,memory\n0,1,9\n60,4,9\n120,3,8\n180,8,7\n240,1,9\n",
        '"Time","sum(rate(x[1m]))"\n2026-11-03 10:00:00,0.5\n',
        "percentile,latency_ms\n50,1200\n99,9000\n",
        "le,count\n0.1,5\n+Inf,30\n",
        '{"metrics": {"http_reqs": {"count": 5}}, "root_group": {}}',
        '# HELP http_requests_total x\n# TYPE http_requests_total counter\nhttp_requests_total{method="post"} 1027\n',
        "Type,Name,Request Count,Median Response Time,Average Response Time,50%\nPOST,/g,9,0,1,1\n",
        "name,p50,p95,p99,prompt\na,1,2,3,b\n",
        "metric,value,timestamp\nup,1,1787000000\n",
        "metric_name,value,time,prompt\nhttp,1,1787000000,\n",
    ],
)
def test_tables_of_intervals_and_statistics_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=NO_REQUESTS) as caught:
        imported(tmp_path, text)
    remedies = ("arrivals=rates arrivals.path=FILE", "export the requests themselves")
    assert any(remedy in str(caught.value) for remedy in remedies)


def test_requests_at_equal_intervals_are_taken_if_told(tmp_path: Path) -> None:
    text = "time,busy\n0,1\n60,4\n120,3\n180,8\n240,1\n"
    assert len(imported(tmp_path, text, leave_out=["busy"])) == 5
    assert len(imported(tmp_path, "time,prompt,p50,p99\n1,a,3,4\n", leave_out=["p50", "p99"])) == 1


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("arrival_s;latency_ms\n0;1.234,5\n1;12,5\n", "latency_s", [1.2345, 0.0125]),
        ('arrival_s,latency_ms\n0,"1,234.5"\n1,12.5\n', "latency_s", [1.2345, 0.0125]),
        ("arrival_s,steps\n0,NULL\n1,20\n", "steps", [None, 20]),
        ("arrival_s,loras\n0,None\n1,a;b\n", "loras", [None, ["a", "b"]]),
        ("arrival_s,size\n0,square_hd\n1,512*768px\n", "height", [1024, 768]),
        ("arrival_s,size\n0,1024px\n1,512 px\n", "width", [1024, 512]),
        ("arrival_s,duration\n0,5s\n1,500 ms\n2,1m30.5s\n3,-\n", "latency_s", [5, 0.5, 90.5, None]),
        ("arrival_s,latency_ms\n0,5s\n1,250ms\n", "latency_s", [5, 0.25]),
        ("arrival_s,seconds,fps\n0,5s,16\n1,3 sec,16\n", "frames", [81, 49]),
        ('{"time": 0, "size": [512, 768]}{"time": 1, "size": {"width": 4, "height": 8}}', "height", [768, 8]),
        ("arrival_s,num_frames,seconds,fps\n0,,5,16\n1,49,,\n", "frames", [81, 49]),
        ("arrival_s,frames,fps,duration\n0,81,16,5\n1,49,16,3\n", "latency_s", [None, None]),
        ("arrival_s,frames,fps,duration\n0,81,16,50\n1,49,16,30\n", "latency_s", [50, 30]),
        ("arrival_s,has_input_image\n0,true\n1,no\n", "input_images", [1, 0]),
        ('{"time": 0, "model": {"name": "xl"}}{"time": 1, "model": "sd"}', "base_model", ["xl", "sd"]),
        ("date,time\n2026-11-03,23:59:59\n2026-11-04,00:00:09\n", "arrival_s", [0, 10]),
        ("time\n20261103100000\n20261103100009\n", "arrival_s", [0, 9]),
        ("\n# exported, by x\n\ntime,prompt\n\n0,a\n5,b\n", "arrival_s", [0, 5]),
        ("# a log\n# time,prompt\n0,a\n5,b\n", "prompt", ["a", "b"]),
        ("time,width,height,size\n0,512,512,\n1,,,64x32\n2,8,8,9x9\n", "height", [512, 32, 8]),
        ('{"time": 0, "loras": [{"name": "x", "w": 1}]}{"time": 1, "loras": ["it\'s"]}', "loras", [["x"], ["it's"]]),
        ('{"time": 0, "loras": {"path": "x"}}{"time": 1, "loras": "[\'a\', \'b\']"}', "loras", [["x"], ["a", "b"]]),
        ('{"v": 1, "requests": [{"time": 0, "prompt": "a"}, {"time": 5, "prompt": "b"}]}', "prompt", ["a", "b"]),
        ('{"time": [0, 5], "prompt": ["a", "b"]}', "prompt", ["a", "b"]),
        ('{"a.png": {"p": "a fox", "se": 1, "c": 7.0, "st": 50, "sa": "k_lms"}}', "prompt", ["a fox"]),
        ('{"a.png": {"p": "a fox", "se": 1, "c": 7.0, "st": 50, "sa": "k_lms"}}', "guidance", [7.0]),
    ],
)
def test_values_as_tools_write_them_are_read(text: str, column: str, expected: list[Any], tmp_path: Path) -> None:
    assert imported(tmp_path, text).table.column(column).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ('time,prompt\n0,"a ""red"" fox, x"\n1,"C:\\path\\"\n2,"x\ny"\n', ['a "red" fox, x', "C:\\path\\", "x\ny"]),
        ('time,prompt\n0,a 5" print\n1,"b" \n', ['a 5" print', "b "]),
        ('time\tprompt\n0\t{"a":"he said \\"hi\\" x"}\n', ['{"a":"he said \\"hi\\" x"}']),
        ('time;prompt\n0;"a ""x"";""y"" b"\n', ['a "x";"y" b']),
    ],
)
def test_quotes_within_cells_are_kept(text: str, prompts: list[str], tmp_path: Path) -> None:
    for content in (text.encode(), text.encode("utf-16")):
        assert imported(tmp_path, content).prompts().to_pylist() == prompts


def test_what_stands_for_another_value_is_said(tmp_path: Path) -> None:
    text = "arrival_s,steps,size,status\n0,N/A,square,200\n1,20,64x64,429\n2,20,64x64,503\n"
    remarks = said(imported(tmp_path, text))
    assert "steps: N/A in 1 rows stands for no value" in remarks
    assert "square as 512x512" in remarks
    assert "status: 2 of 3 requests failed" in remarks
    sizes = "time,width,height,size\n0,512,512,\n1,,,64x32\n"
    assert "size: read in 1 rows without width and height; elsewhere the same" in said(imported(tmp_path, sizes))
    assert "loras: of objects the names are taken" in said(imported(tmp_path, '{"time": 0, "loras": [{"name": "x"}]}'))
    assert "without v beside it" in said(imported(tmp_path, '{"v": 1, "requests": [{"time": 0}, {"time": 5}]}'))
    assert "without 2 lines before the header" in said(imported(tmp_path, "# a\n# b\ntime,prompt\n0,a\n"))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Request(request_id='a', prompt='b')\n", "vllm-omni"),
        ("a boat\nNegative prompt: b\nSteps: 20, Sampler: Euler a, CFG scale: 7\n", "a1111"),
        ("a boat\nSteps: 20, Size: 64x64, Seed: 1, App: SD.Next\n", "a1111"),
        ('{"id": 1, "proxy_server_request": {"prompt": "a"}}\n', "gateway"),
        ('10.0.0.1 - - [03/Nov/2026:10:00:00 +0000] "POST /v1 HTTP/1.1" 200 5 1.2\n', "access-log"),
        ("metric_name,timestamp,metric_value\nhttp_reqs,1787000000,1\n", "k6"),
        ('{"type":"Metric","data":{},"metric":"http_reqs"}\n', "k6"),
        ('{"metadata": {"request_start_ns": 1}, "metrics": {}}\n', "aiperf"),
        ('{"date": "x", "num_prompts": 3, "latencies": [1, 2]}\n', "vllm-bench"),
        ('{"a": {"prompt": [1, "b", {"3": {"class_type": "KSampler"}}]}}', "comfyui"),
        ('{"prompt": "a", "sampling_params": {"x": 1}}\n', "sglang"),
        ('{"ts": 1, "request": {"model": "m", "prompt": "a"}}\n', "gateway"),
    ],
)
def test_format_of_another_source_names_it(text: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"mezzotint trace import {source} FILE"):
        imported(tmp_path, text)


FIELDS = "date time cs-method sc-status time-taken"
LINE = "2026-11-03 10:00:00 POST 200 4100"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"time": 1, "prompt": "a"}'.encode("utf-16"), "JSON in UTF-16, expected UTF-8; .*iconv"),
        (bz2.compress(CSV.encode()), "is bzip2, .*bunzip2"),
        (lzma.compress(CSV.encode()), "is xz, .*unxz"),
        (gzip.compress(b"PAR1" + bytes(50), mtime=0), "holds Parquet or Arrow that is packed once more; unpack it"),
        (gzip.compress(b"t.csv".ljust(257, b"\0") + b"ustar" + bytes(250), mtime=0), "is a tar archive, .*unpack it"),
        (b"SQLite format 3\0\x10\0", "SQLite database, .*as CSV"),
        (b"ORC\n\x06\x12\x04\0", "is ORC, .*Parquet"),
        (b"| time | prompt |\n|---|:--|\n| 1 | a |\n", "drawn for reading .Markdown.*as CSV"),
        (b"+------+\n| time |\n+------+\n", "drawn for reading"),
        (b"images,host=a latency=4.1,steps=30i 1787000000000000000\n", "InfluxDB's line protocol"),
        (b'2026-11-03T10:00:00.1Z stdout F {"prompt": "a"}\n', "log of Kubernetes; .*cut -d' ' -f4-.*import gateway"),
        (b"1787000000000000000,200,4100000000,100,200,,aGk=,a,0,POST,http://x/y,\n", "vegeta encode --to json"),
        (f"#Software: IIS\n#Fields: {FIELDS}\n{LINE}\n".encode(), "W3C's format .IIS, CloudFront.*import gateway"),
        (f"#Fields: {FIELDS}\n{LINE}\n".replace(" ", "\t").encode(), "W3C's format"),
    ],
)
def test_format_that_is_not_read_is_named_with_a_way_out(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        imported(tmp_path, content)


def test_folder_of_shards_is_refused_with_the_source_that_reads_it(tmp_path: Path) -> None:
    for shard in range(2):
        (tmp_path / f"{shard}.csv").write_bytes(CSV.encode())
    with pytest.raises(TraceError, match=r"is a folder, .*`mezzotint trace import huggingface` reads all"):
        Table(path=tmp_path).load(np.random.default_rng(0))


def test_log_of_a_load_balancer_is_read_with_the_format_that_the_message_names(tmp_path: Path) -> None:
    line = (
        'h2 2026-11-03T10:00:04.186641Z app/b/5 192.168.1.9:28 10.0.0.1:80 0.000 4.048 0.000 200 200 0 57 "POST'
        ' https://example.com:443/v1/images HTTP/2.0" "curl/7.46.0" ECDHE TLSv1.2 arn:aws "Root=1-58" "x" "-" 0\n'
    )
    with pytest.raises(TraceError, match=r"log of an AWS load balancer.*access-log FILE --format") as caught:
        imported(tmp_path, line)
    form = str(caught.value).partition("--format '")[2].partition("'")[0]
    trace = SOURCES["access-log"](path=tmp_path / "t.csv", format=form).load(np.random.default_rng(0))  # type: ignore[call-arg]
    assert trace.table["latency_s"].to_pylist() == [4.048]


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
        ("", {}, "is empty, expected a table"),
        ("prompt,arrival_s\n", {}, "found no rows"),
        ("prompt,arrival_s\na,1\nb,2,3\n", {}, r"row 1: found 3 cells \(b,2,3\), expected 2 as in"),
        ("prompt,prompt\na,1\n", {}, "'prompt' twice"),
        ('arrival_s,prompt\n1,a\n2,"b\n3,c\n4,d\n', {}, "row 1: found a quote that is opened and never closed"),
        ('time,prompt\n\n1,b\n0,"a \\"red\\" fox"\n', {}, "row 1: found text after the quote.*Spark"),
        ('time,prompt\n0,"5\\""\n1,"6\\""\n', {}, "found text after the quote that ends a cell"),
        ('time,prompt\n0,"a 12" ruler"\n', {}, r"row 0: found text after the quote .*twice \(\"\"\), or .*--no-quotes"),
        ("text\na\n", {"columns": {"prompt": "txt"}}, "column 'txt' is missing, found text"),
        ("text\na\n", {"columns": {"promt": "text"}}, "cannot map 'text' to 'promt'"),
        ("text\na\n", {"columns": {"prompt": "text", "user_id": "text"}}, "mapped to prompt and user_id"),
        ("text\na\n", {"columns": 3}, "columns: found 3, expected a mapping"),
        ("text\na\n", {"leave_out": "txt"}, "column 'txt' is missing"),
        ("text\na\n", {"leave_out": ["txt"]}, "column 'txt' is missing"),
        ("text\na\n", {"units": {"text": "day"}}, "--unit text=day: expected one of ns, us"),
        ("text\na\n", {"arrival": "noon"}, "arrival='noon', expected one of auto"),
        ("text\na\n", {"limits": Limits(max_prompt_bytes=0)}, "max_prompt_bytes=0"),
        ("text\na\n", {"delimiter": "--"}, "delimiter='--', expected one ASCII character"),
        ("colour:when\nred:3\n", {}, "none of which is a column of a trace.*--delimiter"),
        ("arrival_s;prompt\n1.23,5;a\n", {}, "row 0, column arrival_s: found '1.23,5', expected a number"),
        ("arrival_s\n1\nsoon\n", {}, "row 1, column arrival_s: found 'soon', expected a number"),
        ("prompt,arrival_s\na,1\nb,\n", {}, "row 1, column arrival_s: found null"),
        ("arrival_s,seed\n1,1\n2,99999999999999999999\n", {}, "row 1, column seed: found '9999"),
        ("width,arrival_s\n512,1\n-512,2\n", {}, "row 1, column width: found -512, expected a positive"),
        ("width,arrival_s\n512,nan\n", {}, "row 0, column arrival_s: found null, expected a value"),
        ("loras,arrival_s\na,1\na;b\0,2\n", {}, "found NUL characters"),
        ("request_id,arrival_s\na,2\nb,1\na,1\n", {}, "row 2, column request_id: found 'a', which row 0 has"),
        ("arrival_s\n2024-01-01T00:00+02:00\n2024-01-01\n", {}, "row 1, column arrival_s: .* with no zone"),
        ("arrival_s\n1660000000000\n", {"arrival": "seconds"}, "row 0, .*--arrival unix, mill.* unix-ms"),
        ("arrival_s\n1660000000\n1660000060000\n", {"arrival": "unix"}, "row 1, .*'1660000060000'.* 1900 and 2100"),
        ("ts\n1660000000000000\n1660000060\n", {}, "row 1, column ts: found '1660000060', expected microseconds since"),
        ("arrival_ms,prompt\n0,a\n-5,b\n", {}, "row 1, column arrival_ms: found '-5', expected milliseconds, 0 or"),
        ("time\n1.787E+12\n1.787E+12\n", {}, r"row 0, column time: found '1.787E\+12', which is rounded to 1e\+06 s"),
        ('time\n"Nov 3, 2026 10:00"\n"Nox 4, 2026 10:00"\n', {}, "row 1, column time: found 'Nox 4, 2026 10:00', exp"),
        ("arrival_s\n2022-01-01\n9999-01-01\n", {}, "row 1, .*9999-01-01.* between 1900 and 2100"),
        ("arrival_s\n2022-01-01\n1970-01-01\n", {}, r"row 0, .*52 years after that of row 1, expected at most 1e\+09"),
        ("time,size\n1,16:9\n", {}, "row 0, column size: found '16:9', expected WIDTHxHEIGHT"),
        ("time,steps,size\n0,20,1024\n1,20,11000\n", {}, "row 1, column size: found '11000', .*--map size= goes"),
        ("time,size\n0,720\n", {}, "row 0, column size: found '720', expected WIDTHxHEIGHT"),
        ("time,size\n0,64x64\n1,720p\n", {}, "row 1, column size: found '720p', .*such as 1280x720 if that is what"),
        ("time,size\n0,4K\n", {}, "row 0, column size: found '4K', expected WIDTHxHEIGHT in pixels, such as 3840x2160"),
        ("time,duration\n0,5\n1,5s\n", {}, "row 1, column duration: found '5s', expected a number"),
        ("time,duration\n0,5m\n1,-3s\n", {}, "row 0, column duration: found '5m', expected a number"),
        ("time,lora\n0,\n1,true\n2,no\n", {}, "row 1, column lora: found 'true', expected their names .*--map loras= "),
        ("time,seconds,fps\n0,8,16\n1,8,\n2,,\n", {}, "row 1, column fps: found null beside seconds.*--map video_s="),
        ("time,guidance\n1,\"1,500\"\n", {}, "row 0, column guidance: found '1,500', expected a number whose comma"),
        ("time\nnull\nnan\n", {}, "row 0, column time: found null"),
        ("time,width\n1,\"1,024\"\n", {}, "row 0, column width: found '1,024'"),
        ("time,prompt\n3/13/2026,a\n13/3/2026,b\n", {}, "row 0, .*expected day and month in the order of other rows"),
        ("1,2\n3,4\n", {}, "found numbers .*put them before it, such as arrival_ms,prompt"),
        ('{"time": 0}\n{"time": 1, "steps": 10, "steps": 20}\n', {}, "value 1: .*key 'steps' is there twice"),
        ('["a", "b"]', {}, "value 0: found 'a', expected a record .*trace import prompts"),
    ],
)  # fmt: skip
def test_malformed_table_is_refused(text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        imported(tmp_path, text, **options)
    assert "t.csv" in str(caught.value) or "limits" in options
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["zstd", "zip", "arrow file", "arrow stream", "parquet"])
def test_damaged_files_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"t\.csv"):
        imported(tmp_path, KINDS[kind][: len(KINDS[kind]) * 2 // 3])


def test_invalid_text_of_parquet_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"size": pa.array([b"\xff"]).view(pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"t\.parquet: holds data that is not valid"):
        Table(path=tmp_path / "t.parquet").load(np.random.default_rng(0))


def test_zip_of_several_files_and_workbooks_are_refused(tmp_path: Path) -> None:
    for names, message in ((("a", "b"), "found 2 files in the zip"), (("[Content_Types].xml",), "Excel workbook")):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, CSV)
        with pytest.raises(TraceError, match=message):
            imported(tmp_path, file.getvalue())


@pytest.mark.parametrize("pack", [zipped, lambda text: pa.compress(text.encode(), "zstd", asbytes=True)])
def test_bombs_are_refused(pack: Any, tmp_path: Path) -> None:
    bomb = pack("prompt\n" + ("x" * 99 + "\n") * 20_000)
    with pytest.raises(TraceError, match="more than 1,000,000 bytes"):
        imported(tmp_path, bomb, limits=Limits(max_bytes=1_000_000))
    assert len(imported(tmp_path, bomb, limits=Limits(max_bytes=3_000_000))) == 20_000


def test_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([["a"], ["b"]], names=["prompt", "prompt"]), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="prompt"):
        Table(path=tmp_path / "t.parquet").load(np.random.default_rng(0))
    with pytest.raises(TraceError, match="found column 'prompt' twice"):
        imported(tmp_path, "prompt,prompt \na,b\n")


@pytest.mark.parametrize("seed", [2**63 - 1, 2**63, 2**64 - 1])
def test_seeds_of_64_bits_are_read_exactly(seed: int, tmp_path: Path) -> None:
    """ComfyUI draws seeds up to 2^64 - 1: half of them are above 2^63."""
    trace = imported(tmp_path, f"prompt,seed\na,{seed}\nb,\n")
    assert trace.table.column("seed").to_pylist() == [seed, None]
    with pytest.raises(TraceError, match=rf"column seed: found '{2**64}', expected a whole number from 0 to 2\^64 - 1"):
        imported(tmp_path, f"prompt,seed\na,{2**64}\n")


def test_file_with_seeds_of_63_bits_is_read_and_keeps_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    trace = write(imported(tmp_path, "prompt,seed\na,5\nb,\n"), path)
    stored = pq.read_table(path)
    place, field = stored.schema.get_field_index("seed"), stored.schema.field("seed").with_type(pa.int64())
    former = stored.set_column(place, field, stored["seed"].cast(pa.int64()))
    pq.write_table(former.replace_schema_metadata(stored.schema.metadata), path)
    assert read(path).digest == trace.digest
    assert read(path).table.column("seed").to_pylist() == [5, None]


def test_objects_in_cells_name_the_source_that_reads_them(tmp_path: Path) -> None:
    records = [{"arrival_s": place, "payload": {"prompt": prompt}} for place, prompt in enumerate("ab")]
    texts = pd.DataFrame(records).assign(payload=[json.dumps(record["payload"]) for record in records])
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet")
    structs = Table(path=tmp_path / "t.parquet").load(np.random.default_rng(0))
    for trace in (imported(tmp_path, texts.to_csv(index=False)), structs):
        assert "import gateway` reads" in trace.notes["columns_left_out"]["payload"]


def test_times_since_1970_in_few_bits_are_refused(tmp_path: Path) -> None:
    times = pa.array([1787000000.0, 1787000009.0])
    for kind in (pa.float32(), pa.float64()):
        pq.write_table(pa.table({"time": times.cast(kind, safe=False)}), tmp_path / "t.parquet")
        table = Table(path=tmp_path / "t.parquet")
        if kind == pa.float64():
            assert table.load(np.random.default_rng(0)).arrival_s.tolist() == [0, 9]
        else:
            with pytest.raises(TraceError, match="column time: found 32-bit floats of times since 1970"):
                table.load(np.random.default_rng(0))


def test_numbers_of_images_and_steps_may_count_the_rows_if_told(tmp_path: Path) -> None:
    text = "time,n\n0,1\n1,2\n2,3\n"
    assert "n (the number of the row)" in said(imported(tmp_path, text))
    assert imported(tmp_path, text, columns={"images": "n"}).column("images").tolist() == [1, 2, 3]
    assert "_step (the number of the row)" in said(imported(tmp_path, "_timestamp,_step\n0,0\n1,1\n2,2\n"))
    assert imported(tmp_path, "time,step\n0,1\n1,2\n2,4\n").column("steps").tolist() == [1, 2, 4]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_keep_the_unit_of_their_type(unit: str, tmp_path: Path) -> None:
    ticks = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    durations = pa.array([0, 2 * ticks, None, 300 * ticks], pa.duration(unit))
    table = pa.table({"time": durations.fill_null(0), "latency_ms": durations, "prompt": list("abcd")})
    pq.write_table(table, tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    trace = Table(path=path).load(np.random.default_rng(0))
    assert trace.arrival_s.tolist() == [0, 0, 2, 300]
    assert trace.table["latency_s"].to_pylist() == [0, None, 2, 300]
    with pytest.raises(TraceError, match=r"holds durations in .*; leave the option out"):
        Table(path=path, units={"latency_ms": "h"}).load(np.random.default_rng(0))
    frame = pd.DataFrame({"prompt": ["a", "b"]}, index=pd.to_timedelta([0, 1500], "ms"))
    assert read(mezzotint.trace(frame)).arrival_s.tolist() == [0, 1.5]


def test_lists_and_numbers_of_parquet_are_read(tmp_path: Path) -> None:
    table = pa.table({
        "timestamp": pa.array([1787000000000001, 1787000000000251], pa.timestamp("us", "UTC")),
        "loras": [["a;b"], []], "steps": pa.array([20.0, None]), "raw": [{"a": 1}, None], "seed": [2**62, 1],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    trace = Table(path=tmp_path / "t.parquet").load(np.random.default_rng(0))
    assert trace.arrival_s.tolist() == [0.0, 0.00025]
    assert trace.table.column("loras").to_pylist() == [["a;b"], []]
    assert (trace.column("steps").tolist(), trace.column("seed").tolist()) == ([20, -1], [2**62, 1])
    assert "struct" in trace.notes["columns_left_out"]["raw"]
    assert json.dumps(trace.notes)
