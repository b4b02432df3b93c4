"""Assumptions of a result that were not measured."""

from dataclasses import dataclass
from typing import Any

EXTRAPOLATED = "(extrapolate=warn)"
"""Suffix of the source of an assumption about an extrapolated table."""

UNMEASURED = "(not measured)"
"""Suffix of the source of an assumption about the cost of a request that a profile does not have."""

UNREAD = "(not read)"
"""Suffix of the source of an assumption about what a file of the user's has and nothing reads."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption of a result, in words with its unit; every summary shows it."""

    what: str
    value: Any
    source: str
