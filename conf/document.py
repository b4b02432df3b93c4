"""YAML of users: parsed in bounded time and memory, or refused in one line."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

MAX_VALUES = 100_000
"""Limit on values with aliases expanded; a configuration has two thousand. Nested aliases in a few lines can expand to
more than memory holds."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_WRONG = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""Errors of PyYAML's constructors for text that is not the date or number of its tag or form."""


class DocumentError(ValueError):
    """A text is not usable YAML. The message is part of a line: the place in the text, and the error."""


def parse(content: str | bytes) -> Any:
    """Return a YAML document as mappings, lists and plain values; None if empty.

    Raises DocumentError if it is not YAML, contains itself, is nested too deeply, has an impossible value (no day of
    any month), a key twice, of which PyYAML takes the last, or a number in a form that few people read as PyYAML does
    (1:30 is 90), or expands to more than MAX_VALUES values.
    """
    loader: Any = None
    nodes: list[yaml.Node] = []
    try:
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
        raise DocumentError("it is nested too deeply, or a part of itself") from None
    except DocumentError:
        raise
    except _WRONG:
        raise DocumentError(_culprit(loader, nodes)) from None


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield all nodes below ``node`` with aliases expanded; endless if it contains itself."""
    yield node
    if isinstance(node, yaml.CollectionNode):
        for each in node.value:
            for below in each if isinstance(each, tuple) else (each,):
                yield from _nodes(below)


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
