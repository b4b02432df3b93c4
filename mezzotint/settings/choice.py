"""Settings of a choice as its own file has them, to compare a run with."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def choice(group: str, name: str) -> Mapping[str, Any]:
    """Return the unresolved settings of ``conf/<group>/<name>.yaml`` and of the choices in its defaults.

    Raises FileNotFoundError if there is none.
    """
    files = {file.name: file for file in (resources.files("mezzotint.conf") / group).iterdir()}
    if f"{name}.yaml" not in files:  # looked up, not opened: users may give any name
        raise FileNotFoundError(f"{group}/{name}")
    said: dict[str, Any] = yaml.safe_load(files[f"{name}.yaml"].read_text(encoding="utf-8"))
    begun: dict[str, Any] = {}
    for entry in said.pop("defaults", ()):
        if isinstance(entry, str) and entry != "_self_":
            begun |= choice(group, entry)
    return begun | said
