"""What a result rests on besides what was measured."""

from dataclasses import dataclass
from typing import Any

EXTRAPOLATED = "(extrapolate=warn)"
"""The end of the source of an assumption that a table was extrapolated."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that a result rests on and that nobody measured, in words with its unit: shown in every summary."""

    what: str
    value: Any
    source: str
