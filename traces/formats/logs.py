"""Read the records of logs: of gateways, web servers, load clients and image tools, one record a request."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.accesslog import access_log, is_access
from mezzotint.traces.formats.columnar import read_parquet
from mezzotint.traces.formats.comfyui import of_prompt
from mezzotint.traces.formats.delimited import HEAD_BYTES, read_delimited, sniff
from mezzotint.traces.formats.jsontext import is_json, members, records
from mezzotint.traces.formats.parameters import generated, with_second_pass
from mezzotint.traces.formats.recognise import NESTED, nested
from mezzotint.traces.table.limits import PARQUET, Limits, open_unpacked
from mezzotint.traces.table.validation import excerpt

Records = Iterator[tuple[int, dict[str, Any]]]
"""Records with the number of each in its file, counted from 0."""


def json_records(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the objects of JSON lines, or of a JSON array. Raises TraceError for another value."""
    return records(path, limits)


def rows_or_records(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the rows of a delimited text with a header or of Parquet, or the objects of JSON lines."""
    with open_unpacked(path, limits) as stream:
        head = stream.read(HEAD_BYTES)
    if is_json(head):
        yield from json_records(path, limits, None)
        return
    if head.startswith(PARQUET):
        _, tables = read_parquet(path, limits, None, "a table of requests")
    else:
        _, tables = read_delimited(path, limits, sniff(path, limits, head)[1])
    yield from enumerate(itertools.chain.from_iterable(table.to_pylist() for table in tables))


def comfyui(path: Path, limits: Limits, _: Any) -> Records:
    """Yield a record for each prompt of ComfyUI's history."""
    for row, (name, entry) in enumerate(itertools.chain.from_iterable(members(path, limits))):
        yield row, of_prompt(name, entry, f"{path}: prompt {excerpt(name, 60)}")


def civitai(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the images of pages of Civitai's API, one page after another, or of a list of images."""
    row = 0
    for _, page in json_records(path, limits, None):
        items = page["items"] if isinstance(page.get("items"), list) else [page]
        for item in items:
            if not isinstance(item, dict):
                raise TraceError(f"{path}: image {row}: found {excerpt(repr(item), 60)}, expected an object")
            meta = {**item["meta"]} if isinstance(item.get("meta"), dict) else {}
            if isinstance(inner := meta.get("meta"), dict):  # civitai #2421
                meta = meta | inner
                del meta["meta"]
            sides = (item.get("width"), item.get("height"))
            size = meta.pop("Size", None) or (None if None in sides else "x".join(map(str, sides)))
            resources = meta.pop("resources", None)
            loras = [
                part.get("name")
                for part in (resources if isinstance(resources, list) else [])
                if isinstance(part, dict) and part.get("type") in ("lora", "lycoris")
            ]
            yield row, {**item, "meta": with_second_pass(meta), "size": size, "loras": loras if resources else None}
            row += 1


def k6(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the durations of HTTP requests of k6's output, CSV or JSON: one a request, among rows of other metrics."""
    for row, record in rows_or_records(path, limits, None):
        data = record.get("data")
        if isinstance(data, dict):  # {"type": "Point", "metric": ..., "data": {"time", "value", "tags"}}
            tags: Any = data.get("tags")
            tags = tags if isinstance(tags, dict) else {}
            is_point = record.get("type") == "Point"
            record = {**tags, "metric_name": record.get("metric") if is_point else "", "timestamp": data.get("time"),
                      "metric_value": data.get("value")}  # fmt: skip
        if "metric_name" not in record or "metric_value" not in record:
            raise TraceError(
                f"{path}: row {row}: found the fields {excerpt(', '.join(map(str, record)))}, expected metric_name,"
                " timestamp and metric_value; write them with k6 run --out csv=FILE or --out json=FILE (the summary at"
                " the end of a run holds statistics and no requests)"
            )
        if record["metric_name"] == "http_req_duration":
            extra = record.pop("extra_tags", None)
            yield row, record | dict(parse_qsl(extra or ""))


STATISTICS = frozenset({
    "Request Count", "User Count", "Requests/s", "Average Response Time", "num_requests", "avg_response_time",
    "Occurrences",
})  # fmt: skip
"""Fields of Locust's own statistics, histories and failures, none of which has a row for each request."""


def locust(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the requests that a listener of Locust's `request` event wrote. Raises TraceError for its statistics."""
    for row, record in rows_or_records(path, limits, None):
        if STATISTICS & record.keys():
            raise TraceError(
                f"{path}: found Locust's statistics ({', '.join(sorted(STATISTICS & record.keys())[:3])}), expected a"
                " row a request; write request_type, name, response_time and start_time in a listener of"
                " locust.events.request"
            )
        yield row, record


def jmeter(path: Path, limits: Limits, _: Any) -> Records:
    """Yield the samples of JMeter's results; those of transactions, which hold others, are no requests."""
    for row, record in rows_or_records(path, limits, None):
        if "elapsed" not in record:
            raise TraceError(
                f"{path}: found the fields {excerpt(', '.join(map(str, record)))}, expected timeStamp and elapsed; save"
                " results as CSV with a header (jmeter.save.saveservice.output_format=csv, print_field_names=true)"
            )
        message = str(record.get("responseMessage"))
        yield row, {"responseMessage": message} if message.startswith("Number of samples in transaction") else record


def gateway(path: Path, limits: Limits, _: Any) -> Records:
    """Yield rows or objects. Raises TraceError for a log of another form in which usual names mean something else."""
    for row, record in rows_or_records(path, limits, None):
        if record.keys() & OF_OTHERS:
            _refuse_others(path, row, record)
        yield row, record


OF_OTHERS = frozenset({"elapsed", "logger", "StartUTC", "httpRequest", *NESTED})
"""Fields that records of other forms have, and those of gateways seldom."""


def _refuse_others(path: Path, row: int, record: dict[str, Any]) -> None:
    other = "jmeter" if {"timeStamp", "elapsed"} <= record.keys() else "access-log" if is_access(record) else None
    if other is not None:
        raise TraceError(
            f"{path}: looks like the format {other}, in which times and sizes of these names mean something else; read"
            f" it with `mezzotint trace import {other} FILE`"
        )
    if remedy := nested(record, path.name):
        raise TraceError(f"{path}: row {row}: {remedy}")


READERS: Mapping[str, Callable[[Path, Limits, Any], Records]] = {
    "json": json_records,
    "gateway": gateway,
    "comfyui": comfyui,
    "civitai": civitai,
    "k6": k6,
    "locust": locust,
    "jmeter": jmeter,
    "access log": access_log,
    "parameters": generated,
}
"""Name in a form -> the reader of its records: path, limits and the source's own options."""
