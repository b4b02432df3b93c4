"""Whole paths in a configuration, so that it says the same wherever it is read.

Which settings are paths is what the parts' own annotations say: a parameter that takes a ``Path``, or a ``str | Path``
where a name that is no file's may stand too (that of a model on a hub); ``Annotated[str, Path]`` is the same for a
class that wants text. A mapping that is ``Annotated`` with a class holds the arguments of that class.
"""

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.core.errors import ConfigError
from sim.run.config.plugins import TARGET
from sim.run.config.target import located


def whole_paths(node: Any, hint: Any = None) -> Any:
    """``node`` with every path in it from the root on; what may be no path stays as it is where no such file is.

    Args:
        node: a configuration or a part of one, in plain dictionaries and lists.
        hint: the annotation of what ``node`` is given to, where one is known.
    """
    kinds = _alternatives(hint)
    if isinstance(node, str) and Path in kinds:
        path = os.path.abspath(os.path.expanduser(node))
        return path if str not in kinds or os.path.exists(path) else node
    if isinstance(node, list):
        items = next((args[0] for kind in kinds if (args := typing.get_args(kind))), None)
        return [whole_paths(item, items) for item in node]
    if isinstance(node, Mapping):
        hints = _annotations(node, kinds)
        values = next((args[1] for kind in kinds if len(args := typing.get_args(kind)) == 2), None)
        return {key: whole_paths(value, hints.get(str(key), values)) for key, value in node.items()}
    return node


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The kinds of value that an annotation allows, and what they are annotated with."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (typing.Union, typing.Annotated):
        return tuple(kind for each in typing.get_args(hint) for kind in _alternatives(each))
    return (hint,)


def _annotations(node: Mapping[str, Any], kinds: tuple[Any, ...]) -> Mapping[str, Any]:
    """What the parameters take of the class that ``node`` names, or that it is given to as a mapping."""
    made: Any = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    try:
        if TARGET in node:
            made = located(node[TARGET], TARGET)
        called = made.__init__ if inspect.isclass(made) else made
        return {} if called is None else typing.get_type_hints(called, include_extras=True)
    except (ConfigError, TypeError, NameError):  # told where it is built
        return {}
