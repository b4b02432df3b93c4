"""A trace's facts as numbers and as aligned lines of text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from conf.page import render as filled
from traces.table.validation import shown

LONGEST = 10_000
"""Characters of a name."""


def quantiles(values: npt.NDArray[Any], levels: tuple[int, ...]) -> dict[str, float]:
    """Return the percentiles of (n,) values by name: p50 and so on."""
    return {f"p{level}": float(np.percentile(values, level)) for level in levels}


def render(facts: dict[str, Any]) -> str:
    """Return a trace's facts (see `traces.describe.facts.Character`) as aligned lines of text."""
    told = {**facts, **{name: shown(facts[name], LONGEST) for name in ("name", "source")}}
    told["notes"] = {key: shown(str(value), 200) for key, value in facts["notes"].items()}
    if facts["addons"]:
        together = {shown(names, LONGEST): share for names, share in facts["addons"]["together"].items()}
        told["addons"] = {**facts["addons"], "together": together}
    page = filled("traces.describe", "facts.jinja", **told)
    lines = [line.split("\t", 1) for line in page.splitlines()]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)
