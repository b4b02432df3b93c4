"""How an error names the part that did what cannot be."""

import sys
from collections.abc import Mapping
from typing import Any


def caller() -> str:
    """The class of the part that called, for errors: the first outside this package, on the way up."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        made = type(frame.f_locals.get("self"))
        if made is not type(None) and not frame.f_globals.get("__name__", "").startswith("sim.cluster."):
            return f"{made.__module__}.{made.__qualname__}"
        frame = frame.f_back
    return "a part"


def named(parts: Mapping[str, object], kind: str) -> str:
    """A part as errors name it: what it is, and its class."""
    part: Any = parts.get(kind)
    return f"the {kind} ({type(part).__module__}.{type(part).__qualname__})"
