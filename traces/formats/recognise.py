"""Recognise the formats of other sources, so that a message can name the source that reads a file."""

import re

MARKS = (
    ("vllm-omni", r"\A\s*Request\("),
    ("a1111", r"^Steps: \d+, [A-Z][\w ]*: "),
    ("access-log", r"\A\S+ \S+ \S+ \[\d{2}/[A-Z][a-z]{2}/\d{4}:"),
    ("access-log", r'\A\s*\{(?=[^\n]*"request_time":)[^\n]*"(time_iso8601|time_local|msec|body_bytes_sent)":'),
    (
        "k6",
        r'\A"?metric_name"?,"?timestamp|\A\s*\{[^\n]*"metric":\s*"\w+"[^\n]*"type":\s*"(Point|Metric)"'
        r'|\A\s*\{[^\n]*"type":\s*"(Point|Metric)"[^\n]*"metric":',
    ),
    ("locust", r"\A[^\n{\[]*\brequest_type,[^\n]*\bresponse_time"),
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


def other_format(head: bytes) -> str | None:
    """Return the name of the source that reads a file that begins with ``head``, or None.

    Names of sources are those of `mezzotint trace import`.
    """
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    return next((name for name, mark in MARKS if re.search(mark, text, re.MULTILINE | re.DOTALL)), None)
