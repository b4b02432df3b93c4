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
    # A run since the package is called mezzotint has a part of ours, and a plug-in of it may have any former name.
    is_of_mezzotint = any(target.startswith("mezzotint.") for target in _classes(config))
    return _drop_gone(_rename_values(config if is_of_mezzotint else _rename(config)))


def _rename(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the groups, keys, designs and classes."""
    groups: Names = table()["groups"]
    present = {groups.get(group, group): node for group, node in config.items()}
    for group, node in present.items():
        if isinstance(node, Mapping):
            present[group] = _rename_keys(node, _of("keys", group))
    for path, keys in table()["nested"].items():
        group, _, key = path.partition(".")
        node = present.get(group)
        if isinstance(node, dict) and isinstance(node.get(key), Mapping):
            node[key] = _rename_keys(node[key], keys)
    quality = present.get("quality")
    if isinstance(quality, dict) and isinstance(quality.get("designs"), Mapping):
        quality["designs"] = {name: _rename_design(each) for name, each in quality["designs"].items()}
    classes = _rename_classes(present)
    assert isinstance(classes, dict)
    return classes


def _rename_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the values of settings, by their present path."""
    present = dict(config)
    for path, values in table()["values"].items():
        group, _, key = path.partition(".")
        node = config.get(group)
        if isinstance(node, Mapping) and isinstance(node.get(key), str):
            present[group] = {**node, key: values.get(node[key], node[key])}
    return present


def _drop_gone(config: dict[str, Any]) -> dict[str, Any]:
    """Drop settings that are gone and asked for nothing; others are left for the class to refuse."""
    for path in table()["gone"]:
        group, _, key = path.partition(".")
        node = config.get(group)
        if isinstance(node, Mapping) and key in node and not node[key]:
            config[group] = {name: value for name, value in node.items() if name != key}
    return config


def _of(kind: str, name: str) -> Names:
    names: Names = table()[kind].get(name, {})
    return names


def _rename_keys(node: Mapping[str, Any], names: Names) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in node.items()}


def _rename_design(design: Any) -> Any:
    """Rename the groups and choices of a published design (quality.designs)."""
    if not isinstance(design, Mapping):
        return design
    renamed = {}
    for former, names in design.items():
        group = table()["groups"].get(former, former)
        choices = _of("choices", group)
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
