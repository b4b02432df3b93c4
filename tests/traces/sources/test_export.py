"""The engines' own formats: a round trip loses nothing, and reading runs nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.sim.cli import main
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.export import FORMATS, client_command, export, milliseconds
from mezzotint.traces.sources.published import LOGS, MAPS
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace, make
from tests.traces.lab import hold_to_form

READERS: Any = LOGS
RNG = np.random.default_rng(0)


def back(trace: Trace, form: str, folder: Path) -> Trace:
    export(trace, form, folder / "t.txt" if form == "vllm-omni" else folder / "t.jsonl")
    return load(form, folder)


def load(form: str, folder: Path) -> Trace:
    path = folder / ("t.txt" if form == "vllm-omni" else "t.jsonl")
    found: Trace = READERS[form](path=path).load(RNG)
    return found


@pytest.mark.parametrize("form", [form for form in FORMATS if form in MAPS])
def test_ten_thousand_requests_round_trip(form: str, tmp_path: Path) -> None:
    """Every field of the format survives to the last bit; fields outside it are named."""
    made = Synthetic(requests=10_000, history=0).load(np.random.default_rng(1))
    unsupported = export(made, form, tmp_path / ("t.txt" if form == "vllm-omni" else "t.jsonl"))
    read = load(form, tmp_path)
    held = list(MAPS[form].columns)
    assert set(unsupported) == {
        name for name in made.table.column_names if name not in held and made.table.column(name).null_count < 10_000
    }
    for name in held:
        assert read.table.column(name).equals(made.table.column(name)), name
    again = back(read, form, tmp_path)
    assert again.digest == read.digest


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
sizes = st.integers(1, 2**31 - 1)
requests = st.fixed_dictionaries(
    {
        "prompt": texts,
        "width": sizes,
        "steps": sizes,
        "seed": st.integers(0, 2**63 - 1),
        "frames": st.none() | sizes,
        "slo_s": st.floats(0.001, 1e9).map(lambda ms: ms / 1000),
    }
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(requests, min_size=1, max_size=6), gap_s=st.floats(0, 1e4))
def test_any_prompt_round_trips(rows: list[dict[str, Any]], gap_s: float, tmp_path: Path) -> None:
    order = np.arange(len(rows))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    columns["request_id"] = [f"r{row}" for row in order]
    timed = make({**columns, "arrival_s": order * gap_s}, name="t", source="s")
    assert back(timed, "vllm-omni", tmp_path).digest == timed.digest
    columns["guidance"] = [row["slo_s"] for row in rows]
    others = [{"sampling_params": {"a": [1, {"b": row["prompt"]}]}} for row in rows]
    columns |= {"images": [3] * len(rows), "extras": [json.dumps(other, ensure_ascii=False) for other in others]}
    del columns["slo_s"]
    ordered = make({**columns, "arrival_s": order}, name="t", source="s")
    again = back(ordered, "sglang", tmp_path)
    assert again.table.drop_columns("extras").equals(ordered.table.drop_columns("extras"))
    assert [json.loads(text) for text in again.table.column("extras").to_pylist()] == others


def test_engine_formats_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(
        "Request(request_id='a', prompt=\"it's\", width=512, height=768, num_inference_steps=20, timestamp=0.5, "
        "slo_ms=3000, seed=7)\n\n"
        "  Request( request_id = 'b' , prompt='x\\n)', width=None, timestamp=2e0, )\n"
    )
    found = load("vllm-omni", tmp_path)
    assert found.table.column("request_id").to_pylist() == ["a", "b"]
    assert found.table.column("prompt").to_pylist() == ["it's", "x\n)"]
    assert found.table.column("width").to_pylist() == [512, None]
    assert found.arrival_s.tolist() == [0.5, 2.0]
    assert found.table.column("slo_s").to_pylist() == [3.0, None]
    assert found.table.column("extras").to_pylist() == [None, None]
    assert found.notes["skipped"] == {"blank lines": 1}
    (tmp_path / "t.txt").write_text("Request(timestamp=1700000000.5)\nRequest(timestamp=1700000000.0)\n")
    assert load("vllm-omni", tmp_path).arrival_s.tolist() == [0.0, 0.5]
    (tmp_path / "t.txt").write_text("Request(width=832, height=480, num_frames=81)\nRequest(num_frames=None)\n")
    assert load("vllm-omni", tmp_path).table.column("frames").to_pylist() == [81, None]
    (tmp_path / "t.jsonl").write_text('{"prompt": "a", "num_frames": 49}')
    assert load("sglang", tmp_path).table.column("frames").to_pylist() == [49]
    (tmp_path / "t.jsonl").write_text('{"prompt": "a", "width": 64}\n{"prompt": "b", "fps": 8.5, "seed": null}\n')
    found = load("sglang", tmp_path)
    assert found.table.column("extras").to_pylist() == [None, '{"fps": 8.5}']


@pytest.mark.parametrize(("form", "field", "value"), [("vllm-omni", "slo_ms", 1500), ("sglang", "num_frames", 49)])
def test_field_in_the_extras_of_an_older_trace_is_exported(form: str, field: str, value: int, tmp_path: Path) -> None:
    """Both fields were extras before the trace had columns for them."""
    older = make(
        {"request_id": ["a"], "arrival_s": [0], "prompt": ["p"], "extras": [json.dumps({field: value})]},
        name="t",
        source="s",
    )
    assert field not in export(older, form, tmp_path / "t.out")
    assert str(value) in (tmp_path / "t.out").read_text()


@given(ms=st.integers(1, 10**9).map(float) | st.floats(1e-3, 1e9))
def test_deadline_in_milliseconds_survives_its_seconds(ms: float) -> None:
    """Written again it is read as the same seconds; a deadline of six digits is written as it was."""
    assert milliseconds(ms / 1000) / 1000 == ms / 1000
    short = float(f"{ms:.6g}")
    assert milliseconds(short / 1000) == short


CANARY = "canary"
DEEP = 1_000_000
HOSTILE_LINES = [
    f"Request(prompt=__import__('pathlib').Path('{CANARY}').touch())",
    f"Request(prompt=open('{CANARY}', 'w'))",
    "Request(prompt=().__class__.__bases__)",
    "Request(width=2**9999999)",
    "Request(width=" + "[" * DEEP + "]" * DEEP + ")",
    "Request(width=" + "-" * DEEP + "1)",
    "Request(width=a" + ".b" * DEEP + ")",
    "Request(width=nan)",
    "Request(timestamp=nan)",
    "Request(width=-512)",
    "Request(prompt=5)",
    "Request(width=512, width=512)",
    "Request(**{'width': 512})",
    "Request(width=512",
    "Request(width=512); import os",
    "Request(prompt='a\\ud800')",
    "Requests(width=512)",
    "Request(prompt='" + "a" * (1 << 20) + "b')",
]
HOSTILE_JSON = [
    '{"prompt": "a", "width": -512}',
    '{"prompt": "a", "width": NaN}',
    '{"prompt": "a", "guidance_scale": Infinity}',
    '{"prompt": "a", "image_paths": {"b": "c.png"}}',
    '{"prompt": 5}',
    '{"width": 512}',
    "[1]",
    '{"prompt": "a"',
    '{"prompt": "a", "sampling_params": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
    '{"prompt": "a", "request_id": "x"}\n{"prompt": "b"}',
]


@pytest.mark.parametrize(
    ("form", "text"),
    [*(("vllm-omni", text) for text in HOSTILE_LINES), *(("sglang", text) for text in HOSTILE_JSON)],
    ids=lambda value: value[:40],
)
def test_hostile_line_is_refused_not_run(form: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good = "Request(width=64, timestamp=0.0)\n" if form == "vllm-omni" and "timestamp" in text else ""
    (tmp_path / ("t.txt" if form == "vllm-omni" else "t.jsonl")).write_text(good + text + "\n", encoding="utf-8")
    with pytest.raises(TraceError) as refused:
        load(form, tmp_path)
    hold_to_form(refused.value, "t.")
    assert len(str(refused.value)) < 600
    assert not (tmp_path / CANARY).exists()


def test_trace_export_and_import_commands_are_inverse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.parquet"
    assert main(["trace", "synth", "-o", str(trace), "--requests", "50", "--set", "history=0"]) == 0
    for form in set(FORMATS) & set(MAPS):
        out, again = tmp_path / f"{form}.txt", tmp_path / f"{form}.parquet"
        assert main(["trace", "export", str(trace), "-o", str(out), "--format", form]) == 0
        assert "the format has no place for" in capsys.readouterr().out
        assert main(["trace", "import", form, str(out), "-o", str(again)]) == 0
    (tmp_path / "p.txt").write_text("Request(width=64)\n")
    assert main(["trace", "import", "vllm-omni", str(tmp_path / "p.txt"), "-o", str(trace)]) == 0
    assert main(["trace", "export", str(trace), "-o", str(tmp_path / "m"), "--format", "sglang"]) == 2
    assert "column prompt: found null" in capsys.readouterr().err


def timed(**columns: list[Any]) -> Trace:
    """Three requests of one size and number of steps, but for ``columns``."""
    alike = {"width": [512] * 3, "height": [768] * 3, "steps": [16] * 3, "prompt": ["a", "b", "c"]}
    rows = {"request_id": ["x", "y", "z"], "arrival_s": [0.25, 1.5, 3.0]}
    return make({**rows, **alike, **columns}, name="t", source="s")


def test_aiperf_schedule_has_the_arrivals_in_milliseconds(tmp_path: Path) -> None:
    export(timed(), "aiperf", tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines == [{"timestamp": 1000 * s, "text": text} for s, text in ((0.25, "a"), (1.5, "b"), (3.0, "c"))]
    command, *remarks = client_command(timed(), "aiperf", tmp_path / "t.jsonl")
    assert "--fixed-schedule --extra-inputs size:512x768 num_inference_steps:16 --artifact-dir" in command
    assert not remarks


def test_aiperf_line_has_what_differs_and_the_command_says_so(tmp_path: Path) -> None:
    trace = timed(steps=[16, 20, 16], seed=[1, None, 3])
    export(trace, "aiperf", tmp_path / "t.jsonl")
    extra = [json.loads(line)["extra"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert extra == [
        {"num_inference_steps": 16, "seed": 1},
        {"num_inference_steps": 20},
        {"num_inference_steps": 16, "seed": 3},
    ]
    command, remark = client_command(trace, "aiperf", tmp_path / "t.jsonl")
    assert "--extra-inputs size:512x768 --artifact-dir" in command
    assert "requests differ in num_inference_steps, seed" in remark


@pytest.mark.parametrize("form", ["vllm-omni", "sglang"])
def test_command_of_an_open_loop_lifts_the_limit_on_requests_in_flight(form: str, tmp_path: Path) -> None:
    command, _ = client_command(timed(), form, tmp_path / "t")
    assert "--max-concurrency 3" in command
    assert f"--request-rate {2 / 2.75:.6g}" in command


def test_aiperf_needs_times_and_prompts(tmp_path: Path) -> None:
    untimed = make({"request_id": ["x"], "arrival_s": [0.0], "prompt": ["a"]}, name="t", source="s",
                   notes={"arrival_s": ORDER_ONLY})  # fmt: skip
    with pytest.raises(TraceError, match="an order of requests and no times"):
        export(untimed, "aiperf", tmp_path / "t.jsonl")
    with pytest.raises(TraceError, match=r"row 1, column prompt: found None, expected a text"):
        export(timed(prompt=["a", None, "c"]), "aiperf", tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()
