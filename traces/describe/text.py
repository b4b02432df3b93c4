"""Statistics of a trace as aligned lines of text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.figures.page import render as filled
from mezzotint.traces.table.validation import excerpt

MAX_NAME = 10_000
"""Characters of a name, at most."""


def quantiles(values: npt.NDArray[Any], levels: tuple[int, ...]) -> dict[str, float]:
    """Return percentiles of (n,) values by name: p50 and so on."""
    return {f"p{level}": float(np.percentile(values, level)) for level in levels}


def render(statistics: dict[str, Any]) -> str:
    """Return statistics (`TraceStatistics.to_dict()`) as aligned lines of text."""
    printed = {**statistics, **{name: excerpt(statistics[name], MAX_NAME) for name in ("name", "source")}}
    printed["notes"] = {key: excerpt(str(value), 200) for key, value in statistics["notes"].items()}
    if statistics["addons"]:
        together = {excerpt(names, MAX_NAME): share for names, share in statistics["addons"]["together"].items()}
        printed["addons"] = {**statistics["addons"], "together": together}
    page = filled("mezzotint.traces.describe", "statistics.jinja", **printed)
    lines = [line.split("\t", 1) for line in page.splitlines()]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)
