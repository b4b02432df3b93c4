"""Former names of groups, choices, keys, values and classes (conf/former.yaml)."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from mezzotint.files.document import parse

Names = Mapping[str, str]


@cache
def table() -> dict[str, Any]:
    """Return conf/former.yaml: former names -> present names, by kind."""
    names: dict[str, Any] = parse((files("mezzotint.conf") / "former.yaml").read_bytes())
    return names


def present_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with former names replaced by present ones."""
    present = {group: dict(node) if isinstance(node, Mapping) else node for group, node in config.items()}
    # A run since the package is called mezzotint has a part of ours, and a plug-in of it may have any former name.
    if not any(target.startswith("mezzotint.") for target in _classes(config)):
        present = _rename(present)
    for node, key, values in _settings(present, table()["values"]):
        if isinstance(node[key], str):
            node[key] = values.get(node[key], node[key])
    # Dropped where they asked for nothing; others are left for the class to refuse.
    for node, key, _ in _settings(present, dict.fromkeys(table()["gone"])):
        if not node[key]:
            del node[key]
    return present


def _rename(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the groups, keys, designs and classes."""
    groups: Names = table()["groups"]
    present = {groups.get(group, group): node for group, node in config.items()}
    for group, node in present.items():
        if isinstance(node, Mapping):
            present[group] = _rename_keys(node, table()["keys"].get(group, {}))
    for node, key, keys in _settings(present, table()["nested"]):
        if isinstance(node[key], Mapping):
            node[key] = _rename_keys(node[key], keys)
    for node, key, _ in _settings(present, {"quality.designs": None}):
        if isinstance(node[key], Mapping):
            node[key] = {name: _rename_design(each) for name, each in node[key].items()}
    classes: dict[str, Any] = _rename_classes(present)
    return classes


def _settings(config: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield the group, the key and the names of each setting of ``names``, by path, that ``config`` has."""
    for path, of_setting in names.items():
        group, _, key = path.partition(".")
        node = config.get(group)
        if isinstance(node, dict) and key in node:
            yield node, key, of_setting


def _rename_keys(node: Mapping[str, Any], names: Names) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in node.items()}


def _rename_design(design: Any) -> Any:
    """Rename the groups and choices of a published design (quality.designs)."""
    if not isinstance(design, Mapping):
        return design
    renamed = {}
    for former, names in design.items():
        group = table()["groups"].get(former, former)
        choices = table()["choices"].get(group, {})
        several = isinstance(names, list)
        present = [choices.get(name, name) for name in (names if several else [names])]
        renamed[group] = present if several else present[0]
    return renamed


def _classes(node: Any) -> Iterator[str]:
    """Yield the classes that a configuration names."""
    if isinstance(node, Mapping) and isinstance(node.get("_target_"), str):
        yield node["_target_"]
    for each in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _classes(each)


def _rename_classes(node: Any) -> Any:
    if isinstance(node, Mapping):
        renamed = {key: _rename_classes(value) for key, value in node.items()}
        if isinstance(renamed.get("_target_"), str):
            renamed["_target_"] = _rename_class(renamed["_target_"])
        return renamed
    return [_rename_classes(each) for each in node] if isinstance(node, list) else node


def _rename_class(name: str) -> str:
    package, dot, rest = name.partition(".")
    present: str = table()["classes"].get(name) or table()["packages"].get(package, package) + dot + rest
    return present
