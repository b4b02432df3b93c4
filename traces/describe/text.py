"""A trace's facts as numbers and as aligned lines of text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from conf.page import render as filled
from traces.table.validation import excerpt

MAX_NAME = 10_000
"""Characters of a name."""


def quantiles(values: npt.NDArray[Any], levels: tuple[int, ...]) -> dict[str, float]:
    """Return the percentiles of (n,) values by name: p50 and so on."""
    return {f"p{level}": float(np.percentile(values, level)) for level in levels}


def render(facts: dict[str, Any]) -> str:
    """Return a trace's facts (see `traces.describe.statistics.TraceStatistics`) as aligned lines of text."""
    told = {**facts, **{name: excerpt(facts[name], MAX_NAME) for name in ("name", "source")}}
    told["notes"] = {key: excerpt(str(value), 200) for key, value in facts["notes"].items()}
    if facts["addons"]:
        together = {excerpt(names, MAX_NAME): share for names, share in facts["addons"]["together"].items()}
        told["addons"] = {**facts["addons"], "together": together}
    page = filled("traces.describe", "statistics.jinja", **told)
    lines = [line.split("\t", 1) for line in page.splitlines()]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)
