"""What the tests of sources share: every importer, a small valid file for each, and what importing a file ends in."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces.intake import store
from traces.schema import Trace, TraceError, read
from traces.sources import Streamed
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
