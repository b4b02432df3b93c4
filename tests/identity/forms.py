"""Overrides and scripts in the names of an earlier version, for a checkout of it."""

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from mezzotint.sim.core.former_names import table

Form = Callable[[str], str]
"""Brings text into the names of a version."""

_PART = re.compile(r"\bmezzotint\.(?=(?:sim|backends|traces)\b)|\bfrom mezzotint (?=import sim\b)")


def form_of(tree: Path) -> Form:
    """Return what brings overrides into the names of the checkout ``tree``."""
    if package_dir(tree):
        former = {}
        if "\nhandling:" not in (tree / "conf" / "config.yaml").read_text(encoding="utf-8"):
            # Handling was a setting of executor=stages alone.
            former["handling.after_s="] = "executor.handling_s="
        if not (tree / "conf" / "system" / "colocated.yaml").is_file():
            former["system=colocated"] = "system=together"
        return partial(_replace_all, former) if former else str
    return without_package if (tree / "conf" / "former.yaml").is_file() else former_word


def _replace_all(former: Mapping[str, str], override: str) -> str:
    for present, earlier in former.items():
        override = override.replace(present, earlier)
    return override


def class_names(tree: Path) -> Form:
    """Return what brings the names of classes, in a script or a result, into those of the checkout ``tree``."""
    return str if package_dir(tree) else without_package


def package_dir(tree: Path) -> dict[str, str]:
    """Return the folders of a checkout that are installed below ``mezzotint``, by name; none before there were any."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, str] = project["tool"]["setuptools"].get("package-dir", {})
    return {name: folder for name, folder in found.items() if "." in name}


def without_package(text: str) -> str:
    """Return ``text`` as it was when sim, backends and traces were import names of their own."""
    return _PART.sub("", text)


def former_word(override: str) -> str:
    """Return ``override`` in the names before conf/former.yaml."""
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
    value = re.sub(r"\bmezzotint(?:\.\w+)+", lambda path: without_package(classes.get(path[0], path[0])), value)
    return f"{mark}{_reversed(table()['groups']).get(group, group)}{dot}{below}{value}"


def _reversed(names: Mapping[str, str]) -> dict[str, str]:
    """Of several former names of one present name, take the first."""
    return {present: former for former, present in reversed(names.items())}
