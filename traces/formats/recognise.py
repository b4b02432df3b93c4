"""Recognise the formats of other sources, so that a message can name the source that reads a file."""

import re
from collections.abc import Mapping
from typing import Any

MARKS = (
    ("vllm-omni", r"\A\s*Request\("),
    ("a1111", r"^Steps: \d+, [A-Z][\w ]*: "),
    ("access-log", r"\A\S+ \S+ \S+ \[\d{2}/[A-Z][a-z]{2}/\d{4}:"),
    ("access-log", r'\A\s*\{(?=[^\n]*"request_time":)[^\n]*"(time_iso8601|time_local|msec|body_bytes_sent)":'),
    ("access-log", r'\A\s*\{[^\n]*"logger":\s*"http\.log\.access|\A\s*\{(?=[^\n]*"StartUTC":)[^\n]*"RequestMethod":'),
    ("access-log", r'\A\s*[\[{](?=.*"httpRequest":\s*\{).*"logName":\s*"[^"]*requests"'),
    (
        "k6",
        r'\A"?metric_name"?,"?timestamp|\A\s*\{[^\n]*"metric":\s*"\w+"[^\n]*"type":\s*"(Point|Metric)"'
        r'|\A\s*\{[^\n]*"type":\s*"(Point|Metric)"[^\n]*"metric":',
    ),
    ("locust", r"\A[^\n{\[]*\brequest_type,[^\n]*\bresponse_time"),
    ("jmeter", r"\A[^\n{\[]*\btimeStamp\b[^\n]*\belapsed\b"),
    ("aiperf", r'\A\s*\{\s*"metadata":[^\n]*"request_start_ns"'),
    ("vllm-bench", r'\A\s*\{[^\[]*"(request_throughput|num_prompts)":'),
    ("comfyui", r'\A\s*[\[{].*"class_type":'),
    ("civitai", r'\A\s*[\[{].*"(nsfwLevel|civitaiResources)":|\A\s*\{\s*"items":\s*\[\s*\{.*"meta":'),
    ("gateway", r'\A\s*\{(?=[^\n]*"sampling_params":)[^\n]*"(timestamp|time|ts|created_at|arrival_time)":'),
    ("sglang", r'\A\s*\{[^\n]*"sampling_params":'),
    (
        "gateway",
        r'\A\s*\[?\s*\{[^\n]*"(request|body|payload|input|params|parameters|request_body|proxy_server_request)":'
        r'\s*\{[^\n}]*"prompt":',
    ),
)
"""Names of sources, and regular expressions that the heads of their files match, the sharpest first."""

FOREIGN = (
    (
        r"\s*[{\[]",
        "JSON in UTF-16, expected UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8",
    ),
    (
        r"(#.*\n)*#Fields:",
        "a web server's log in W3C's format (IIS, CloudFront), which is not read; make a table of it with the header"
        " end_time,time_taken_ms,method,url,status (end_time is date and time of a line; CloudFront's time-taken is"
        " time_taken_s), and read it with `mezzotint trace import gateway`",
    ),
    (
        r"(https?|h2|grpcs?|wss?) \d{4}-\d\d-\d\dT\S+Z \S+ \S+:\d+ ",
        "the access log of an AWS load balancer; read it with `mezzotint trace import access-log FILE --format '$type"
        " $time_iso8601 $elb $client $target $taken_in $request_time $handed_out $elb_status $status $received $sent"
        ' "$request" $others\'`',
    ),
    (
        r"\d{4}-\d\d-\d\dT\S+ (stdout|stderr) [FP] ",
        "a container's log of Kubernetes; take the records with cut -d' ' -f4- FILE > lines.jsonl, and read that with"
        " `mezzotint trace import gateway`",
    ),
    (
        r"\d{19},\d{1,3},\d+,\d+,\d+,",
        "vegeta's results as CSV; write them with vegeta encode --to json, and read them with `mezzotint trace import"
        " gateway FILE --unit latency=ns`",
    ),
    (
        r"[^\s,]+(,[\w.-]+=[^\s,]+)* [\w.-]+=[^ ]+ \d{10,19}\s*(\n|$)",
        "InfluxDB's line protocol; export the requests as CSV, one a row",
    ),
    (
        r"\|.*\|\s*\n\|[\s:|-]+\|\s*\n|\+[-=+]{3,}\s*\n",
        "a table drawn for reading (Markdown, psql, mysql); export it as CSV",
    ),
)
"""Starts of texts that are not delimited, as regular expressions, with what they are and what to do with them."""

NESTED = {
    "resourceSpans": ("a span", ".resourceSpans[].scopeSpans[].spans[]"),
    "spans": ("a span", ".data[].spans[]"),
    "experiments": ("a request", ".experiments[].requests[] | {timestamp, end_time: .response_timestamps[-1]}"),
}
"""Lists in records of OpenTelemetry, of Jaeger and of perf_analyzer, what they hold within, and jq's path to it."""


def nested(record: Mapping[str, Any], file: str) -> str | None:
    """Return what to do with a record of ``file`` that holds many requests within; None of others."""
    for name, (what, inner) in NESTED.items():
        if isinstance(record.get(name), list):
            return (
                f"found a list {name}, expected {what} a line; write those of requests with jq -c '{inner}' {file} > "
                "lines.jsonl, and read that with `mezzotint trace import gateway`"
            )
    return None


def foreign_format(head: str) -> str | None:
    """Return what a text that begins with ``head`` is if it is not delimited, and what to do; None if it may be."""
    return next((what for mark, what in FOREIGN if re.match(mark, head.lstrip("\ufeff"))), None)


def other_format(head: bytes) -> str | None:
    """Return the name of the source that reads a file that begins with ``head``, or None.

    Names of sources are those of `mezzotint trace import`.
    """
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    return next((name for name, mark in MARKS if re.search(mark, text, re.MULTILINE | re.DOTALL)), None)
