"""Engines' requests: what costs is a column, what has no column is kept, and both are said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.export import export
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.table.trace import Trace


def load(form: str, text: str, folder: Path) -> Trace:
    (folder / "requests").write_text(text, encoding="utf-8")
    source: Any = LOGS[form]
    trace: Trace = source(path=folder / "requests").load(np.random.default_rng(0))
    return trace


@pytest.mark.parametrize(
    ("form", "text", "columns", "extras"),
    [
        ("vllm-omni", "fps=16, num_frames=80", {"frames": 80}, {"fps": 16}),
        ("vllm-omni", "image_path='a.png'", {"input_images": 1}, {"image_path": "a.png"}),
        ("vllm-omni", "image_paths=['a', 'b'], strength=.5", {"input_images": 2, "strength": 0.5}, None),
        ("vllm-omni", "image_paths=[]", {"input_images": 0}, None),
        ("vllm-omni", "negative_prompt='', guidance_scale=1", {"negative_prompt": "", "guidance": 1.0}, {}),
        ("vllm-omni", "true_cfg_scale=4.0", {"guidance": 4.0}, {"true_cfg_scale": 4.0}),
        ("vllm-omni", "n=4", {"images": 4}, {"n": 4}),
        ("vllm-omni", "text='a fox'", {"prompt": "a fox"}, {"text": "a fox"}),
        (
            "vllm-omni",
            "lora={'name': 'x', 'scale': .5}, new=None",
            {"loras": None},
            {"lora": {"name": "x", "scale": 0.5}},
        ),
        ("sglang", '"guidance_scale": 4', {"guidance": 4.0}, {}),
        ("sglang", '"image_paths": ["a", "b"]', {"input_images": 2}, {"image_paths": ["a", "b"]}),
        ("sglang", '"image_paths": "pond.png"', {"input_images": 1}, {"image_paths": "pond.png"}),
        ("sglang", '"negative_prompt": "x", "n": 2', {"negative_prompt": "x", "images": 2}, {"n": 2}),
        ("sglang", '"unknown": [1]', {"images": None}, {"unknown": [1]}),
        (
            "sglang",
            '"height": 64, "sampling_params": {"height": 512, "num_inference_steps": 20, "true_cfg_scale": 4, "x": 1}',
            {"height": 64, "steps": 20, "guidance": 4.0},
            {
                "true_cfg_scale": 4,
                "sampling_params": {"height": 512, "num_inference_steps": 20, "true_cfg_scale": 4, "x": 1},
            },
        ),
    ],
)
def test_field_becomes_a_column_or_is_kept(
    form: str, text: str, columns: dict[str, Any], extras: dict[str, Any] | None, tmp_path: Path
) -> None:
    trace = load(form, f"Request({text})" if form == "vllm-omni" else f'{{"prompt": "a", {text}}}', tmp_path)
    assert {name: trace.table.column(name)[0].as_py() for name in columns} == columns
    kept = json.loads(trace.table.column("extras")[0].as_py() or "{}")
    if extras is not None:
        assert kept == extras
    assert all(field in trace.notes[SAID][-1] for field in kept)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("n='x', n2=1+2j", "no JSON"),
        ("n=1.5", "row 0, column n: found 1.5"),
        ("text=['a']", "row 0"),
        ("strength=-1.0", "row 0, column strength"),
        ("guidance_scale='high'", "row 0, column guidance_scale: found 'high'"),
    ],
)
def test_value_of_another_kind_is_named(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=named):
        load("vllm-omni", f"Request({text})", tmp_path)


def test_extras_are_written_back(tmp_path: Path) -> None:
    trace = load("vllm-omni", "Request(prompt='a', image_paths=['x', 'y'], fps=16, guidance_scale=2.5)", tmp_path)
    export(trace, "vllm-omni", tmp_path / "out")
    assert "image_paths=['x', 'y']" in (tmp_path / "out").read_text()
    assert load("vllm-omni", (tmp_path / "out").read_text(), tmp_path).digest == trace.digest


def test_timestamps_since_1970_are_of_any_unit(tmp_path: Path) -> None:
    for per_second in (1, 1000, 10**6, 10**9):
        text = "".join(f"Request(prompt='a', timestamp={at * per_second})\n" for at in (1787000000, 1787000002))
        assert load("vllm-omni", text, tmp_path).arrival_s.tolist() == [0.0, 2.0]
    with pytest.raises(TraceError, match="row 1, column timestamp"):
        load("vllm-omni", "Request(timestamp=1787000000)\nRequest(timestamp=1787000002000)", tmp_path)
