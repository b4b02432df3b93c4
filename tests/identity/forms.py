"""Overrides in the names of an earlier version, for a checkout from before conf/former.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path

from sim.core.former_names import table


def has_present_names(tree: Path) -> bool:
    """Return True if the checkout ``tree`` takes present names: it knows the former ones."""
    return (tree / "conf" / "former.yaml").is_file()


def former_word(override: str) -> str:
    """Return ``override`` in the names of the version before: the reverse of sim.core.former_names.present_word."""
    found = re.fullmatch(r"(?P<mark>[+~]*)(?P<key>[\w.]+)(?P<value>=?.*)", override, re.DOTALL)
    assert found is not None, override
    mark, key, value = found.groups()
    group, dot, below = key.partition(".")
    if not dot:
        value = value and f"={_reversed(table()['choices'].get(group, {})).get(value[1:], value[1:])}"
    else:
        first, further, rest = below.partition(".")
        below = f"{_reversed(table()['keys'].get(group, {})).get(first, first)}{further}{rest}"
    classes = _reversed(table()["classes"])
    value = re.sub(r"\b(?:sim|traces)(?:\.\w+)+", lambda path: classes.get(path[0], path[0]), value)
    return f"{mark}{_reversed(table()['groups']).get(group, group)}{dot}{below}{value}"


def _reversed(names: Mapping[str, str]) -> dict[str, str]:
    """Of several former names of one present name, take the first."""
    return {present: former for former, present in reversed(names.items())}
