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


BETA = r"beta(\d*[.p]\d+|\d+)"

PLACE = r"(?:tails?)?(spread|pack|sink)"

GATE = r"tailgate|gated?|protecteddrain"

WORD = re.compile(rf"centralpull|maxrisk|(?:cost)?damped(?:risk)?|{BETA}|{PLACE}|{GATE}|queueband|(?:idle)?backfill")
"""A word of a central pull's name, of letters and digits alone."""


def policy_of(words: str) -> Policy | None:
    """Return the policy that ``words`` name; None if it is not one of ours.

    ``super_p95``, or ``original``; or central pull, named by one of ``max risk``, ``cost-damped``, ``beta=0.85``,
    ``tail gate`` and ``protected drain``, with ``spread``, ``pack`` or ``sink``, ``queue band`` and ``backfill``.
    Nothing else may be in the name but a remark in brackets. Letters and digits alone count: ``tailgate`` is ``tail
    gate``. A tail gate without a beta is the published one: beta 0.85, packed.
    """
    plain, _, remark = words.casefold().partition("(")
    letters = re.sub(r"[^a-z0-9.]", "", plain)
    if letters in ("superp95", "original"):
        return Policy("super_p95", ("system=super-p95",), "scheduler")
    betas = {_share(digits) for digits in re.findall(BETA, letters)}
    betas |= {1.0} if "maxrisk" in letters else set()
    places = set(re.findall(PLACE, letters))
    if WORD.sub("", letters) or len(betas) > 1 or len(places) > 1:
        return None
    gate = re.search(GATE, letters) is not None
    if not betas:
        defaults = {"damped": 0.5, "gate": 0.85, "drain": 0.85, "centralpull": 1.0}
        betas = {next((beta for word, beta in defaults.items() if word in letters), -1.0)}
    (weight,) = betas
    if weight < 0.0:
        return None
    place = next(iter(places), "pack" if gate else "spread")
    name = f"central pull, beta {weight:g}, tails {place}"
    overrides = [f"system={'tail-gate' if gate else 'central-pull'}", f"group_policy.beta={weight!r}"]
    overrides.append(f"group_policy.tails={place}")
    if gate:
        name += ", gate"
    if "queueband" in letters:
        name += ", queue band"
        overrides.append(
            "group_policy.band={_target_: mezzotint.sim.scheduling.group_policies.central_pull.QueueBand, beta: 0.625}"
        )
    if "backfill" in letters:
        name += ", backfill"
        overrides.append("group_policy.backfill=true")
    own = "estimator" in remark or "maxrisk" in letters
    return Policy(name, tuple(overrides), "scheduler" if own else "calibrated")


def _share(digits: str) -> float:
    """Return 0.85 for ``0.85``, ``0p85``, ``.85`` and ``085``."""
    if "." in digits or "p" in digits:
        return float(digits.replace("p", "."))
    return float(digits) if digits in ("0", "1") else float(f"0.{digits.removeprefix('0')}")
