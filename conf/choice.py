"""What a choice of a group sets, as its own file has it: to hold a run against."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def choice(group: str, name: str) -> Mapping[str, Any]:
    """The settings of ``conf/<group>/<name>.yaml`` and of the choices that it begins from, not resolved.

    Raises FileNotFoundError where there is none.
    """
    files = {file.name: file for file in (resources.files("conf") / group).iterdir()}
    if f"{name}.yaml" not in files:  # looked up, not opened: a name of a user's may be anything
        raise FileNotFoundError(f"{group}/{name}")
    said: dict[str, Any] = yaml.safe_load(files[f"{name}.yaml"].read_text(encoding="utf-8"))
    begun: dict[str, Any] = {}
    for entry in said.pop("defaults", ()):
        if isinstance(entry, str) and entry != "_self_":
            begun |= choice(group, entry)
    return begun | said
