"""The policies of the logged runs, by the words of a file name or of a published table."""

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the overrides of a run, and the estimates that its scheduler had.

    Attributes:
        name: in words.
        overrides: of the run.
        estimates: ``scheduler`` for those of super_p95's own scheduler, ``calibrated`` for later ones near the true
            seconds.
    """

    name: str
    overrides: tuple[str, ...]
    estimates: Literal["scheduler", "calibrated"]


def policy_of(words: str) -> Policy | None:
    """Return the policy that ``words`` name; None if it is not one of ours.

    ``super_p95``; or central pull, named by one of ``max risk``, ``cost-damped``, ``beta=0.85``, ``tail gate`` and
    ``protected drain``, with ``spread``, ``pack`` or ``sink``, ``queue band`` and ``backfill``. Letters and digits
    alone count: ``tailgate`` is ``tail gate``. A tail gate without a beta is the published one: beta 0.85, packed.
    """
    plain = words.casefold()
    letters = re.sub(r"[^a-z0-9.]", "", plain)
    if "superp95" in letters or "original" in letters:
        return Policy("super_p95", ("system=super-p95",), "scheduler")
    gate = any(each in letters for each in ("tailgate", "drain", "gated"))
    beta = re.search(r"beta(\d*[.p]\d+|\d+)", letters)
    if beta is not None:
        weight = _share(beta[1])
    elif "maxrisk" in letters:
        weight = 1.0
    elif "damped" in letters:
        weight = 0.5
    elif gate:
        weight = 0.85
    elif "centralpull" in letters:
        weight = 1.0
    else:
        return None
    place = next((each for each in ("sink", "pack", "spread") if each in letters), "pack" if gate else "spread")
    name = f"central pull, beta {weight:g}, tails {place}"
    overrides = [f"system={'tail-gate' if gate else 'central-pull'}", f"group_policy.beta={weight!r}"]
    overrides.append(f"group_policy.tails={place}")
    if gate:
        name += ", gate"
    if "band" in letters:
        name += ", queue band"
        overrides.append(
            "group_policy.band={_target_: sim.scheduling.group_policies.central_pull.QueueBand, beta: 0.625}"
        )
    if "backfill" in letters:
        name += ", backfill"
        overrides.append("group_policy.backfill=true")
    own = "estimator" in letters or "maxrisk" in letters
    return Policy(name, tuple(overrides), "scheduler" if own else "calibrated")


def _share(digits: str) -> float:
    """Return 0.85 for ``0.85``, ``0p85``, ``.85`` and ``085``."""
    if "." in digits or "p" in digits:
        return float(digits.replace("p", "."))
    return float(digits) if digits in ("0", "1") else float(f"0.{digits.removeprefix('0')}")
