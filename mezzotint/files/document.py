"""YAML and JSON of users: parsed in bounded time and memory, or refused in one line."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

MAX_VALUES = 100_000
"""Limit on values with aliases expanded; a configuration has two thousand. Nested aliases in a few lines can expand to
more than memory holds."""

MAX_DEPTH = 50
"""Limit on lists and mappings within one another; a configuration has ten. Deeper ones exceed Python's stack in what
copies, compares or writes them."""

_MANY_BRACKETS, _MANY_CHARACTERS = 5000, 10_000_000
"""Brackets, dashes and question marks, or characters, without which YAML is not so deep that libyaml's own recursion
would exceed the stack of the process."""

_TOO_DEEP = "it is nested too deeply, or a part of itself"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


_WRONG = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""Errors of PyYAML's constructors for text that is not the date or number of its tag or form."""


class DocumentError(ValueError):
    """A text is not usable YAML or JSON. The message is part of a line: the place in the text, and the error."""


def dump(content: Any) -> str:
    """Return mappings, lists and plain values as YAML; keys keep their order."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False)
    return text


def parse(content: str | bytes) -> Any:
    """Return a YAML document as mappings, lists and plain values; None if empty.

    Raises DocumentError if it is not YAML, contains itself, is nested too deeply, or expands to more than MAX_VALUES
    values. Raises it, too, for an impossible value (no day of any month), for a key twice, of which PyYAML takes the
    last, and for a number in a form that few people read as PyYAML does (1:30 is 90).
    """
    loader: Any = None
    nodes: list[yaml.Node] = []
    try:
        _check_depth(content)
        loader = _Loader(content)
        node = loader.get_single_node()
        if node is None:
            return None
        nodes = list(islice(_nodes(node), MAX_VALUES + 1))
        if len(nodes) > MAX_VALUES:
            raise DocumentError(f"it has more than {MAX_VALUES:,} values, aliases written out")
        for each in nodes:
            _check_keys(each)
            _check_number(each)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise DocumentError(f"{where}{' '.join(str(error.problem or error.context).split())}") from None
    except yaml.reader.ReaderError as error:
        raise DocumentError(f"byte {error.position}: {error.reason}") from None
    except RecursionError:
        raise DocumentError(_TOO_DEEP) from None
    except DocumentError:
        raise
    except _WRONG:
        raise DocumentError(_culprit(loader, nodes)) from None


def _check_depth(content: str | bytes) -> None:
    """Raise DocumentError if libyaml could not build the nodes: it parses without recursion, and builds with it."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    if sum(map(raw.count, (b"[", b"{", b"-", b"?"))) <= _MANY_BRACKETS and len(content) <= _MANY_CHARACTERS:
        return
    depth = 0
    for event in yaml.parse(content, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DocumentError(_TOO_DEEP)


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document.

    Raises DocumentError: no JSON, nested too deeply, a key twice, or a number that no float holds.
    """
    try:
        found = json.loads(text, parse_int=_integer, object_pairs_hook=unique_keys)
    except RecursionError:
        raise DocumentError(_TOO_DEEP) from None
    except ValueError as error:
        raise DocumentError(str(error)) from None
    level, depth = [("", found)], 0
    while level := [
        (str(below), value)
        for key, each in level
        if isinstance(each, dict | list)
        for below, value in (each.items() if isinstance(each, dict) else [(key, item) for item in each])
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise DocumentError(f"key {level[0][0]!r}: {_TOO_DEEP}")
    return found


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object. Raises DocumentError for a key twice, of which `json` takes the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise DocumentError(f"key {twice!r} is there twice in an object; keep one")
    return found


def _integer(digits: str) -> int:
    """Parse an integer. Raises DocumentError if no float holds it: later arithmetic would fail on it."""
    try:
        number = int(digits)
        float(number)
    except (ValueError, OverflowError):  # Python reads 4,300 digits at most
        raise DocumentError(f"it has a number of {len(digits):,} digits ({digits[:20]}...)") from None
    return number


def _nodes(node: yaml.Node, depth: int = 0, key: str = "") -> Iterator[yaml.Node]:
    """Yield all nodes below ``node``, the value of ``key``, with aliases expanded.

    Raises DocumentError at more than MAX_DEPTH levels.
    """
    if depth > MAX_DEPTH:
        raise DocumentError(f"line {node.start_mark.line + 1}: key {key!r}: {_TOO_DEEP}")
    yield node
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _nodes(name, depth + 1, key)
            yield from _nodes(value, depth + 1, str(name.value) if isinstance(name, yaml.ScalarNode) else key)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _nodes(each, depth + 1, key)


def _check_keys(node: yaml.Node) -> None:
    """Raise DocumentError if ``node`` is a mapping that has a key twice."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                line = key.start_mark.line + 1
                if (key.tag, key.value) in lines:
                    first = lines[key.tag, key.value]
                    raise DocumentError(f"line {line}: {key.value!r} is there twice, first in line {first}; keep one")
                lines[key.tag, key.value] = line


_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*|[0-9]*\.[0-9]*(?:e[-+]?[0-9]+)?|\.inf)|\.nan", re.IGNORECASE)
"""Numbers as everyone reads them."""


def _check_number(node: yaml.Node) -> None:
    """Raise DocumentError for a plain number with ``:`` (base 60), ``_`` or a leading 0 (base 8)."""
    is_number = isinstance(node, yaml.ScalarNode) and not node.style and node.tag.endswith((":int", ":float"))
    if is_number and not _NUMBER.fullmatch(node.value):
        raise DocumentError(f"line {node.start_mark.line + 1}: {node.value} is no plain number; write its digits")


def _culprit(loader: Any, nodes: list[yaml.Node]) -> str:
    """Return the place of the value that does not match its tag or form."""
    for one in nodes:
        if isinstance(one, yaml.ScalarNode):
            try:
                loader.construct_object(one)
            except _WRONG:
                return f"line {one.start_mark.line + 1}: {one.value!r} is no {one.tag.rpartition(':')[2]}"
    return "a value is not what its tag says"
