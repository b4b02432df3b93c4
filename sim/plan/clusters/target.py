"""Targets of a plan: a bound on a key of summary.json."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sim.core.errors import ConfigError
from sim.core.slo import Limit, parse_limit

LATENCIES = ("mean", "p50", "p90", "p95", "p99", "max")
"""Short names of the keys under ``latency_s``."""

EXAMPLES = '"p95<10s", "mean<=4s", "over 2x<5%", "queue_s.p99<1"'


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a number of the summary.

    Attributes:
        text: the target as the user wrote it.
        key: the dotted key of summary.json.
        side: ``max`` if the number may not exceed ``bound``, ``min`` if it may not be below it.
        limit: the latency limit that the runs have to count, for ``over 2x<5%``; else None.
    """

    text: str
    key: str
    side: Literal["max", "min"]
    bound: float
    limit: Limit | None = None

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """Return the number of ``summary`` that the target bounds; None if it is null.

        Raises ConfigError: the summary has no such key, or it is no number.
        """
        found: Any = summary
        for name in self._path():
            if not isinstance(found, Mapping) or name not in found:
                raise ConfigError(f"--target {self.text}: summary.json has no key {self.key}; try {EXAMPLES}")
            found = found[name]
        if found is not None and (isinstance(found, bool) or not isinstance(found, int | float)):
            raise ConfigError(f"--target {self.text}: {self.key} of summary.json is no number; try {EXAMPLES}")
        return found

    def ratio(self, summary: Mapping[str, Any]) -> float:
        """Return the number over its bound, or the bound over it for a minimum: above 1 the target is missed.

        A null is infinite: nothing was measured that could meet a target. Requests that were discarded or failed miss
        every bound on a latency, since they would have waited longest.
        """
        found = self.value(summary)
        requests = summary["requests"]
        if found is None or (self.key.startswith("latency_s.") and requests["completed"] < requests["arrived"]):
            return math.inf
        if self.side == "min":
            return self.bound / found if found > 0 else math.inf
        return found / self.bound if self.bound > 0 else (0.0 if found <= 0 else math.inf)

    def _path(self) -> list[str]:
        if self.limit is not None:
            return ["slo", str(self.limit), "violation_rate"]  # a limit of 2.5x has a dot
        return self.key.split(".")


def parse_target(text: str) -> Target:
    """Read a target such as ``p95<10s``, ``over 2x<5%`` or ``gpu.busy_fraction>=0.3``.

    A latency, mean or percentile, is in seconds. Raises ConfigError with what was expected.
    """
    expected = f"--target {text}: expected KEY<VALUE or KEY>=VALUE, such as {EXAMPLES}"
    parts = re.fullmatch(r"\s*([\w. ]+?)\s*(<=?|>=?|≤|≥)\s*([\d.eE+-]+)\s*(s|%|)\s*", text)
    if parts is None:
        raise ConfigError(expected)
    key, sign, number, unit = parts.groups()
    try:
        bound = float(number) * (0.01 if unit == "%" else 1.0)
    except ValueError:
        raise ConfigError(expected) from None
    if not (math.isfinite(bound) and bound >= 0):
        raise ConfigError(expected)
    side: Literal["max", "min"] = "max" if sign in "<=≤" else "min"
    over = re.fullmatch(r"over\s+(\S+)", key)
    if over is not None:
        try:
            limit = parse_limit(over[1])
        except ValueError as error:
            raise ConfigError(f"--target {text}: {error}") from None
        return Target(text, f"slo.{limit}.violation_rate", side, bound, limit)
    if key in LATENCIES:
        return Target(text, f"latency_s.{key}", side, bound)
    if "." not in key and not key.startswith("throughput"):
        raise ConfigError(expected)
    return Target(text, key, side, bound)


def check_targets(targets: Sequence[Target]) -> None:
    """Raise ConfigError if there is no target."""
    if not targets:
        raise ConfigError(f"--target: found none, expected what the cluster must hold, such as {EXAMPLES}")
