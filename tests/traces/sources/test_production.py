"""The production traces: real files of GenTD26, and files in SwiftDiffusion's published format."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.trace import Trace

TextFile = Callable[..., Path]

TIMED = (
    "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,num_images_per_prompt,num_inference_steps,"
    "checkpoint_model_version_id,num_lora\n"
)
UNTIMED = (
    "predict_type,exec_time_seconds,num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,lora_args\n"
)


def load(source: Any) -> Trace:
    trace: Trace = source.load(np.random.default_rng(0))
    return trace


def test_gentd26_timed_sample_is_imported(data: Path) -> None:
    path = str(data / "gentd26" / "lora_request_trace.csv")
    trace = load(LOGS["gentd26"](path=path))
    assert len(trace) == 17_764
    assert trace.span_s / 86400 == pytest.approx(17.29, abs=0.01)
    assert len(trace.table.column("user_id").unique()) == 3_044
    assert sum(trace.notes["loras_per_request"].values()) == 17_764
    assert sum(trace.notes["status"].values()) == 17_764
    assert trace.notes["status"]["FAILED"] == 280
    assert Counter(trace.column("images").tolist())[4] == 3_477
    assert trace.table.column("prompt").null_count == trace.table.column("width").null_count == 17_764
    # a known number of unknown LoRAs is neither none nor a name
    loras = trace.table.column("loras")
    assert loras.null_count == 17_764 - trace.notes["loras_per_request"]["0"]
    assert pc.sum(pc.list_value_length(loras)).as_py() == 0

    done = load(LOGS["gentd26"](path=path, drop_failed=True))
    assert len(done) == 17_467
    assert done.notes["skipped"] == {"predict_status is not SUCCEED": 297}
    text = load(LOGS["gentd26"](path=path, text_only=True))
    assert len(text) == 16_296
    unnamed = load(LOGS["gentd26"](path=path, unnamed_loras=True))
    lengths = pc.list_value_length(unnamed.table.column("loras")).to_pylist()
    assert {str(number): count for number, count in Counter(lengths).items()} == trace.notes["loras_per_request"]
    assert "made up" in unnamed.notes["loras"]


def test_gentd26_untimed_sample_is_imported(data: Path) -> None:
    trace = load(LOGS["gentd26"](path=str(data / "gentd26" / "data_trace_processed.first40k.csv.gz")))
    assert len(trace) == 40_000
    assert "needs an arrival process" in trace.notes["arrival_s"]
    lengths = pc.list_value_length(trace.table.column("loras"))
    assert pc.sum(lengths).as_py() == 11_670
    assert trace.notes["loras_per_request"]["0"] == 29_440
    assert trace.table.column("user_id").null_count == 40_000


def test_gentd26_rows_become_requests(text_file: TextFile) -> None:
    path = text_file(
        TIMED
        + "2024-11-15 10:00:05,TXT_2_IMG,SUCCEED,3.0,g1,4.0,30.0,m1,2\n"
        + "2024-11-15 10:00:00,INPAINTING,FAILED,0.0,g2,,,,0\n"
    )
    trace = load(LOGS["gentd26"](path=str(path), unnamed_loras=True))
    rows = trace.table.to_pylist()
    assert [row["request_id"] for row in rows] == ["1", "0"]
    assert trace.arrival_s.tolist() == [0.0, 5.0]
    assert (rows[0]["steps"], rows[0]["base_model"], rows[0]["loras"]) == (None, None, [])
    assert (rows[1]["images"], rows[1]["user_id"], rows[1]["loras"]) == (4, "g1", ["unnamed-1", "unnamed-2"])
    with pytest.raises(TraceError, match="no requests are left of 2"):
        load(
            LOGS["gentd26"](
                path=str(text_file(TIMED + "2024-11-15 10:00:00,INPAINTING,FAILED,0,g,1,1,m,0\n" * 2)), drop_failed=True
            )
        )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", {}, "column 'num_inference_steps' is missing"),
        (TIMED + "2024-11-15 10:00:00,T,S,3,g,4,30,m,-1\n", {}, "row 0, column num_lora: found -1, expected 0 to 1000"),
        (TIMED + "noon,T,S,3,g,4,30,m,1\n", {}, "row 0, column gmt_create: found 'noon', expected a time"),
        (UNTIMED + "T,3,4,30,m,[]\n", {"drop_failed": True}, "has no times, status and kinds"),
        (UNTIMED + "T,3,4,30,m,__import__('os')\n", {}, "row 0, column lora_args: found"),
    ],
)
def test_malformed_gentd26_is_refused(text_file: TextFile, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        load(LOGS["gentd26"](path=str(text_file(text)), **options))
    assert "t.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def record(**changes: Any) -> dict[str, Any]:
    base = {
        "timestamp": "2024-03-01 00:00:00",
        "ip": "node-1",
        "scene_id": "A",
        "base_model_id": "m1",
        "controlnets": ["c1", "c2"],
        "loras": ["l1"],
    }
    return {**base, **changes}


@pytest.fixture
def katz(tmp_path: Path) -> Callable[..., Any]:
    def source(*records: Any, lines: bool = False, zipped: bool = False, **options: Any) -> Any:
        text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records, indent=1)
        path = tmp_path / "trace.json"
        path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
        return LOGS["katz"](path=str(path), **options)

    return source


@pytest.mark.parametrize("form", [{}, {"lines": True}, {"zipped": True}])
@pytest.mark.parametrize(
    ("stamps", "unit"),
    [
        (["2024-03-01 00:00:02.5", "2024-03-01 00:00:00"], "text"),
        (["2024-03-01T01:00:02.5+01:00", "2024-03-01T00:00:00Z"], "text"),
        ([1_709_251_202.5, 1_709_251_200], "seconds since 1970"),
        ([1_709_251_202_500, 1_709_251_200_000], "milliseconds since 1970"),
    ],
)
def test_katz_reads_every_form(katz: Callable[..., Any], stamps: list[Any], unit: str, form: dict[str, Any]) -> None:
    trace = load(
        katz(
            record(timestamp=stamps[0], loras=None, ip="node-2", scene_id="B"),
            record(timestamp=stamps[1], base_model_id=7),
            **form,
        )
    )
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    first, second = trace.table.to_pylist()
    assert (first["request_id"], second["request_id"]) == ("A/node-1/1", "B/node-2/0")
    assert (first["base_model"], second["base_model"]) == ("7", "m1")
    assert (first["controlnets"], first["loras"], second["loras"]) == (["c1", "c2"], ["l1"], [])
    assert first["user_id"] is first["prompt"] is first["width"] is None
    assert trace.notes["services"] == {"A": 1, "B": 1}
    assert (trace.notes["nodes"], trace.notes["times"]) == (2, unit)


def test_katz_is_filtered_by_service_and_node(katz: Callable[..., Any]) -> None:
    records = [record(ip="n1"), record(ip="n2"), record(ip="n1", scene_id="B")]
    assert len(load(katz(*records, service="A"))) == 2
    only = load(katz(*records, service="A", node="n1"))
    assert only.table.column("request_id").to_pylist() == ["A/n1/0"]
    assert only.notes["services"] == {"A": 2, "B": 1}
    with pytest.raises(TraceError, match=r"no requests are left of 3 \(services A, B\); check --service"):
        load(katz(*records, service="C"))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([7], "row 0: found 7, expected a valid dict"),
        ([record(), {"timestamp": 1}], "row 1, column ip: found nothing, expected a value"),
        ([record(), record(timestamp=5)], "row 1, column timestamp: found 5, expected text as in the rows before"),
        ([record(timestamp=5), record(timestamp=5e12)], "row 1, column timestamp: found 5000000000000.0, expected sec"),
        ([record(ip=None)], "row 0, column ip: found None"),
        ([record(loras="l1")], "row 0, column loras: found 'l1', expected a valid list"),
    ],
)
def test_malformed_katz_is_refused(katz: Callable[..., Any], records: list[Any], message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        load(katz(*records))
    assert "trace.json" in str(caught.value)
    assert "\n" not in str(caught.value)
