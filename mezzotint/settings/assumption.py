"""Assumptions of a result that were not measured."""

from dataclasses import dataclass
from typing import Any

EXTRAPOLATED = "(extrapolate=warn)"
"""Suffix of the source of an assumption about an extrapolated table."""

UNMEASURED = "(not measured)"
"""Suffix of the source of an assumption about the cost of a request that a profile does not have."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption of a result, in words with its unit; every summary shows it."""

    what: str
    value: Any
    source: str
