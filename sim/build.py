"""From configuration to objects: ``_target_`` names a class, the other keys are its arguments.

This is Hydra's convention, with the arguments checked against the class's own type annotations first, so that a
wrong type or an unknown key is one message that names the key. A policy from outside the package is built the
same way.
"""

import importlib
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from sim.errors import ConfigError

TARGET = "_target_"


def build(node: Any, key: str, kind: Any = None) -> Any:
    """The object that ``node`` describes; ``key`` is where it stands, for messages, ``kind`` what fits there.

    Raises ConfigError for a target that cannot be imported, an argument that it does not take or lacks, a value
    that is not of the annotated type, or an object that is not of ``kind`` (a class or a runtime-checkable
    protocol). What the class itself refuses is raised as it is.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ConfigError(f"{key}: expected a mapping with {TARGET}, found {node!r}; choose one of its group's files")
    made = _locate(node[TARGET], key)
    try:
        parameters = inspect.signature(made).parameters
        hints = typing.get_type_hints(made.__init__ if inspect.isclass(made) else made)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"{key}: {node[TARGET]} cannot be called from a configuration ({error})") from None
    given = {name: value for name, value in node.items() if name != TARGET}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name not in parameters and not takes_any:
            raise ConfigError(
                f"{key}.{name}: {node[TARGET]} takes no such setting; it takes {', '.join(parameters) or 'none'}"
            )
    lacking = [n for n, p in parameters.items() if p.default is p.empty and n not in given and p.kind not in _ANY]
    if lacking:
        raise ConfigError(f"{key}.{lacking[0]}: {node[TARGET]} needs this setting and nothing sets it")
    found = made(**{name: _argument(value, f"{key}.{name}", hints.get(name)) for name, value in given.items()})
    if kind is not None and not isinstance(found, kind):
        raise ConfigError(f"{key}: {node[TARGET]} is no {kind.__name__}; choose a class that has its methods")
    return found


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _argument(value: Any, key: str, hint: Any) -> Any:
    if isinstance(value, Mapping) and TARGET in value:
        return build(value, key, _kind(hint))
    if isinstance(value, list) and any(isinstance(item, Mapping) and TARGET in item for item in value):
        return [_argument(item, f"{key}.{i}", None) for i, item in enumerate(value)]
    if hint is None:
        return value
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
    except (PydanticUserError, SchemaError):
        # A protocol: whatever fits it was built above, so what is left can only be null where that is allowed.
        if value is None and type(None) in typing.get_args(hint):
            return None
        raise ConfigError(f"{key}: found {value!r}, expected a mapping with {TARGET}") from None
    except ValidationError as error:
        raise ConfigError(f"{key}: found {value!r}, expected {_spelled(hint)}") from error


def _kind(hint: Any) -> Any:
    """The class or protocol that ``hint`` asks for, None where it is not one alone."""
    asked = [part for part in typing.get_args(hint) or (hint,) if part is not type(None)]
    return asked[0] if len(asked) == 1 and inspect.isclass(asked[0]) and not typing.get_args(asked[0]) else None


def _spelled(hint: Any) -> str:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(_spelled(part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(str(choice) for choice in typing.get_args(hint))
    if hint is type(None):
        return "null"
    return hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else str(hint)


def _locate(target: Any, key: str) -> Any:
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"{key}.{TARGET}: found {target!r}, expected the dotted path of a class")
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise ConfigError(f"{key}.{TARGET}: the module {module} has no {name}") from None
    except Exception as error:  # a module of the user's may fail in any way
        raise ConfigError(
            f"{key}.{TARGET}: {module} cannot be imported ({type(error).__name__}: {error}); "
            "correct it, install it or put it on the path"
        ) from error
