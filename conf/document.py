"""YAML that somebody else wrote: read in bounded time and memory, or refused in one line."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

MAX_VALUES = 100_000
"""A configuration has two thousand. A few lines whose aliases name each other can stand for more than a memory holds,
and whatever walks through them, to check or to compare, would never end."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_WRONG = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""What PyYAML's constructors raise where a tag or a form promises a date or a number and the text is none."""


class DocumentError(ValueError):
    """A text is no YAML that can be used. The message is a part of a line: where in the text, and what is wrong."""


def parse(content: str | bytes) -> Any:
    """What a YAML document says, as mappings, lists and plain values; None for an empty one.

    Raises DocumentError where it is not YAML, names itself, is nested too deeply, stands for more than MAX_VALUES
    values, or has one that there is not (no day of any month).
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
    """Yield all that ``node`` stands for, aliases written out; without end where it is a part of itself."""
    yield node
    if isinstance(node, yaml.CollectionNode):
        for each in node.value:
            for below in each if isinstance(each, tuple) else (each,):
                yield from _nodes(below)


def _culprit(loader: Any, nodes: list[yaml.Node]) -> str:
    """Say where the value is that is not what its tag or its form says."""
    for one in nodes:
        if isinstance(one, yaml.ScalarNode):
            try:
                loader.construct_object(one)
            except _WRONG:
                return f"line {one.start_mark.line + 1}: {one.value!r} is no {one.tag.rpartition(':')[2]}"
    return "a value is not what its tag says"
