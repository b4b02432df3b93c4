"""YAML that somebody else wrote: read in bounded time and memory, or refused in one line."""

from typing import Any

import yaml

MOST_VALUES = 100_000
"""A configuration has two thousand. A few lines whose aliases name each other can stand for more than a memory holds,
and whatever walks through them, to check or to compare, would never end."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_WRONG = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""What PyYAML's constructors raise where a tag or a form promises a date or a number and the text is none."""


class DocumentError(ValueError):
    """A text is no YAML that can be used. The message is a part of a line: where in the text, and what is wrong."""


def parse(content: str | bytes) -> Any:
    """What a YAML document says, as mappings, lists and plain values; None for an empty one.

    Raises:
        DocumentError: it is not YAML, has values that there are not (no day of any month), names itself, is nested
            too deeply, or stands for more than ``MOST_VALUES`` values.
    """
    loader = node = None
    try:
        loader = _Loader(content)
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise DocumentError(f"its aliases stand for more than {MOST_VALUES:,} values")
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise DocumentError(f"{where}{' '.join(str(error.problem or error.context).split())}") from None
    except yaml.reader.ReaderError as error:
        raise DocumentError(f"byte {error.position}: {error.reason}") from None
    except RecursionError:
        raise DocumentError("it is nested too deeply") from None
    except DocumentError:
        raise
    except _WRONG:
        raise DocumentError(_culprit(loader, node)) from None
    finally:
        if loader is not None:
            loader.dispose()


def _culprit(loader: Any, node: yaml.Node | None) -> str:
    """Where the value is that is not what its tag or its form says: a day that no month has, a word as an int."""
    below = [] if node is None else [node]
    while below:
        one = below.pop()
        if isinstance(one, yaml.ScalarNode):
            try:
                loader.construct_object(one)
            except _WRONG:
                return f"line {one.start_mark.line + 1}: {one.value!r} is no {one.tag.rpartition(':')[2]}"
        else:
            below += one.value if isinstance(one, yaml.SequenceNode) else [each for pair in one.value for each in pair]
    return "a value is not what its tag says"


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values ``node`` stands for, aliases written out. Raises DocumentError where it names itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    found = known.get(id(node))
    if found == 0:
        raise DocumentError(f"line {node.start_mark.line + 1}: what stands there is a part of itself")
    if found is None:
        known[id(node)] = 0
        below = node.value if isinstance(node, yaml.SequenceNode) else [each for pair in node.value for each in pair]
        found = known[id(node)] = 1 + sum(_values(each, known) for each in below)
    return found
