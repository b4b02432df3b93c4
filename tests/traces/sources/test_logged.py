"""Logs of servers, clients and image tools: one request a request, and what was taken or left out is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, PngImagePlugin

from mezzotint.sim.cli import main
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.recognise import MARKS, other_format
from mezzotint.traces.sources.command import sources
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.logged import SOURCES
from mezzotint.traces.sources.table import Table
from mezzotint.traces.table.trace import Trace


def load(form: str, content: str, folder: Path, **options: Any) -> Trace:
    (folder / "log").write_text(content, encoding="utf-8")
    source: Any = SOURCES[form]
    trace: Trace = source(path=folder / "log", **options).load(np.random.default_rng(0))
    return trace


def rows(trace: Trace) -> list[dict[str, Any]]:
    """The requests, without null columns and extras; seconds to the microsecond."""
    return [
        {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in row.items()
            if value is not None
        }
        for row in trace.table.drop_columns(["extras"]).to_pylist()
    ]


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


CHAT = [
    {"role": "user", "content": [{"type": "text", "text": "snow"}, {"type": "image_url", "image_url": {"url": "d"}}]}
]
AT = "2026-11-03T10:00:00Z"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"created": 1787000000, "prompt": "a", "n": 2, "size": "64x32"}, {"images": 2, "width": 64, "height": 32}),
        (
            {"ts": AT, "request": {"prompt": "a", "num_inference_steps": 9}, "latency_ms": 1500},
            {"steps": 9, "latency_s": 1.5},
        ),
        ({"ts": AT, "prompt": "a", "latency_ms": 1500, "status": "200 OK"}, {"latency_s": 1.5}),
        ({"ts": AT, "input": {"prompt": "a"}, "metrics": {"predict_time": 2}}, {"gen_s": 2.0}),
        ({"timestamp": 1787000000123, "body": {"prompt": "a", "guidance_scale": 4}}, {"guidance": 4.0}),
        ({"time": AT, "request_body": '{"prompt": "a", "seed": 3}'}, {"seed": 3}),
        (
            {"ts": AT, "payload": {"model": "m", "messages": CHAT}},
            {"base_model": "m", "prompt": "snow", "input_images": 1},
        ),
        ({"ts": AT, "messages": CHAT, "extra_body": {"true_cfg_scale": 2}}, {"prompt": "snow", "guidance": 2.0}),
        ({"ts": AT, "prompt": "a", "seconds": "5", "fps": 16, "size": "auto"}, {"frames": 81}),
        ({"ts": AT, "prompt": "a", "images": ["x", "y"]}, {"input_images": 2}),
        ({"ts": AT, "input": {"prompt": "a"}, "parameters": {"duration": 5, "fps": 16}}, {"frames": 81}),
        ({"ts": AT, "request": {"prompt": "a", "body": {"duration": 5, "fps": 16}}, "duration": 9}, {"latency_s": 9.0}),
        ({"ts": AT, "prompt": "a", "images": 3}, {"images": 3}),
        ({"ts": AT, "prompt": "a", "size": [64, 32]}, {"width": 64, "height": 32}),
        ({"ts": AT, "prompt": "a", "size": {"width": 64, "height": 32}}, {"width": 64, "height": 32}),
        ({"ts": AT, "payload": {"prompt": "a", "images": [{"url": "u", "width": 64}] * 2}}, {"images": 2}),
        ({"ts": AT, "prompt": "a", "images": [{"url": "u"}]}, {"input_images": 1}),
        ({"createdAt": AT, "completedAt": "2026-11-03T10:00:02.5Z", "prompt": "a"}, {"latency_s": 2.5}),
        ({"ts": AT, "prompt": "a", "time_taken": "1 min. 5.2 sec."}, {"latency_s": 65.2}),
        ({"ts": AT, "prompt": "a", "image": "data:image/png;base64,AA;BB"}, {"input_images": 1}),
        ({"startTime": AT, "endTime": "2026-11-03T10:00:02.5Z", "prompt": ["a"]}, {"latency_s": 2.5, "prompt": "a"}),
        ({"response": {"created": 1787000000}, "prompt": "a", "latency": 2.5}, {"latency_s": 2.5}),
        (
            {"ts": AT, "prompt": "a", "user": "u", "lora": [{"name": "ink", "scale": 1}]},
            {"user_id": "u", "loras": ["ink"]},
        ),
    ],
)
def test_gateway_record_is_read(record: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    (found,) = rows(load("gateway", lines(record), tmp_path))
    assert found.items() >= expected.items()
    assert found["arrival_s"] == 0.0


def test_failed_requests_are_kept_or_skipped_by_status(tmp_path: Path) -> None:
    statuses = [200, 400, 429, 408, 499, 500, "completed", "failed"]
    log = lines(
        *({"ts": index, "prompt": "a", "status": status, "latency_s": 1.5} for index, status in enumerate(statuses))
    )
    trace = load("gateway", log, tmp_path)
    assert [row["arrival_s"] for row in rows(trace)] == [0, 3, 4, 5, 6, 7]
    assert ["latency_s" in row for row in rows(trace)] == [True, False, False, False, True, False]
    assert sum(trace.notes["skipped"].values()) == 2
    assert len(load("gateway", log, tmp_path, keep_refused=True)) == 8
    assert len(load("gateway", log, tmp_path, drop_failed=True)) == 2


@pytest.mark.parametrize(
    ("outcome", "is_served"),
    [
        ({"response_code": 503}, False),
        ({"response_code": 0}, False),
        ({"status-code": 500}, False),
        ({"statusCode": 500}, False),
        ({"task_status": "FAILED"}, False),
        ({"code": 500}, False),
        ({"code": 0}, True),  # of an API's own, where it is a success
        ({"ok": False}, False),
        ({"ok": 1}, True),
        ({"success": 0}, False),
        ({"status": 200, "success": False}, False),
        ({"status": "200.0"}, True),
        ({"status": {"code": 503}}, False),
        ({"status_code": 200, "status": "failed"}, False),
        ({"status_code": 200, "status": "cached"}, True),
        ({"status_code": 200, "code": 404}, True),  # of an article
        ({"status": 200, "error_code": 0, "error_message": "out of memory"}, False),
    ],
)
def test_outcome_of_any_name_is_read(outcome: dict[str, Any], is_served: bool, tmp_path: Path) -> None:
    record = {"ts": 1, "prompt": "a", "latency_s": 1.5, **outcome}
    assert [row.get("latency_s") for row in rows(load("gateway", lines(record), tmp_path))] == [
        1.5 if is_served else None
    ]
    if len(outcome) == 1 and "status" not in outcome:
        trace = Table(path=tmp_path / "log").load(np.random.default_rng(0))
        assert any("failed by their" in text for text in trace.notes[SAID]) is not is_served


def test_table_of_a_gateway_is_read_as_its_json(tmp_path: Path) -> None:
    text = "timestamp;prompt;status;latency_ms\n0;a;200;5100\n2;b;429;3\n4;c;500;80\n"
    assert [row.get("latency_s") for row in rows(load("gateway", text, tmp_path))] == [5.1, None]


def test_fields_of_the_web_ui_mean_what_it_does(tmp_path: Path) -> None:
    """n_iter batches of batch_size; the strength of a text to image is that of its second pass."""
    body = {"prompt": "a", "batch_size": 2, "n_iter": 3, "denoising_strength": 0.4, "steps": 20}
    records = [
        {"ts": 0, "path": "/sdapi/v1/txt2img", "body": body},
        {"ts": 1, "body": body | {"enable_hr": True, "hr_scale": 2, "n_iter": 1}},
        {"ts": 2, "path": "/sdapi/v1/img2img", "body": body | {"init_images": ["A"]}},
        {"ts": 3, "body": {"prompt": "a", "n_iter": 4}},
        {"ts": 4, "body": {"prompt": "a", "batch_size": "2", "n_iter": "4"}},
    ]
    trace = load("gateway", lines(*records), tmp_path)
    assert [row.get("images") for row in rows(trace)] == [6, 2, 6, 4, 8]
    assert [row.get("strength") for row in rows(trace)] == [None, None, 0.4, None, None]
    assert "the second pass of 1 requests (enable_hr) is not in their steps" in trace.notes[SAID]
    assert json.loads(trace.table.column("extras")[0].as_py()) == {"denoising_strength": 0.4}
    assert not any("n_iter (" in text for text in trace.notes[SAID])


def test_end_beside_start_and_duration_is_compared(tmp_path: Path) -> None:
    def said(took: Any, **options: Any) -> tuple[float, str]:
        record = {"submitted_at": AT, "ended_at": "2026-11-03T10:00:07Z", "duration": took, "prompt": "a"}
        trace = load("gateway", lines(record), tmp_path, **options)
        return rows(trace)[0]["latency_s"], "\n".join(trace.notes[SAID])

    latency_s, text = said(4.0)
    assert latency_s == 4.0
    assert "differs from ended_at - submitted_at by up to 3 s (row 0); --map latency_s= takes" in text
    assert said(4.0, columns={"latency_s": ""})[0] == 7.0
    latency_s, text = said("7,0")
    assert latency_s == 7.0
    assert "differs" not in text
    assert "left out, having no column in a trace: ended_at (1)" in text


def test_remedies_of_a_table_work_for_a_log(tmp_path: Path) -> None:
    """A log has no --leave-out."""
    log = lines({"ts": 1, "prompt": "a", "size": "big"})
    with pytest.raises(TraceError, match="row 0, column size: found 'big'"):
        load("gateway", log, tmp_path)
    assert "width" not in rows(load("gateway", log, tmp_path, columns={"size": ""}))[0]
    log = lines(*({"ts": ts, "n": 2} for ts in range(6)))
    with pytest.raises(TraceError, match=r"if the rows are requests, say --map images=$"):
        load("gateway", log, tmp_path)
    assert len(load("gateway", log, tmp_path, columns={"images": ""})) == 6
    log = lines({"ts": "3/4/2026 10:00", "prompt": "a"})
    with pytest.raises(
        TraceError, match=r"--dates day-first.* .an option of `mezzotint trace import table`; a log has"
    ):
        load("gateway", log, tmp_path)


SPAN = {
    "traceId": "t", "name": "POST /v1/images/generations",
    "startTimeUnixNano": "1787000000000000000", "endTimeUnixNano": "1787000004100000000",
}  # fmt: skip
JOB = {
    "id": "a",
    "create_time": 1787000000000,
    "execution_start_time": 1787000001000,
    "execution_end_time": 1787000004100,
}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (SPAN, {"latency_s": 4.1}),
        (SPAN | {"status": {"code": 1}}, {"latency_s": 4.1}),
        (SPAN | {"status": {"code": 2}}, {}),
        (SPAN | {"attributes": {"http.status_code": 500}}, {}),
        ({"jobs": [JOB | {"status": "completed"}], "pagination": {"total": 1}}, {"latency_s": 4.1}),
        ({"jobs": [JOB | {"status": "failed"}]}, {}),
        ({"request-start": 0.25, "request-duration": 4.1, "status": 200}, {"arrival_s": 0.25, "latency_s": 4.1}),
        ({"prompt": "a", "cfgs": "7.5", "sd_model_name": "xl"}, {"guidance": 7.5, "base_model": "xl"}),
    ],
)
def test_names_of_services_are_known(record: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    (found,) = rows(load("gateway", lines(record), tmp_path))
    assert found.items() >= expected.items()
    assert ("latency_s" in found) is ("latency_s" in expected)


@pytest.mark.parametrize(
    "content",
    [
        {"data": [{"traceID": "a", "spans": [SPAN]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]},
        {"experiments": [{"requests": [{"timestamp": 1787, "response_timestamps": [1788]}]}], "service_kind": "triton"},
    ],
)
def test_nested_requests_are_refused_with_a_way_out(content: dict[str, Any], tmp_path: Path) -> None:
    words = r"expected a (span|request) a line.*jq -c '\.\w+\[\]\..*trace import gateway"
    with pytest.raises(TraceError, match=words):
        load("gateway", lines(content), tmp_path)
    with pytest.raises(TraceError, match=words):
        Table(path=tmp_path / "log").load(np.random.default_rng(0))


def test_lines_of_perf_analyzer_have_a_latency(tmp_path: Path) -> None:
    ns = 1_000_000_000
    requests = [{"timestamp": (1787000000 + at) * ns, "end_time": (1787000000 + at + 3) * ns} for at in (0, 5)]
    found = rows(load("gateway", lines(*requests), tmp_path))
    assert [row["latency_s"] for row in found] == [3.0, 3.0]


def test_sizes_of_two_forms_are_merged(tmp_path: Path) -> None:
    sizes = [{"width": 64, "height": 32}, "128x64", "landscape_16_9", "512px", "auto", "huge"]
    trace = load(
        "gateway", lines(*({"ts": ts, "prompt": "a", "image_size": size} for ts, size in enumerate(sizes))), tmp_path
    )
    assert [row.get("width") for row in rows(trace)] == [64, 128, 1024, 512, None, None]
    assert "image_size: no WIDTHxHEIGHT, so that these requests have no size: huge (1)" in trace.notes[SAID]


@pytest.mark.parametrize("envelope", ["@message", "Message", "jsonPayload", "_source", "log", "event", "json_input"])
def test_envelope_of_a_log_shipper_is_opened(envelope: str, tmp_path: Path) -> None:
    record = {"prompt": "a", "request": {"steps": 9, "style": "b"}, "response": {"status_code": 500}, "latency_s": 1.5}
    for body in (record, json.dumps(record) + "\n"):
        trace = load("gateway", lines({"@timestamp": AT, envelope: body}), tmp_path)
        assert rows(trace) == [{"request_id": "0", "arrival_s": 0.0, "prompt": "a", "steps": 9}]
        assert trace.table.column("extras")[0].as_py() == '{"style": "b"}'
    mapped = load(
        "gateway", lines({"@timestamp": AT, envelope: record}), tmp_path, columns={"steps": f"{envelope}.request.steps"}
    )
    assert rows(mapped)[0]["steps"] == 9


def test_parts_of_a_stream_are_one_request(tmp_path: Path) -> None:
    parts = [{"type": f"image_generation.{kind}", "created_at": 1787000000} for kind in ("partial_image", "completed")]
    trace = load("gateway", lines(*parts), tmp_path)
    assert len(trace) == 1
    assert trace.notes["skipped"] == {"parts of an answer in a stream": 1}


def test_request_in_several_envelopes_is_read(tmp_path: Path) -> None:
    record = {"time": AT, "proxy_server_request": {"body": {"prompt": "a", "parameters": {"width": 64, "odd": 1}}}}
    trace = load("gateway", json.dumps({"data": [record], "object": "list"}), tmp_path)
    assert rows(trace)[0]["width"] == 64
    assert json.loads(trace.table.column("extras")[0].as_py()) == {"odd": 1}


def test_times_of_answers_give_arrivals(tmp_path: Path) -> None:
    """The same requests, logged at their start, or at their end and in another order."""
    starts, took = [1787000000.25, 1787000003.5, 1787000004.0], [9.0, 0.5, 30.0]
    at_start = [{"start_time": start, "prompt": "a", "latency_s": s} for start, s in zip(starts, took, strict=True)]
    at_end: list[dict[str, Any]] = [
        {"end_time": start + s, "prompt": "a", "latency_s": s} for start, s in zip(starts, took, strict=True)
    ]
    at_end.sort(key=lambda record: record["end_time"])
    there = load("gateway", lines(*at_end), tmp_path)
    assert there.arrival_s.tolist() == load("gateway", lines(*at_start), tmp_path).arrival_s.tolist() == [0, 3.25, 3.75]
    with_unit = lines(*({**record, "latency_s": f"{1000 * record['latency_s']:g}ms"} for record in at_end))
    assert load("gateway", with_unit, tmp_path).arrival_s.tolist() == there.arrival_s.tolist()
    mapped = lines(
        *({"when": record["end_time"], "prompt": "a", "latency_s": record["latency_s"]} for record in at_end)
    )
    assert load("gateway", mapped, tmp_path, columns={"end_s": "when"}).arrival_s.tolist() == there.arrival_s.tolist()
    del at_end[-1]["latency_s"]
    there = load("gateway", lines(*at_end), tmp_path)
    assert there.arrival_s.tolist() == [0, 3.25, 33.75]
    assert "1 requests without latency_s arrive when answered" in there.notes[SAID]


def test_gateway_says_what_it_left_out(tmp_path: Path) -> None:
    record = {"ts": 0, "request": {"prompt": "a", "quality": "high"}, "response": {"data": [{"b64_json": "A" * 9999}]}}
    trace = load("gateway", lines(record, {"level": "info", "note": "up"}), tmp_path)
    said = "\n".join(trace.notes[SAID])
    assert "kept in the extras: request.quality (1)" in said
    assert "response.data (1)" in said
    assert json.loads(trace.table.column("extras")[0].as_py()) == {"quality": "high"}
    judged = load("gateway", lines({"ts": 0, "prompt": "a", "path": "/v1", "status": 200, "success": True}), tmp_path)
    assert "read for the outcome and the endpoint: path (1), status (1), success (1)" in judged.notes[SAID]
    flat = load("gateway", lines({"ts": 0, "prompt": "a", "style": "vivid"}), tmp_path)
    assert flat.table.column("extras")[0].as_py() == '{"style": "vivid"}'
    assert trace.notes["skipped"] == {"no field of a request": 1}


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"ts": 1, "prompt": "a", "latency": 6100}, {}, "latency: found numbers about 6100.*latency=ms, or s$"),
        ({"ts": 1, "prompt": "a", "latency": 2_134_300_000}, {}, "about 2.1343e[+]09.*--unit latency=ns, or us$"),
        ({"ts": 1, "prompt": "a", "steps": "ten"}, {}, "row 1, column steps: found 'ten'"),
        ({"ts": 1, "prompt": ["a", "b"]}, {}, "row 1, column prompt: found"),
        ({"ts": 1, "prompt": "a", "width": -5}, {}, "row 1, column width: found -5"),
        ({"ts": 1, "prompt": "a"}, {"columns": {"steps": "it"}}, "--map names it, which no record has"),
        ({"ts": 1, "prompt": "a"}, {"columns": {"step": "it"}}, "--map step=it: expected one of"),
        ({"ts": 1, "prompt": "a"}, {"units": {"took": "ms"}}, "--unit names took, which no record has"),
        (
            {"ts": 1, "prompt": "a", "latency": 5},
            {"units": {"latency": "week"}},
            "--unit latency=week: expected one of",
        ),
    ],
)
def test_gateway_value_of_another_kind_is_named(
    record: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Rows keep the numbers of the file though one before them is skipped."""
    with pytest.raises(TraceError, match=message):
        load("gateway", lines({"note": "started"}, record), tmp_path, **options)


def test_gateway_reads_objects_and_times_of_parquet(tmp_path: Path) -> None:
    times = pa.array([0, 1_500_000], pa.timestamp("us", "UTC"))
    inputs = [{"prompt": "a", "width": 512}, {"prompt": "b", "width": 768}]
    pq.write_table(pa.table({"created_at": times, "input": inputs}), tmp_path / "log.parquet")
    trace = SOURCES["gateway"](path=tmp_path / "log.parquet").load(np.random.default_rng(0))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.table.column("prompt").to_pylist() == ["a", "b"]
    assert trace.column("width").tolist() == [512, 768]


NODES: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "xl"}},
    "2": {"class_type": "LoraLoader", "inputs": {"model": ["1", 0], "lora_name": "ink"}},
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": ["8", 0],
            "steps": 25,
            "cfg": 6.5,
            "denoise": 0.5,
            "model": ["2", 0],
            "positive": ["6", 0],
            "negative": ["5", 0],
            "latent_image": ["4", 0],
        },
    },
    "4": {"class_type": "EmptyLatentImage", "inputs": {"width": ["9", 0], "height": 768, "batch_size": 4}},
    "5": {"class_type": "CLIPTextEncode", "inputs": {"text": "ugly"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["7", 0]}},
    "7": {"class_type": "StringConstant", "inputs": {"string": "a fox"}},
    "8": {"class_type": "PrimitiveInt", "inputs": {"value": 42}},
    "9": {"class_type": "PrimitiveInt", "inputs": {"value": 640}},
}
GUIDED: dict[str, Any] = {
    "1": {"class_type": "UNETLoader", "inputs": {"unet_name": "flux"}},
    "2": {"class_type": "BasicGuider", "inputs": {"model": ["1", 0], "conditioning": ["3", 0]}},
    "3": {"class_type": "FluxGuidance", "inputs": {"guidance": 3.5, "conditioning": ["4", 0]}},
    "4": {"class_type": "CLIPTextEncode", "inputs": {"text": "a lighthouse", "clip": "xl"}},
    "5": {"class_type": "RandomNoise", "inputs": {"noise_seed": 7}},
    "6": {"class_type": "BasicScheduler", "inputs": {"steps": 20, "denoise": 1}},
    "7": {"class_type": "EmptySD3LatentImage", "inputs": {"width": 1024, "height": 512, "batch_size": 1}},
    "8": {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "euler"}},
    "9": {
        "class_type": "SamplerCustomAdvanced",
        "inputs": {
            "noise": ["5", 0],
            "guider": ["2", 0],
            "sampler": ["8", 0],
            "sigmas": ["6", 0],
            "latent_image": ["7", 0],
        },
    },
}
TWO_PASSES: dict[str, Any] = {
    "1": {
        "class_type": "KSamplerAdvanced",
        "inputs": {
            "noise_seed": 1,
            "steps": 30,
            "start_at_step": 0,
            "end_at_step": 20,
            "positive": ["4", 0],
            "negative": ["5", 0],
            "latent_image": ["3", 0],
        },
    },
    "2": {
        "class_type": "KSamplerAdvanced",
        "inputs": {
            "noise_seed": 1,
            "steps": 30,
            "start_at_step": 20,
            "end_at_step": 10000,
            "positive": ["4", 0],
            "negative": ["5", 0],
            "latent_image": ["1", 0],
        },
    },
    "3": {
        "class_type": "WanImageToVideo",
        "inputs": {"width": 832, "height": 480, "length": 81, "batch_size": 1, "start_image": ["6", 0]},
    },
    "4": {"class_type": "CLIPTextEncode", "inputs": {"text": "waves"}},
    "5": {"class_type": "ConditioningZeroOut", "inputs": {"conditioning": ["4", 0]}},
    "6": {"class_type": "LoadImage", "inputs": {"image": "a.png"}},
}


NET: dict[str, Any] = {
    **{name: node for name, node in NODES.items() if name != "3"},
    "10": {"class_type": "ControlNetLoader", "inputs": {"control_net_name": "canny"}},
    "11": {"class_type": "LoadImage", "inputs": {"image": "pose.png"}},
    "12": {"class_type": "Canny", "inputs": {"image": ["11", 0], "low_threshold": 0.4}},
    "13": {
        "class_type": "ControlNetApplyAdvanced",
        "inputs": {"positive": ["6", 0], "negative": ["5", 0], "control_net": ["10", 0], "image": ["12", 0]},
    },
    "3": {
        "class_type": "KSampler",
        "inputs": NODES["3"]["inputs"]
        | {"positive": ["13", 0], "negative": ["13", 1], "latent_image": ["14", 0], "seed": 0},
    },
    "14": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["4", 0], "amount": 3}},
}
UPSCALED: dict[str, Any] = {  # the second pass stands first
    "20": {
        "class_type": "KSampler",
        "inputs": NODES["3"]["inputs"] | {"steps": 10, "seed": 3, "latent_image": ["21", 0]},
    },
    "21": {"class_type": "LatentUpscaleBy", "inputs": {"samples": ["3", 0], "scale_by": 2.0}},
    "22": {"class_type": "SaveImage", "inputs": {"images": ["20", 0]}},
    **NODES,
    "23": {"class_type": "KSampler", "inputs": NODES["3"]["inputs"]},  # leads to no output
}


def history(graph: dict[str, Any], extra: dict[str, Any], end: str = "execution_success") -> str:
    status = "success" if end == "execution_success" else "error"
    messages = [["execution_start", {"timestamp": 1787000002000}], [end, {"timestamp": 1787000009000}]]
    return json.dumps(
        {"p": {"prompt": [1, "p", graph, extra, ["22"]], "status": {"status_str": status, "messages": messages}}}
    )


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (
            NODES,
            {
                "prompt": "a fox",
                "negative_prompt": "ugly",
                "width": 640,
                "height": 768,
                "steps": 25,
                "images": 4,
                "seed": 42,
                "guidance": 6.5,
                "base_model": "xl",
                "loras": ["ink"],
                "input_images": 0,
            },
        ),
        (
            GUIDED,
            {"prompt": "a lighthouse", "width": 1024, "height": 512, "steps": 20, "seed": 7, "base_model": "flux"},
        ),
        (
            NET,
            {
                "prompt": "a fox",
                "negative_prompt": "ugly",
                "controlnets": ["canny"],
                "input_images": 0,
                "images": 12,
                "seed": 0,
            },
        ),
        (UPSCALED, {"width": 640, "steps": 35, "seed": 42, "controlnets": []}),
        (TWO_PASSES, {"prompt": "waves", "frames": 81, "steps": 30, "input_images": 1, "images": 1}),
        ({"1": {"class_type": "CLIPTextEncode", "inputs": {"text": ["1", 0]}}}, {"request_id": "p"}),
    ],
)
def test_comfyui_workflow_is_followed(graph: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    (found,) = rows(load("comfyui", history(graph, {}), tmp_path))
    assert found.items() >= expected.items()
    assert "strength" not in found  # ComfyUI runs all steps whatever denoise is
    assert found.get("negative_prompt", "ugly") == "ugly"


@pytest.mark.parametrize(
    ("graph", "extras", "left_out"),
    [
        (NET, {"control_images": 1, "denoise": 0.5}, "nodes.Canny.low_threshold (1)"),
        (UPSCALED, {"samplers": 2, "upscaled": 2.0, "denoise": 0.5}, "nodes.KSampler.seed (1)"),
        (GUIDED, {"distilled_guidance": 3.5, "sampler_name": "euler", "denoise": 1}, "nodes.CLIPTextEncode.clip (1)"),
    ],
)
def test_comfyui_names_what_has_no_column(
    graph: dict[str, Any], extras: dict[str, Any], left_out: str, tmp_path: Path
) -> None:
    trace = load("comfyui", history(graph, {}), tmp_path)
    assert json.loads(trace.table.column("extras")[0].as_py()) == extras
    assert left_out in "\n".join(trace.notes[SAID])


def test_comfyui_waits_from_creation_and_runs_from_start(tmp_path: Path) -> None:
    (found,) = rows(load("comfyui", history(NODES, {"create_time": 1787000000000}), tmp_path))
    assert (found["latency_s"], found["gen_s"]) == (9.0, 7.0)
    (found,) = rows(load("comfyui", history(NODES, {}), tmp_path))
    assert (found["latency_s"], found["gen_s"]) == (7.0, 7.0)
    (found,) = rows(load("comfyui", history(NODES, {}, "execution_error"), tmp_path))
    assert not {"latency_s", "gen_s"} & found.keys()


@pytest.mark.parametrize(
    "content", ['{"a": 1}', '{"a": {"prompt": [1]}}', '{"a": {"prompt": [1, "a", {"3": 4}]}}', "[]", "{}"]
)
def test_other_json_is_no_history(content: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="log"):
        load("comfyui", content, tmp_path)


SETTINGS = "Steps: 20, Sampler: Euler a, CFG scale: 6.5, Seed: 12, Size: 832x1216, Model: xl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a cat, (light:1.2)\nNegative prompt: bad\n{SETTINGS}\n", [("a cat, (light:1.2)", "bad", None)]),
        (f"a cat\n{SETTINGS}\na dog\n\nsitting\n{SETTINGS}", [("a cat", None, None), ("a dog\n\nsitting", None, None)]),
        (f"a\nNegative prompt: b\nc\n{SETTINGS}, Denoising strength: 0.5\n\n", [("a", "b\nc", 0.5)]),
        (f"parameters: a\n{SETTINGS}, Denoising strength: 0.5, Hires steps: 9\nTemplate: x\n\n", [("a", None, None)]),
    ],
)
def test_a1111_text_is_split_into_requests(text: str, expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    found = rows(load("a1111", text, tmp_path))
    assert [(row["prompt"], row.get("negative_prompt"), row.get("strength")) for row in found] == expected
    for row in found:
        assert (
            row.items()
            >= {"steps": 20, "guidance": 6.5, "seed": 12, "width": 832, "height": 1216, "base_model": "xl"}.items()
        )


def test_a1111_add_ons_are_named(tmp_path: Path) -> None:
    text = f'a <lora:ink:0.8> fox\n{SETTINGS}, ControlNet 0: "Module: canny, Model: cn [d14c], Weight: 1"\n'
    (found,) = rows(load("a1111", text, tmp_path))
    assert (found["loras"], found["controlnets"]) == (["ink"], ["cn"])
    old = f"a\n{SETTINGS}, ControlNet 0 Enabled: True, ControlNet 0 Model: cn [d14c], ControlNet 1 Model: pose [a1]\n"
    assert rows(load("a1111", old, tmp_path))[0]["controlnets"] == ["cn", "pose"]
    with pytest.raises(TraceError, match="trace import prompts"):
        load("a1111", "a fox\na cat\n", tmp_path)


def test_a1111_images_of_a_folder_are_read(tmp_path: Path) -> None:
    folder, picture, chunk = tmp_path / "images", Image.new("RGB", (8, 8)), PngImagePlugin.PngInfo()
    folder.mkdir()
    chunk.add_text("parameters", f"a cat\n{SETTINGS}")
    picture.save(folder / "1.png", pnginfo=chunk)
    picture.save(folder / "2.png")
    exif = picture.getexif()
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + f"a dog\n{SETTINGS}".encode("utf-16-be")
    picture.save(folder / "3.jpg", exif=exif)
    source: Any = SOURCES["a1111"]
    trace = source(path=folder).load(np.random.default_rng(0))
    assert [(row["request_id"], row["prompt"]) for row in rows(trace)] == [("1.png", "a cat"), ("3.jpg", "a dog")]
    assert trace.notes["skipped"] == {"no field of a request": 1}
    (folder / "4.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    with pytest.raises(TraceError, match=r"4\.png: cannot be read as an image"):
        source(path=folder).load(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"prompt": "a", "Size": "64x32", "steps": 9, "cfgScale": 7}, {"width": 64, "steps": 9, "guidance": 7.0}),
        ({"prompt": "a", "seed": 1, "Model": "m"}, {"width": 832, "height": 1216, "base_model": "m"}),
        (
            {"prompt": "a", "resources": [{"type": "lora", "name": "ink"}, {"type": "model", "name": "m"}]},
            {"loras": ["ink"]},
        ),
        (None, {"width": 832}),
        ({"id": 9, "meta": {"prompt": "a", "steps": 9}}, {"prompt": "a", "steps": 9}),
        ({"prompt": "a", "Denoising strength": "0.4"}, {"strength": 0.4}),
    ],
)
def test_civitai_image_is_a_request(meta: dict[str, Any] | None, expected: dict[str, Any], tmp_path: Path) -> None:
    item = {"id": 1, "createdAt": "2026-11-03T10:00:00.000Z", "width": 832, "height": 1216, "meta": meta}
    later = {**item, "id": 2, "createdAt": "2026-11-03T10:00:20.000Z"}
    for content in (json.dumps({"items": [later, item], "metadata": {}}), lines({"items": [later]}, {"items": [item]})):
        first, second = rows(load("civitai", content, tmp_path))
        assert first.items() >= {"request_id": "1", "arrival_s": 0.0, **expected}.items()
        assert second["arrival_s"] == 20.0


JTL = (
    "timeStamp,elapsed,label,responseCode,responseMessage,success,URL,Latency,steps\n"
    "1787000000000,4120,a,200,OK,true,http://h/generate,10,20\n"
    "1787000002500,4620,a,500,ERR,false,http://h/generate,20,20\n"
    "1787000003000,4700,a,200,OK,false,http://h/generate,20,20\n"
    '1787000003000,9320,b,,"Number of samples in transaction : 2, number of failing samples : 1",false,null,0,\n'
)


def test_latency_of_jmeter_is_elapsed(tmp_path: Path) -> None:
    """JMeter's own Latency ends at the first byte."""
    trace = load("jmeter", JTL, tmp_path)
    assert trace.arrival_s.tolist() == [0.0, 2.5, 3.0]
    assert [row.get("latency_s") for row in rows(trace)] == [4.12, None, None]
    assert trace.column("steps").tolist() == [20, 20, 20]
    assert trace.notes["skipped"] == {"no field of a request": 1}
    with pytest.raises(TraceError, match="import jmeter"):
        load("gateway", JTL, tmp_path)
    with pytest.raises(TraceError, match="import jmeter"):
        Table(path=tmp_path / "log").load(np.random.default_rng(0))
    with pytest.raises(TraceError, match="expected timeStamp and elapsed"):
        load("jmeter", "timeStamp,label\n1,a\n", tmp_path)


def test_strength_of_a_second_pass_is_none_of_image_to_image(tmp_path: Path) -> None:
    meta = {"prompt": "a", "steps": 25, "Hires upscale": "2", "Denoising strength": "0.4"}
    trace = load("civitai", lines({"id": 1, "createdAt": AT, "meta": meta}), tmp_path)
    assert "strength" not in rows(trace)[0]
    assert json.loads(trace.table.column("extras")[0].as_py())["Second pass denoising"] == "0.4"
    assert (
        "strength"
        not in rows(load("a1111", f"a\n{SETTINGS}, Denoising strength: 0.7, First pass size: 0x0\n", tmp_path))[0]
    )


def k6_csv(*requests: tuple[str, float, int]) -> str:
    head = "metric_name,timestamp,metric_value,error_code,method,name,status,url,extra_tags\n"
    url = "http://gw/v1/images/generations"
    return head + "".join(
        f"{metric},{end},{ms},,POST,{url},{status},{url},steps=20&width=512\n"
        for end, ms, status in requests
        for metric, ms in (("http_reqs", 1.0), ("http_req_duration", ms), ("http_req_waiting", ms - 1))
    )


def k6_json(*requests: tuple[str, float, int]) -> str:
    tags = {"method": "POST", "url": "http://gw/v1/images/generations", "steps": "20", "width": "512"}
    return lines(
        {"type": "Metric", "data": {"name": "http_req_duration", "type": "trend"}, "metric": "http_req_duration"},
        *(
            {
                "metric": metric,
                "type": "Point",
                "data": {"time": end, "value": ms, "tags": {**tags, "status": str(status)}},
            }
            for end, ms, status in requests
            for metric in ("http_req_duration", "http_req_waiting")
        ),
    )


@pytest.mark.parametrize(
    ("content", "times"),
    [
        (k6_csv, ("1787000010", "1787000012")),
        (k6_csv, ("1787000010000", "1787000012000")),
        (k6_json, ("2026-08-17T20:53:30.123456789+02:00", "2026-08-17T20:53:32.123456789+02:00")),
    ],
)
def test_k6_request_is_one_request_that_began_its_duration_before(
    content: Any, times: tuple[str, str], tmp_path: Path
) -> None:
    trace = load("k6", content((times[0], 1000.0, 200), (times[1], 4500.0, 500)), tmp_path)
    first, second = rows(trace)
    assert "latency_s" not in first  # the longer one failed
    assert (second["arrival_s"], second["latency_s"], second["steps"], second["width"]) == (1.5, 1.0, 20, 512)


def test_k6_summary_and_other_endpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="k6 run --out csv"):
        load("k6", '{"metrics": {"http_req_duration": {"avg": 3}}}', tmp_path)
    other = k6_csv(("1787000010", 1000.0, 200)).replace("images/generations", "models")
    with pytest.raises(TraceError, match=r"no requests are left of 1 .*/v1/models.*--paths"):
        load("k6", other, tmp_path)
    assert len(load("k6", other, tmp_path, paths="models")) == 1


LOCUST = "request_type,name,response_time,start_time,exception\nPOST,/v1/images/generations,2500.5,1787000000.25,\n"


@pytest.mark.parametrize(
    "content",
    [
        LOCUST,
        lines({"request_type": "POST", "name": "/txt2img", "response_time": 2500.5, "start_time": 1787000000.25}),
        lines({"type": "POST", "url": "http://h/generate", "response_time": 2500.5, "timestamp": 1787000002.7505}),
        LOCUST + "GET,/health,1.0,1787000000.5,\n",
    ],
)
def test_locust_request_is_read(content: str, tmp_path: Path) -> None:
    (found,) = rows(load("locust", content, tmp_path))
    assert (found["arrival_s"], found["latency_s"]) == (0.0, 2.5005)


@pytest.mark.parametrize(
    "header",
    [
        "Type,Name,Request Count,Failure Count",
        "Timestamp,User Count,Type,Name,Requests/s",
        "Method,Name,Error,Occurrences",
    ],
)
def test_locust_statistics_are_refused(header: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="Locust's statistics"):
        load("locust", f"{header}\n" + ",".join("1" for _ in header.split(",")) + "\n", tmp_path)


POST = '"POST /v1/images/generations HTTP/1.1"'
AGENT = '"-" "client \\x22a\\x22"'


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (f"198.51.100.7 - - [03/Nov/2026:10:00:SS +0000] {POST} 200 9 {AGENT} REQ", None),
        (f"1793700006.5 {POST} 200 REQ", '$msec "$request" $status $request_time'),
        (
            f'{{"t": "2026-11-03T10:00:SS+00:00", "r": {POST}, "d": REQ, "s": 200}}',
            '{"t": "$time_iso8601", "r": "$request", "d": $request_time, "s": $status}',
        ),
        (f"h - u [03/Nov/2026:10:00:00 +0000] {POST} 200 12 DUR", '%h %l %u %t \\"%r\\" %>s %b %D'),
        (f"h [03/Nov/2026:10:00:00 +0000] {POST} 200 MS", '%h %t "%r" %s %{ms}T'),
    ],
)
def test_access_log_counts_arrivals_from_when_its_server_stamps(line: str, form: str | None, tmp_path: Path) -> None:
    """nginx stamps the answer, Apache the arrival."""

    def at(second: int, took: float) -> str:
        stamp = line.replace("SS", f"{second:02}").replace("1793700006.5", str(1793700000 + second))
        stamp = stamp.replace("10:00:00 +", f"10:00:{second:02} +")
        return (
            stamp.replace("REQ", f"{took:.3f}").replace("DUR", f"{took * 1e6:.0f}").replace("MS", f"{took * 1e3:.0f}")
        )

    is_apache = form is not None and "%" in form
    quiet = 'x - - [03/Nov/2026:10:00:06 +0000] "GET /health HTTP/1.1" 200 2 "-" "p" 0.001\n' if form is None else ""
    trace = load("access-log", f"{at(10, 6.0)}\n{quiet}{at(20, 2.5)}\n", tmp_path, **({"format": form} if form else {}))
    assert trace.arrival_s.tolist() == ([0.0, 10.0] if is_apache else [0.0, 13.5])
    assert [row["latency_s"] for row in rows(trace)] == [6.0, 2.5]
    assert trace.notes.get("skipped", {}) == ({"GET requests": 1} if form is None else {})


def test_access_log_of_json_lines_has_the_variables_of_nginx(tmp_path: Path) -> None:
    """log_format escape=json: $request_time is how long a request took, which elsewhere is read as when it came."""
    text = lines(
        {"time_iso8601": "2026-11-03T10:00:10+00:00", "request": "POST /v1/images/generations HTTP/1.1",
         "status": 200, "request_time": 6.0, "upstream_response_time": "5.9", "remote_user": "-"},
        {"time_iso8601": "2026-11-03T10:00:11+00:00", "request": "GET /health HTTP/1.1", "status": 200,
         "request_time": 0.1},
        {"time_iso8601": "2026-11-03T10:00:20+00:00", "request_method": "POST", "uri": "/v1/videos", "status": "200",
         "request_time": "2.500"},
    )  # fmt: skip
    trace = load("access-log", text, tmp_path)
    assert trace.arrival_s.tolist() == [0.0, 13.5]
    assert [row["latency_s"] for row in rows(trace)] == [6.0, 2.5]
    assert trace.notes["skipped"] == {"GET requests": 1}
    assert other_format(text.encode()) == "access-log"
    with pytest.raises(TraceError, match=r"column request_time.*seconds that a request took.*import access-log"):
        load("gateway", text, tmp_path)


CADDY = [
    {"ts": 1787000000 + end, "logger": "http.log.access", "duration": took, "size": 1240, "status": 200,
     "request": {"method": "POST", "uri": "/v1/images/generations"}}
    for end, took in ((4.5, 4.25), (9.5, 2.25))
]  # fmt: skip
TRAEFIK = [
    {"StartUTC": f"2026-11-03T10:00:{start}Z", "time": "2026-11-03T10:00:30Z", "Duration": int(took * 1e9),
     "RequestMethod": "POST", "RequestPath": "/v1/images/generations", "DownstreamStatus": 200}
    for start, took in (("00.25", 4.25), ("07.25", 2.25))
]  # fmt: skip

GOOGLE_CLOUD = [
    {"timestamp": f"2026-11-03T10:00:{start}Z", "receiveTimestamp": "2026-11-03T10:00:30Z",
     "httpRequest": {"requestMethod": "POST", "requestUrl": "https://a.example/v1/images/generations", "status": 200,
                     "latency": took, "responseSize": "1240"},
     "logName": f"projects/p/logs/{name}"}
    for start, took, name in (("00.25", "4.25s", "run.googleapis.com%2Frequests"), ("07.25", "2.250s", "requests"))
]  # fmt: skip


@pytest.mark.parametrize("records", [CADDY, TRAEFIK, GOOGLE_CLOUD], ids=["caddy", "traefik", "google-cloud"])
def test_access_log_of_another_server_has_its_own_names(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """Caddy's ts is when the answer was sent, and its size bytes; Traefik's time is when the line was written."""
    trace = load("access-log", lines(*records), tmp_path)
    assert trace.arrival_s.tolist() == [0.0, 7.0]
    assert [set(row) for row in rows(trace)] == [{"request_id", "arrival_s", "latency_s"}] * 2
    assert [row["latency_s"] for row in rows(trace)] == [4.25, 2.25]
    assert other_format(lines(*records).encode()) == "access-log"
    with pytest.raises(TraceError, match="import access-log"):
        load("gateway", lines(*records), tmp_path)
    indented = json.dumps(records, indent=2)
    assert load("access-log", indented, tmp_path).arrival_s.tolist() == [0.0, 7.0]
    assert other_format(lines(*GOOGLE_CLOUD).encode()) == other_format(json.dumps(GOOGLE_CLOUD, indent=2).encode())


def test_log_of_an_application_on_google_cloud_is_read_by_its_payload(tmp_path: Path) -> None:
    logged = {"timestamp": "2026-11-03T10:00:00Z", "logName": "projects/p/logs/stdout", "jsonPayload": {"prompt": "a"}}
    trace = load("gateway", lines({**logged, "httpRequest": GOOGLE_CLOUD[0]["httpRequest"]}), tmp_path)
    assert rows(trace)[0]["prompt"] == "a"


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("not a line", {}, "row 0: found 'not a line', expected a line of the format .* --format"),
        ("a 200", {"format": "$remote_addr $status"}, "names no time"),
        ("a 200", {"format": "a"}, "names no time"),  # and no field at all
        (
            f"h - - [03/Nov/2026:10:00:00 +0000] {POST} 200 9 {AGENT} soon",
            {},
            "row 0, column request_time: found 'soon'",
        ),
        (f"h - - [03/Nov/2026:10:00:00 +0000] {POST} 200 9 {AGENT} 1", {"paths": "("}, "regular expression"),
        ('h - - [03/Nov/2026:10:00:00 +0000] "\\x16\\x03" 400 9 "-" "-" 0.1', {}, "no requests are left of 1"),
    ],
)
def test_access_log_of_another_form_is_refused(
    line: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=message):
        load("access-log", line + "\n", tmp_path, **options)


def test_sources_that_are_recognised_exist() -> None:
    assert set(SOURCES) <= set(sources())
    assert other_format(lines({"ts": 1, "request": {"prompt": "a"}}).encode()) == "gateway"
    assert {name for name, _ in MARKS if name not in sources()} <= {"aiperf", "vllm-bench"}


def test_import_command_prints_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(lines({"ts": 1, "p": "a", "n": 2}, {"ts": 3, "p": "b", "status": 401}))
    words = ["trace", "import", "gateway", str(tmp_path / "log"), "-o", str(tmp_path / "o"), "--map", "prompt=p"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "p as prompt" in out
    assert "skipped 1 rows of the source: status 401" in out


LOOP = {name: ["1", 0] for name in ("steps", "text", "value", "int", "float", "number", "seed", "noise_seed", "string")}


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("a1111", "Steps: 1, " + "a" * 300_000 + "\n"),
        ("a1111", "<lora:" * 150_000 + "\nSteps: 1\n"),
        ("comfyui", history({"1": {"class_type": "KSampler TextEncode", "inputs": LOOP}}, {})),
        ("gateway", lines({"ts": 1, "prompt": "a", "request": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {}}}}}}}}})),
    ],
    ids=["settings", "loras", "links", "levels"],
)
def test_awkward_content_takes_no_time(form: str, content: str, tmp_path: Path) -> None:
    """Each would take minutes if patterns and walks were not bounded."""
    assert len(load(form, content, tmp_path)) == 1


def test_workflow_of_too_many_nodes_is_refused(tmp_path: Path) -> None:
    graph = {str(node): {"class_type": "KSampler", "inputs": {"steps": 1}} for node in range(2001)}
    with pytest.raises(TraceError, match="prompt p: found 2,001 nodes"):
        load("comfyui", history(graph, {}), tmp_path)
