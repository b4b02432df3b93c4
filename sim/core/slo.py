"""Latency limits: multiples of the standalone latency, or seconds."""

import re
from dataclasses import dataclass
from typing import Literal

MAX_MULTIPLE = 1e6
MAX_S = 1e9
"""Thirty years."""


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """A latency limit: ``value`` times the request's standalone latency (x), or seconds (s)."""

    unit: Literal["x", "s"]
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}{self.unit}"


def parse_limit(found: object) -> Limit:
    """Read a limit: a number or "2x" is a multiple, "10s" is seconds. Raises ValueError with what was expected."""
    text = str(found).strip() if isinstance(found, str | int | float) and not isinstance(found, bool) else ""
    parts = re.fullmatch(r"([-+.\deE]+)\s*([xs]?)", text)
    try:
        value = float(parts[1]) if parts else 0.0
    except ValueError:
        value = 0.0
    unit: Literal["x", "s"] = "s" if parts and parts[2] == "s" else "x"
    if not 0 < value <= (MAX_S if unit == "s" else MAX_MULTIPLE):
        raise ValueError("expected a multiple of the standalone latency (2 or 2x) or seconds (10s), above 0")
    return Limit(unit, value)
