"""Two forms of a configuration's overrides.

In the old form a part is chosen and set where its system's file holds it (``eviction@system.door.cache.eviction=lru``,
``system.door.cache.capacity=500``); in the new form every kind of part is a group at the top (``eviction=lru``,
``cache.capacity=500``).
"""

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

PARTS = (
    *("door", "cache", "eviction", "space", "selector", "predictor", "database", "store", "admission"),
    *("scheduler", "allocation", "executor"),
)
"""The kinds of part that stand inside a system in the old form and at the top in the new one."""

CHOICES = {"sim.reuse.admission.Large": "cache-large", "sim.reuse.admission.Misses": "misses"}
"""What the new form calls a class that the old one names, having no file for it."""


def is_new(tree: Path) -> bool:
    """Whether the checkout ``tree`` takes the new form: its config.yaml chooses a scheduler at the top."""
    defaults = yaml.safe_load((tree / "conf" / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    groups = [key for entry in defaults if isinstance(entry, dict) for key in entry]
    return any(group.split()[-1].lstrip("/").partition("@")[0] == "scheduler" for group in groups)


def new(override: str) -> str:
    """``override``, written in the old form, in the new form; what means the same in both stays as it is."""
    mark, key, value = re.fullmatch(r"([+~]*)([^=]*)(=?.*)", override, re.DOTALL).groups()
    if "@system." in key:
        return f"{mark}{key.partition('@')[0]}{value}"
    words = key.split(".")
    at = [i for i, word in enumerate(words[:-1]) if word in PARTS]
    if words[0] != "system" or not at:
        return override
    if words[-1] == "_target_":
        return f"{mark}{words[-2]}={CHOICES[value.lstrip('=')]}"
    return f"{mark}{'.'.join(words[at[-1] :])}{value}"


SPLIT = ("controller=none", "allocation=fixed-split")
"""What the old form's modm-throughput was, whatever the new one's is."""


def rewritten(overrides: Iterable[str]) -> list[str]:
    """Each of ``overrides`` in the new form."""
    found = [new(override) for override in overrides]
    return [*found, *SPLIT] if "system=modm-throughput" in found else found
