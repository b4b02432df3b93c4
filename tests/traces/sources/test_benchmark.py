"""Result files of benchmark clients: arrivals and latencies are the file's own."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.benchmark import AIPerf, VllmBench
from mezzotint.traces.sources.result import open_result
from mezzotint.traces.table.trace import Trace, make, read, write
from tests.conftest import ORACLES

RNG = np.random.default_rng(0)
AIPERF = ORACLES / "loopback" / "profile_export.jsonl"


def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in AIPERF.read_text().splitlines()]


def rewritten(changed: list[dict[str, Any]], folder: Path) -> Trace:
    path = folder / "profile_export.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in changed))
    return AIPerf(path=path).load(RNG)


def test_aiperf_arrivals_and_latencies_are_those_of_the_file() -> None:
    """Arrivals are exact to a nanosecond, although as floats times since 1970 are not."""
    trace = AIPerf(path=AIPERF).load(RNG)
    by_start = sorted(records(), key=lambda record: record["metadata"]["request_start_ns"])
    starts = [record["metadata"]["request_start_ns"] for record in by_start]
    assert [round(1e9 * arrival) for arrival in trace.arrival_s] == [start - starts[0] for start in starts]
    latencies_ms = [record["metrics"]["request_latency"]["value"] for record in by_start]
    assert trace.column("latency_s").tolist() == [latency / 1000 for latency in latencies_ms]
    assert trace.table.column("request_id").to_pylist() == [r["metadata"]["x_request_id"] for r in by_start]


def test_aiperf_requests_have_the_size_and_prompt_of_their_own_payload(tmp_path: Path) -> None:
    """The bodies in inputs.json go by conversation, whatever the order of the answers."""
    lines = records()
    bodies = {
        record["metadata"]["conversation_id"]: {"prompt": f"p{row}", "size": f"{64 * (row + 1)}x32", "n": row + 1}
        for row, record in enumerate(lines)
    }
    sessions = [{"session_id": name, "payloads": [body]} for name, body in reversed(bodies.items())]
    (tmp_path / "inputs.json").write_text(json.dumps({"data": sessions}))
    trace = rewritten(lines[::-1], tmp_path)
    row_of = {record["metadata"]["x_request_id"]: row for row, record in enumerate(lines)}
    rows = [row_of[name] for name in trace.table.column("request_id").to_pylist()]
    assert trace.prompts().to_pylist() == [f"p{row}" for row in rows]
    assert trace.column("width").tolist() == [64 * (row + 1) for row in rows]
    assert trace.column("images").tolist() == [row + 1 for row in rows]


def test_aiperf_without_payloads_has_times_and_no_sizes(tmp_path: Path) -> None:
    trace = rewritten(records(), tmp_path)
    assert len(trace) == 80
    assert trace.table.column("width").null_count == trace.table.column("prompt").null_count == 80


def test_aiperf_skips_and_counts_what_was_not_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = records()
    lines[0]["metadata"]["benchmark_phase"] = "warmup"
    lines[1]["metadata"]["was_cancelled"] = True
    lines[2]["error"] = {"code": 500, "message": "out of memory"}
    del lines[2]["metrics"]
    assert len(rewritten(lines, tmp_path)) == 77
    source, out = tmp_path / "profile_export.jsonl", tmp_path / "t.parquet"
    assert main(["trace", "import", "aiperf", str(source), "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    for reason in ("of the warm-up", "cancelled", "failed"):
        assert f"skipped 1 rows of the source: {reason}" in printed


@pytest.mark.parametrize(("unit", "value"), [("s", 0.25), ("ms", 250.0), ("us", 250_000), ("ns", 250_000_000)])
def test_aiperf_latency_has_its_own_unit(unit: str, value: float, tmp_path: Path) -> None:
    lines = records()
    lines[0]["metrics"]["request_latency"] = {"value": value, "unit": unit}
    name = lines[0]["metadata"]["x_request_id"]
    trace = rewritten(lines, tmp_path)
    row = trace.table.column("request_id").to_pylist().index(name)
    assert trace.column("latency_s")[row] == 0.25


def test_unknown_unit_is_refused_by_row(tmp_path: Path) -> None:
    lines = records()
    lines[3]["metrics"]["request_latency"]["unit"] = "fortnights"
    with pytest.raises(TraceError, match=r"row 3, column request_latency: found .*fortnights.*expected"):
        rewritten(lines, tmp_path)


VLLM = {"start_times": [1000.0, 1004.2, 1011.9], "e2els": [4.1, 4.2, 13.8], "errors": ["", "", ""]}
SPLIT = {"ttfts": [4.0, 4.0, 13.0], "itls": [[0.1], [0.1, 0.1], [0.8]]}


@pytest.mark.parametrize(
    "lists",
    [
        VLLM,
        {"start_times": VLLM["start_times"], "latencies": VLLM["e2els"]},
        {"start_times": VLLM["start_times"], "e2els_ms": [4100.0, 4200.0, 13800.0]},
        {"start_times": VLLM["start_times"], **SPLIT},
    ],
)
def test_vllm_lists_give_arrivals_and_latencies(lists: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"num_prompts": 3, "request_rate": 0.2, **lists}))
    trace = VllmBench(path=tmp_path / "r.json").load(RNG)
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 4.2, 11.9])
    assert trace.column("latency_s").tolist() == pytest.approx([4.1, 4.2, 13.8])


def test_vllm_failures_are_skipped_and_sizes_taken(tmp_path: Path) -> None:
    content = {**VLLM, "errors": ["", "timed out", ""], "size": "512x768", "num_inference_steps": 20}
    (tmp_path / "r.json").write_text(json.dumps(content))
    trace = VllmBench(path=tmp_path / "r.json").load(RNG)
    assert trace.column("latency_s").tolist() == [4.1, 13.8]
    assert trace.notes["skipped"]["failed"] == 1
    assert (trace.column("width")[0], trace.column("height")[0], trace.column("steps")[0]) == (512, 768, 20)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"start_times": [1.0]}, "has no list of latencies"),
        ({"e2els": [1.0]}, "has no list of starts"),
        ({"start_times": [1.0, 2.0], "e2els": [1.0]}, "e2els: found .* expected 2 values, as many as start_times"),
        ({"start_times": [1.0], "e2els": ["x"]}, "e2els: row 0: found 'x', expected a number"),
        ({"start_times": [1.0], "e2els_ms": ["x"]}, "e2els_ms: row 0: found 'x', expected a number"),
        ({"start_times": [1.0], "ttfts": ["x"], "itls": [[]]}, "ttfts: row 0: found 'x', expected a number"),
        ({"start_times": [1.0], "ttfts": [1.0], "itls": [0.1]}, "itls: found .* expected 1 lists of seconds"),
        ({"start_times": [1.0], "ttfts": [None], "itls": [[]]}, "no requests are left of 1"),
        (
            {"start_times": [1.0, 5.0], "e2els": [1e3, 4e3], "duration": 9},
            "e2els: found a mean latency of 2500 s in a",
        ),
        (
            {"start_times": [1, 5], "ttfts": [9e2, 4e3], "itls": [[1], [2]], "duration": 9},
            "ttfts .*in milliseconds",
        ),
        (
            {"start_times": [1e3, 5e3], "e2els": [1, 4], "duration": 9},
            "start_times: found a time of 4000 s",
        ),
        ({"start_times": [1.0], "e2els": [1.0], "errors": ["no"]}, "no requests are left of 1"),
        ({"start_times": [1.0], "ttfts": [0.0], "itls": [[]]}, "no requests are left of 1"),
    ],
)
def test_vllm_result_without_its_lists_is_refused(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(TraceError, match=message):
        VllmBench(path=tmp_path / "r.json").load(RNG)


def test_result_is_opened_by_its_content(tmp_path: Path) -> None:
    """AIPerf's lines, vllm's lists, a trace and a table of requests; engines' aggregates are statistics."""
    columns = {"request_id": ["a", "b"], "arrival_s": [0.0, 1.0], "latency_s": [0.5, 0.75]}
    write(make(columns, name="t", source="s"), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("arrival_s,latency_s\n0,0.5\n1,0.75\n")
    (tmp_path / "v.json").write_text(json.dumps(VLLM))
    counts = {}
    for path in (AIPERF, tmp_path / "v.json", tmp_path / "t.parquet", tmp_path / "t.csv"):
        trace = open_result(path)
        assert isinstance(trace, Trace)
        counts[path.name] = len(trace)
    assert counts == {"profile_export.jsonl": 80, "v.json": 3, "t.parquet": 2, "t.csv": 2}
    assert read(tmp_path / "t.parquet").digest


@pytest.mark.parametrize(
    ("content", "mean_s", "per_minute"),
    [
        ({"latency_mean": 0.5, "latency_p99": 2.0, "throughput_qps": 3.0, "completed_requests": 9}, 0.5, 180.0),
        ({"mean_e2el_ms": 500.0, "p99_e2el_ms": 2000.0, "request_throughput": 3.0, "completed": 9}, 0.5, 180.0),
        (
            {"request_latency": {"avg": 500.0, "p99": 2000.0, "unit": "ms"}, "request_throughput": {"avg": 3.0}},
            0.5,
            180.0,
        ),
        (
            {
                "request_latency": {"avg": 0.5, "p99": 2.0, "unit": "sec"},
                "request_throughput": {"avg": 180.0, "unit": "requests/min"},
            },
            0.5,
            180.0,
        ),
    ],
)
def test_aggregates_have_one_unit(content: dict[str, Any], mean_s: float, per_minute: float, tmp_path: Path) -> None:
    """vLLM-Omni and SGLang in seconds, `vllm bench` and AIPerf in milliseconds."""
    (tmp_path / "m.json").write_text(json.dumps(content))
    found = open_result(tmp_path / "m.json")
    assert isinstance(found, dict)
    assert (found["mean"], found["p99"], found["throughput"]) == (mean_s, 2.0, per_minute)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"max_concurrency": 4, "request_rate": "inf"}, {"max_in_flight": 4.0, "sent_rpm": math.inf}),
        ({"max_concurrency": None, "request_rate": 0.5}, {"sent_rpm": 30.0}),
        ({"input_config": {"loadgen": {"concurrency": 2, "request_rate": None}}}, {"max_in_flight": 2.0}),
        ({"max_concurrency": True, "request_rate": "trace"}, {}),
    ],
)
def test_client_says_how_it_sent(content: dict[str, Any], expected: dict[str, float], tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps({"latency_mean": 0.5, **content}))
    assert open_result(tmp_path / "m.json") == {"mean": 0.5, **expected}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.json", '{"a": 1}', "found the keys a, expected a mean latency"),
        ("m.csv", "arrival_s,prompt\n0,a\n", "has no latencies"),
        ("m.csv", "latency_s,prompt\n1,a\n", "an order of requests and no times"),
        ("m.json", '{"a": ', "cannot be read as JSON"),
        ("m.json", '{"request_latency": {"avg": 1, "unit": "ticks"}}', "request_latency.avg: found the unit 'ticks'"),
        ("m.json", '{"request_throughput": {"avg": 1, "unit": "ms"}}', "expected requests/sec"),
        ("m.json", '{"latency_mean": 1, "latency_p99": NaN}', "latency_p99: found nan, expected a finite number"),
        ("m.json", '{"latency_mean": 0, "completed_requests": 0}', "found no completed request"),
        (
            "m.json",
            '{"latency_mean": 5900, "duration": 120}',
            "latency_mean: found .* of 5900 s in a run of 120 s",
        ),
        ("m.json", '{"mean_e2el_ms": 1, "start_times": [1, 2], "e2els": [1]}', "e2els: found .* expected 2 values"),
    ],
)
def test_file_that_is_no_result_is_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TraceError, match=message):
        open_result(tmp_path / name)


@pytest.mark.parametrize(("column", "good", "bad"), [("status", "200", "503"), ("error", "", "timeout")])
def test_failed_requests_of_a_table_are_load_without_a_latency(
    column: str, good: str, bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "of_a_server.csv"
    path.write_text(f"arrival_s,latency_s,gen_s,{column}\n0,6.0,5.0,{good}\n1,60.0,,{bad}\n2,0.01,0.01,{bad}\n")
    trace = open_result(path)
    assert isinstance(trace, Trace)
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.0]
    assert trace.table.column("latency_s").to_pylist() == [6.0, None, None]
    assert trace.table.column("gen_s").to_pylist() == [5.0, None, None]
    said = capsys.readouterr().err
    assert f"{path.name}: {column}: 2 of 3 requests failed by their {column}" in said
    assert f"{path.name}: taken: arrival_s" in said
