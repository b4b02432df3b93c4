"""Names of an earlier version: groups, choices, keys and classes that have other names now (conf/former.yaml)."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from conf.document import parse

Names = Mapping[str, str]


@cache
def table() -> dict[str, Any]:
    """Return conf/former.yaml: former names -> present names, by kind."""
    found: dict[str, Any] = parse((files("conf") / "former.yaml").read_bytes())
    return found


def present_word(word: str) -> str:
    """Return a word of the command line, such as ``door=nirvana``, with former names replaced by present ones."""
    found = re.fullmatch(r"(?P<mark>[+~]*)(?P<key>[\w.]+)(?P<rest>=(?P<value>.*))?", word, re.DOTALL)
    if found is None:
        return word
    group, _, below = found["key"].partition(".")
    group = table()["groups"].get(group, group)
    if not below:
        choices = _of("choices", group)
        value = found["rest"] and "=" + ",".join(choices.get(each, each) for each in found["value"].split(","))
        return f"{found['mark']}{group}{_with_present_classes(value or '')}"
    first, _, further = below.partition(".")
    path = f"{group}.{_of('keys', group).get(first, first)}"
    if further:
        key, dot, last = further.partition(".")
        path += f".{_of('nested', path).get(key, key)}{dot}{last}"
    return f"{found['mark']}{path}{_with_present_classes(found['rest'] or '')}"


def present_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with former names replaced by present ones."""
    groups: Names = table()["groups"]
    if not any(group in config for group in groups) and not _has_former_class(config):
        return dict(config)
    found = {groups.get(group, group): node for group, node in config.items()}
    for group, node in found.items():
        if isinstance(node, Mapping):
            found[group] = _renamed(node, _of("keys", group))
    for path, keys in table()["nested"].items():
        group, _, key = path.partition(".")
        node = found.get(group)
        if isinstance(node, dict) and isinstance(node.get(key), Mapping):
            node[key] = _renamed(node[key], keys)
    quality = found.get("quality")
    if isinstance(quality, dict) and isinstance(quality.get("designs"), Mapping):
        quality["designs"] = {name: _design(each) for name, each in quality["designs"].items()}
    classes = _with_classes(found)
    assert isinstance(classes, dict)
    return classes


def _with_present_classes(value: str) -> str:
    classes: Names = table()["classes"]
    return re.sub(r"\b(?:sim|traces)(?:\.\w+)+", lambda path: classes.get(path[0], path[0]), value)


def _of(kind: str, name: str) -> Names:
    names: Names = table()[kind].get(name, {})
    return names


def _renamed(node: Mapping[str, Any], names: Names) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in node.items()}


def _design(design: Any) -> Any:
    """Rename the groups and choices of a published design (quality.designs)."""
    if not isinstance(design, Mapping):
        return design
    found = {}
    for former, names in design.items():
        group = table()["groups"].get(former, former)
        choices = _of("choices", group)
        several = isinstance(names, list)
        present = [choices.get(name, name) for name in (names if several else [names])]
        found[group] = present if several else present[0]
    return found


def _has_former_class(node: Any) -> bool:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        return (isinstance(target, str) and target in table()["classes"]) or any(map(_has_former_class, node.values()))
    return isinstance(node, list) and any(map(_has_former_class, node))


def _with_classes(node: Any) -> Any:
    if isinstance(node, Mapping):
        found = {key: _with_classes(value) for key, value in node.items()}
        if isinstance(found.get("_target_"), str):
            found["_target_"] = table()["classes"].get(found["_target_"], found["_target_"])
        return found
    return [_with_classes(each) for each in node] if isinstance(node, list) else node
