"""Every importer with a small valid file, the result of an import, and a tiny CLIP model."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.logged import SOURCES
from mezzotint.traces.sources.prompts import Prompts
from mezzotint.traces.sources.published import LOGS
from mezzotint.traces.sources.table import Table
from mezzotint.traces.table.ingest import store
from mezzotint.traces.table.trace import Trace, read

IMPORTERS: dict[str, tuple[str, Callable[..., Streamed]]] = {
    **{form: ("t.txt", source) for form, source in SOURCES.items()},
    "table": ("t.csv", Table),
    "diffusiondb": ("t.csv", LOGS["diffusiondb"]),
    "diffusiondb as parquet": ("t.parquet", LOGS["diffusiondb"]),
    "gentd26": ("t.csv", LOGS["gentd26"]),
    "katz": ("t.json", LOGS["katz"]),
    "mjhq": ("t.json", LOGS["mjhq"]),
    "partiprompts": ("t.tsv", LOGS["partiprompts"]),
    "prompts": ("t.txt", Prompts),
    "prompts as json": ("t.json", Prompts),
    "sd-beta": ("t.csv", LOGS["sd-beta"]),
    "sglang": ("t.jsonl", LOGS["sglang"]),
    "vllm-omni": ("t.txt", LOGS["vllm-omni"]),
}
"""Return every importer, with a name that its files may have."""


def parquet_bytes(**changed: Any) -> bytes:
    """Two rows of DiffusionDB as Parquet, with other columns where they are given."""
    file = io.BytesIO()
    columns: dict[str, Any] = {
        "image_name": ["a.png", "b.png"], "prompt": ["a fox", "a red fox"], "seed": [1, 2], "step": [50, 50],
        "width": [512, 512], "height": [512, 512], "user_name": ["u", None], "image_nsfw": [0.1, 0.2],
        "timestamp": pa.array([0, 60], pa.timestamp("s", "UTC")), "prompt_nsfw": [0.1, 0.2],
    }  # fmt: skip
    pq.write_table(pa.table({**columns, **changed}), file)
    return file.getvalue()


DDB_ROW = b"a fox,1,50,512,512,u,2022-08-14 00:45:00+00:00\n"
VALID: dict[str, bytes] = {
    "a1111": b"a fox\nNegative prompt: b\nSteps: 20, Sampler: Euler a, Seed: 1, Size: 64x32\n",
    "access-log": b'h - - [03/Nov/2026:10:00:06 +0000] "POST /generate HTTP/1.1" 200 9 "-" "c" 6.025\n' * 2,
    "civitai": b'{"items": [{"id": 1, "createdAt": "2026-11-03T10:00:00.000Z", "meta": {"prompt": "a", "steps": 9}}]}',
    "comfyui": (
        b'{"p": {"prompt": [1, "p", {"3": {"class_type": "KSampler", "inputs": {"steps": 20}}}, {}, []],'
        b' "status": {"messages": [["execution_start", {"timestamp": 1787000000123}]]}}}'
    ),
    "gateway": b'{"ts": 1787000000.5, "request": {"prompt": "a fox", "n": 2}}\n{"ts": 1787000001, "prompt": "b"}\n',
    "k6": (
        b"metric_name,timestamp,metric_value,status,method,url\n"
        b"http_reqs,1787000000,1,200,POST,http://h/generate\nhttp_req_duration,1787000000,500,200,POST,http://h/generate\n"
    ),
    "jmeter": b"timeStamp,elapsed,label,responseCode,success,Latency\n1787000000123,4120,a,200,true,10\n",
    "locust": b"request_type,name,response_time,start_time\nPOST,/generate,2500.5,1787000000.25\n",
    "table": b'prompt,arrival_s,width,loras\n"a, ""fox""",1.5,512,a;b\nb,2,,\n',
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
    "sd-beta": (
        b"est_unix_s,channel,idx,user,prompt,width,height,steps,n_images,seed,gen_seconds\n"
        b"1660000000,c,7,u,a fox,512,768,,9,1,42.5\n"
    ),
    "sglang": b'{"prompt": "a fox", "request_id": "a", "width": 512, "fps": 8}\n{"prompt": "b", "request_id": "b"}\n',
    "vllm-omni": (
        b"Request(request_id='a', prompt='a fox', width=512, num_inference_steps=20, timestamp=0.5, seed=7)\n"
        b"Request(request_id='b', prompt=\"b\", timestamp=2, slo_ms=3000.0)\n"
    ),
}


def hold_to_form(error: TraceError, name: str = "") -> None:
    assert "\n" not in str(error)
    assert name in str(error)
    assert str(error).isprintable()


def outcome(importer: str, content: bytes, folder: Path, **options: Any) -> TraceError | Trace:
    """Return what storing the content ends in; fail on anything but a trace or one line of TraceError."""
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


def needs_clip() -> None:
    """Skip where the packages that CLIP needs are not installed."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="needs the `text` extra")


def tiny_clip(folder: Path) -> Path:
    """Save a CLIP model of random weights, vectors of 24 numbers, whose vocabulary is single bytes."""
    import tokenizers
    import torch
    import transformers

    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    tokenizer.save_pretrained(folder)
    side = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    start, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
    words = {"vocab_size": len(pieces), "bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
    config = transformers.CLIPConfig(
        text_config={**side, **words, "max_position_embeddings": 77},
        vision_config={**side, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.CLIPModel(config).eval()
    for name, tensor in model.named_parameters():  # with the weights as drawn, prompts would hardly differ
        if "embedding" in name:
            tensor.data.mul_(20)
    model.save_pretrained(folder)
    return folder
