"""Recognise the formats of other sources, so that a message can name the source that reads a file."""

import re
from collections.abc import Mapping

MARKS: Mapping[str, str] = {
    "vllm-omni": r"\A\s*Request\(",
    "a1111": r"^Steps: \d+, [A-Z][\w ]*: ",
    "access-log": r"\A\S+ \S+ \S+ \[\d{2}/[A-Z][a-z]{2}/\d{4}:",
    "k6": r'\A"?metric_name"?,"?timestamp|\A\s*\{[^\n]*"metric":\s*"\w+"[^\n]*"type":\s*"(Point|Metric)"'
    r'|\A\s*\{[^\n]*"type":\s*"(Point|Metric)"[^\n]*"metric":',
    "locust": r"\A[^\n{\[]*\brequest_type,[^\n]*\bresponse_time",
    "aiperf": r'\A\s*\{\s*"metadata":[^\n]*"request_start_ns"',
    "vllm-bench": r'\A\s*\{[^\[]*"(request_throughput|num_prompts)":',
    "comfyui": r'\A\s*[\[{].*"class_type":',
    "civitai": r'\A\s*[\[{].*"(nsfwLevel|civitaiResources)":|\A\s*\{\s*"items":\s*\[\s*\{.*"meta":',
    "sglang": r'\A\s*\{[^\n]*"sampling_params":',
    "gateway": r'\A\s*\[?\s*\{[^\n]*"(request|body|payload|input|params|parameters|request_body|proxy_server_request)":'
    r'\s*\{[^\n}]*"prompt":',
}
"""Name of a source -> regular expression that the head of its files matches, the sharpest first."""


def other_format(head: bytes) -> str | None:
    """Return the name of the source that reads a file that begins with ``head``, or None.

    Names of sources are those of `mezzotint trace import`.
    """
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    return next((name for name, mark in MARKS.items() if re.search(mark, text, re.MULTILINE | re.DOTALL)), None)
