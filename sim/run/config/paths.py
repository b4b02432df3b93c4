"""Make the paths in a configuration absolute, so that it can be read from any folder.

The annotations of the parts say which settings are paths. ``Path`` is a path, and ``Annotated[str, Path]`` is one for a
class that wants text. ``str | Path`` may also be a name, such as that of a model on a hub. A mapping that is
``Annotated`` with a class holds the arguments of that class.
"""

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.target import locate_class


def whole_paths(node: Any, hint: Any = None) -> Any:
    """Return ``node`` with absolute paths; a possible name (``str | Path``) stays as it is if no such file exists.

    Args:
        node: a configuration or a part of one, in plain dictionaries and lists.
        hint: the annotation of the parameter that takes ``node``, if known.
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
    """Return the types of an annotation's union, and what they are annotated with."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (typing.Union, typing.Annotated):
        return tuple(kind for part in typing.get_args(hint) for kind in _alternatives(part))
    return (hint,)


def _annotations(node: Mapping[str, Any], kinds: tuple[Any, ...]) -> Mapping[str, Any]:
    """Return the annotations of the parameters of the class that ``node`` describes."""
    target: Any = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    try:
        if TARGET in node:
            target = locate_class(node[TARGET], TARGET)
        called = target.__init__ if inspect.isclass(target) else target
        return {} if called is None else typing.get_type_hints(called, include_extras=True)
    except (ConfigError, TypeError, NameError):  # reported when it is built
        return {}
