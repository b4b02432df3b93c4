"""The manifest of SGLang-Diffusion's benchmark, a JSON object per line, read and written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Required

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.formats.cells import refusal
from mezzotint.traces.sources.formats.jsontext import elements
from mezzotint.traces.sources.formats.records import Number, Whole, check_records, extras
from mezzotint.traces.sources.reader import make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import Origin


@with_config(ConfigDict(extra="forbid"))
class ManifestLine(TypedDict, total=False):
    """A line of the manifest: its fields, in the order of writing."""

    prompt: Required[str]
    request_id: str | None
    width: Whole | None
    height: Whole | None
    num_inference_steps: Whole | None
    guidance_scale: Number | None
    negative_prompt: str | None
    seed: Whole | None
    num_outputs_per_prompt: Whole | None
    num_frames: Whole | None
    fps: Number | None
    image_paths: list[str] | None
    sampling_params: dict[str, Any] | None


LINES = TypeAdapter(list[ManifestLine])

COLUMNS: Mapping[str, str] = {
    "prompt": "prompt",
    "request_id": "request_id",
    "width": "width",
    "height": "height",
    "num_frames": "frames",
    "num_inference_steps": "steps",
    "seed": "seed",
    "num_outputs_per_prompt": "images",
}
"""Field -> column of a trace."""

OTHERS = tuple(name for name in ManifestLine.__annotations__ if name not in COLUMNS)
"""Fields kept in the column extras."""


@dataclass(slots=True, kw_only=True)
class SGLang(Streamed):
    """The manifest of SGLang-Diffusion's benchmark: JSON lines with a prompt and optional settings.

    The settings are size, steps, seed, number of images and more. An unknown field is an error, as in the benchmark.
    The manifest has no times: its lines are in order, and need an arrival process. Fields without a column are kept in
    the extras, so that `lines` writes what was read.

    Args:
        path: the file, UTF-8, plain or gzipped; a leading ~ is the home folder.
    """

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes = {"file": path.name, "arrival_s": ORDER_ONLY}
        return make_reading(self, f"SGLang-Diffusion manifest, {path.name}", self._batches(path), notes)

    def _batches(self, path: Path) -> Iterator[Batch]:
        named: bool | None = None
        names = {ours: theirs for theirs, ours in COLUMNS.items()}
        for rows, found in with_row_numbers(elements(path, self.limits)):
            origin = Origin(str(path), names, rows)
            check_records(found, LINES, origin)
            for index, value in enumerate(found):
                has = value.get("request_id") is not None
                named = has if named is None else named
                if has is not named:
                    raise refusal(origin, index, "request_id", "one" if has else "none", "one in every line or in none")
            columns = {
                ours: pa.array(
                    [each.get(theirs) for each in found],
                    pa.string() if ours in ("prompt", "request_id") else pa.int64(),
                )
                for theirs, ours in COLUMNS.items()
                if theirs != "request_id" or named
            }
            others = [{name: each[name] for name in OTHERS if each.get(name) is not None} for each in found]
            texts = [json.dumps(each, ensure_ascii=False) if each else None for each in others]
            columns["extras"] = pa.array(texts, pa.string())
            yield untimed_batch(columns, origin, int(rows[0]))


def lines(trace: Trace) -> Iterator[str]:
    """Yield each request of `trace` as a line of a manifest, without the end of the line and without nulls.

    Raises TraceError if a request has no prompt, or its extras are not a JSON object.
    """
    for row in range(len(trace)):
        others = extras(trace, row)  # num_frames, too, of traces from before the column frames
        own = {theirs: trace.table.column(ours)[row].as_py() for theirs, ours in COLUMNS.items()}
        values = {name: others[name] for name in (*OTHERS, "num_frames") if name in others}
        values |= {name: value for name, value in own.items() if value is not None or name not in values}
        if values["prompt"] is None:
            raise TraceError(
                f"{trace.path or trace.name}: row {row}, column prompt: found null, expected text, which the "
                "manifest requires; pair the trace with prompts (mezzotint trace pair)"
            )
        yield json.dumps(
            {name: values[name] for name in ManifestLine.__annotations__ if values.get(name) is not None},
            ensure_ascii=False,
        )
