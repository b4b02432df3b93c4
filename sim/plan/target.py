"""Targets of a plan: a bound on a key of summary.json."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.slo import OWN, Limit, parse_limit
from mezzotint.sim.metrics.summary_keys import KEYS, kind_of, number_at

LATENCIES = ("mean", "p50", "p90", "p95", "p99", "max")
"""Short names of the keys under ``latency_s``."""

EXAMPLES = '"p95<10s", "mean<=4s", "over 2x<5%", "queue_s.p99<1s"'


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a number of the summary.

    Attributes:
        text: the target as the user wrote it.
        key: the dotted key of summary.json.
        side: ``max`` if the number may not exceed ``bound``, ``min`` if it may not be below it.
        limit: the latency limit that the runs have to count, for ``over 2x<5%`` and keys below ``slo``; else None.
    """

    text: str
    key: str
    side: Literal["max", "min"]
    bound: float
    limit: Limit | None = None

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """Return the number of ``summary`` that the target bounds; None if it is null, or does not apply to the run."""
        return number_at(summary, *self._path())

    def ratio(self, summary: Mapping[str, Any]) -> float:
        """Return the number over its bound, or the bound over it for a minimum: above 1 the target is missed.

        A null is infinite: nothing was measured that could meet a target. Requests that were discarded or failed miss
        every bound on a latency, since they would have waited longest.
        """
        value, requests = self.value(summary), summary["requests"]
        if value is None or (self.key.startswith("latency_s.") and requests["completed"] < requests["arrived"]):
            return math.inf
        if self.side == "min":
            return self.bound / value if value > 0 else math.inf
        return value / self.bound if self.bound > 0 else (0.0 if value <= 0 else math.inf)

    def misses(self, summary: Mapping[str, Any]) -> bool:
        """Return True if ``summary`` misses the target, and not by its waits: the target is on no latency."""
        is_wait = self.limit is not None or self.key.startswith(("latency_s.", "queue_s.", "slo."))
        return not is_wait and self.ratio(summary) > 1

    def within_s(self, summary: Mapping[str, Any]) -> float | None:
        """Return the seconds within which the target wants an image; None if it bounds something else."""
        if self.limit is not None and self.key.endswith(".violation_rate"):
            return number_at(summary, "slo", str(self.limit), "limit_s")
        return self.bound if self.key.startswith("latency_s.") else None

    def _path(self) -> list[str]:
        if self.limit is not None:
            return ["slo", str(self.limit), self.key.rpartition(".")[2]]  # a limit of 2.5x has a dot
        return self.key.split(".")


def parse_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Read the targets of a plan. Raises ConfigError if one cannot be used, or if there is none."""
    if not texts:
        raise ConfigError(f"--target: found none, expected what the cluster must hold, such as {EXAMPLES}")
    return tuple(map(parse_target, texts))


def parse_target(text: str) -> Target:
    """Read a target such as ``p95<10s``, ``over 2x<5%`` or ``gpu.busy_fraction>=0.3``.

    Raises ConfigError: it is no bound on a number of summary.json, or one that every cluster or none can meet.
    """
    try:
        return _parse(text)
    except ValueError as error:
        raise ConfigError(f"--target {text}: {error}") from None


def _parse(text: str) -> Target:
    parts = re.fullmatch(
        r"\s*([^<>=≤≥]+?)\s*(<=?|>=?|≤|≥)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Z%]*)\s*", text
    )
    if parts is None or not math.isfinite(bound := float(parts[3])):
        raise ValueError(f"expected KEY<VALUE or KEY>=VALUE, such as {EXAMPLES}")
    name, sign, number, unit = parts.groups()
    side: Literal["max", "min"] = "max" if sign in "<=≤" else "min"
    key, limit = _key(name)
    kind = kind_of(key)
    assert kind is not None
    if unit.lower() not in ("", kind.unit):
        raise ValueError(f"found {number}{unit}, expected {_EXPECTED[kind.unit].format(name)}")
    if unit == "%":
        bound /= 100
    elif kind.unit == "%" and bound > 1:
        raise ValueError(f"{number} is no share; write {number}% or {bound / 100:g}")
    if bound > kind.high or (side == "max" and bound == kind.high):
        raise ValueError(f"found {number}{unit}, and a share is never above 100%, so that it says nothing; lower it")
    example = f"{number}{unit}" if bound > 0 else {"s": "10s", "%": "5%", "": "10"}[kind.unit]
    if side == "min" and kind.better == "low":
        raise ValueError(f"{name} is good if it is low; write a highest value, such as {name}<{example}")
    if side == "max" and kind.better == "high":
        raise ValueError(f"{name} is good if it is high; write a lowest value, such as {name}>={example}")
    if side == "min" and bound <= 0:
        raise ValueError(f"found {number}{unit}, which every cluster meets; expected a value above 0")
    if bound < 0 or (bound == 0 and (sign == "<" or key.startswith("latency_s."))):
        raise ValueError(f"found {number}{unit}, which no cluster can meet; expected a value above 0")
    if sign == ">" and bound == kind.high:
        raise ValueError(f"found {number}{unit}, which no cluster can meet; lower it, or write {name}>={number}{unit}")
    return Target(text, key, side, bound, limit)


_EXPECTED = {
    "s": "seconds, such as {}<10s",
    "%": "a share, such as {0}<5% or {0}<0.05",
    "": "a plain number, such as {}<10",
}
"""What the bound on a number of each unit looks like."""


def _key(name: str) -> tuple[str, Limit | None]:
    """Return the dotted key of summary.json that ``name`` stands for, and its latency limit, if it names one."""
    over = re.fullmatch(r"over\s+(\S+)", name, re.IGNORECASE)
    if over is not None:
        limit = parse_limit(over[1].lower())
        return f"slo.{limit}.violation_rate", limit
    below = re.fullmatch(r"slo\.(\S+)\.(\w+)", name)
    if below is not None and below[1] != OWN and kind_of(name) is not None:
        limit = parse_limit(below[1])
        return f"slo.{limit}.{below[2]}", limit
    key = f"latency_s.{name.lower()}" if name.lower() in LATENCIES else name
    if kind_of(key) is not None and not key.startswith(UNBOUNDED):
        return key, None
    if re.fullmatch(r"(?:(latency|queue)_s\.)?p[0-9.]+", name.lower()):
        raise ValueError(f"summary.json has no {name}; expected one of {', '.join(LATENCIES)}")
    known = [*LATENCIES, "over 2x", *(each for each in KEYS if not each.startswith(UNBOUNDED) and "*" not in each)]
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"try {EXAMPLES}"
    raise ValueError(f"summary.json has no number {name}; {hint}")


UNBOUNDED = ("trace.", "wall.")
"""Keys that no cluster changes, or that no two runs share."""
