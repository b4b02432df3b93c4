"""A trace's facts as aligned lines of text."""

from typing import Any

from conf.page import render as filled
from traces.table.validation import shown

LONGEST = 10_000
"""Characters of a name."""


def render(facts: dict[str, Any]) -> str:
    """Return `describe`'s facts as aligned lines of text."""
    told = {**facts, **{name: shown(facts[name], LONGEST) for name in ("name", "source")}}
    told["notes"] = {key: shown(str(value), 200) for key, value in facts["notes"].items()}
    if facts["addons"]:
        together = {shown(names, LONGEST): share for names, share in facts["addons"]["together"].items()}
        told["addons"] = {**facts["addons"], "together": together}
    page = filled("traces.describe", "facts.jinja", **told)
    lines = [line.split("\t", 1) for line in page.splitlines()]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)
