"""Read lines such as `Request(width=512, ...)`: keywords and literal values, parsed and not run."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.traces.formats.cells import refusal
from mezzotint.traces.formats.lines import lines
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin


def requests(path: Path, limits: Limits) -> Iterator[tuple[npt.NDArray[np.int64], int, list[dict[str, Any]]]]:
    """Yield the numbers of lines, how many blank ones are skipped among them, and the keywords of each.

    Raises TraceError as `lines`, or if a line is no call of Request with literal strings and numbers.
    """
    longest = 2 * limits.max_prompt_bytes + 4096  # escaped text is longer
    for numbers, texts in lines(path, limits, longest, "request"):
        filled = {row: text.strip() for row, text in zip(numbers, texts, strict=True) if text.strip()}
        origin = Origin(str(path), rows=np.array(list(filled), np.int64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown escapes in texts
            records = [_keywords(line, origin, index) for index, line in enumerate(filled.values())]
        yield origin.rows, len(texts) - len(filled), records  # type: ignore[misc]


def _keywords(line: str, origin: Origin, index: int) -> dict[str, Any]:
    expected = "Request(request_id='...', width=..., ...) with literal strings and numbers, one a line"
    try:
        call = ast.parse(line, mode="eval").body
        if (
            not isinstance(call, ast.Call)
            or ast.unparse(call.func) != "Request"
            or call.args
            or None in [word.arg for word in call.keywords]
        ):
            raise ValueError
        values = [(str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in call.keywords]
        for _, value in values:
            str(value).encode()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise refusal(origin, index, "request", repr(line[:200]), expected) from None
    if len(dict(values)) < len(values):
        raise refusal(origin, index, "request", f"a field twice in {line[:200]!r}", "each field once")
    return dict(values)
