"""From configuration to objects: ``_target_`` names a class, the other keys are its arguments.

This is Hydra's convention, with two differences. What is named is looked at before it is called (sim/run/config/target.py),
so that a configuration can build parts and do nothing else. The arguments are checked against the class's own type
annotations, so that a wrong type, a number out of its range or an unknown key is one message that names the key. A
policy from outside the package is built the same way.

A part that needs another part names it: where a class has a parameter called after a group (``cache``, ``selector``)
that its own node does not give, it gets what was chosen in that group.
"""

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import PydanticUserError, ValidationError
from pydantic_core import SchemaError
from typing_extensions import get_protocol_members, is_protocol

from sim.core.errors import ConfigError
from sim.run.config.choices import choices
from sim.run.config.plugins import TARGET
from sim.run.config.target import located, no_such
from sim.run.config.typed import spelled, validated


class Parts:
    """The parts of one run, each built when it is first asked for and then the same object for all who ask.

    Args:
        nodes: the configuration of each part by its group; None or empty where none is chosen.
    """

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._built: dict[str, Any] = {}
        self._under_way: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def get(self, name: str, kind: Any = None) -> Any:
        """The part of a group, None where none is chosen.

        Raises:
            ConfigError: what ``build`` raises; parts that need each other.
        """
        if not self._nodes[name]:
            return None
        if name not in self._built:
            if name in self._under_way:
                circle = " needs ".join([*self._under_way[self._under_way.index(name) :], name])
                raise ConfigError(f"{circle}: parts cannot be built from each other; choose another {name}=")
            self._under_way.append(name)
            self._built[name] = build(self._nodes[name], name, kind, parts=self)
            self._under_way.pop()
        return _fitting(self._built[name], kind, name)

    def refuse_unread(self, system: str) -> None:
        """Raise ConfigError if a part is chosen that nothing of ``system`` takes: it would change nothing."""
        for name, node in self._nodes.items():
            if node and name not in self._built:
                raise ConfigError(
                    f"{name}: nothing in system={system} takes one; choose parts that take one, or leave it out "
                    f"(~{name} where the system brings it)"
                )


def build(node: Any, key: str, kind: Any = None, parts: Parts | None = None) -> Any:
    """The object that ``node`` describes; ``key`` is where it stands, for messages, ``kind`` what fits there.

    What ``node`` does not give and ``parts`` has is taken from there, by the name of the parameter. Nothing is called
    before it is known to be what makes a ``kind``, and nothing imported that is neither ours nor the user's.

    Raises ConfigError for a target that cannot be imported or makes something else, an argument that it does not take
    or lacks, a value that is not of the annotated type or outside its range, or an object that is not of ``kind`` (a
    class or a protocol). What the class itself refuses is raised as it is.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ConfigError(f"{key}: expected a mapping with {TARGET}, found {node!r}; choose one of its group's files")
    made = located(node[TARGET], key, kind)
    try:
        parameters = inspect.signature(made).parameters
        hints = typing.get_type_hints(made.__init__ if inspect.isclass(made) else made, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"{key}: {node[TARGET]} cannot be called from a configuration ({error})") from None
    given = {name: value for name, value in node.items() if name != TARGET}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name not in parameters and not takes_any:
            raise ConfigError(
                f"{key}.{name}: {node[TARGET]} takes no such setting; it takes {', '.join(parameters) or 'none'}"
            )
    taken = {} if parts is None else _taken(parts, key, node[TARGET], parameters, given, hints)
    needed = [name for name, p in parameters.items() if p.default is p.empty and p.kind not in _ANY]
    lacking = [name for name in needed if name not in given and name not in taken]
    if lacking:
        raise ConfigError(f"{key}.{lacking[0]}: {node[TARGET]} needs this setting and nothing sets it")
    arguments = {name: _argument(value, f"{key}.{name}", hints.get(name), parts) for name, value in given.items()}
    return _fitting(made(**arguments, **taken), kind, key)


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _taken(
    parts: Parts,
    key: str,
    target: str,
    parameters: Mapping[str, inspect.Parameter],
    given: Mapping[str, Any],
    hints: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments that are parts of the run. Raises ConfigError for one that is needed and not chosen."""
    taken = {}
    for name, parameter in parameters.items():
        if name not in parts or name in given:
            continue
        part = parts.get(name, _kind(hints.get(name)))
        if part is not None:
            taken[name] = part
        elif parameter.default is parameter.empty:
            what = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
            raise ConfigError(f"{key} ({target}) needs {what} and none is chosen; add {name}={_example(name)}")
    return taken


def _fitting(found: Any, kind: Any, key: str) -> Any:
    """``found``, if it is of ``kind``. Raises ConfigError, naming what it lacks, if it is not."""
    if kind is None or (is_protocol(kind) and not getattr(kind, "_is_runtime_protocol", False)):
        return found
    if isinstance(found, kind):
        return found
    lacks = sorted(name for name in get_protocol_members(kind) if not hasattr(found, name)) if is_protocol(kind) else []
    raise no_such(type(found), kind, key, lacks)


def _example(group: str) -> str:
    """A choice of ``group`` to name in a message."""
    return next((choice.name for choice in choices(group)), "...")


def _argument(value: Any, key: str, hint: Any, parts: Parts | None) -> Any:
    if isinstance(value, Mapping) and TARGET in value and _takes_objects(hint):
        return build(value, key, _kind(hint), parts)
    if isinstance(value, list) and any(isinstance(item, Mapping) and TARGET in item for item in value):
        return [_argument(item, f"{key}.{i}", _item(hint), parts) for i, item in enumerate(value)]
    if hint is None:
        return value
    try:
        return validated(value, hint)
    except (PydanticUserError, SchemaError):
        # A protocol: whatever fits it was built above, so what is left can only be null where that is allowed.
        if value is None and type(None) in typing.get_args(hint):
            return None
        raise ConfigError(f"{key}: found {value!r}, expected a mapping with {TARGET}") from None
    except ValidationError as error:
        raise ConfigError(f"{key}: found {value!r}, expected {spelled(hint)}") from error


def _kind(hint: Any) -> Any:
    """The class or protocol that ``hint`` asks for beside plain values, None where it is not one alone."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    asked = [part for part in parts if part not in _PLAIN and typing.get_origin(part) is not typing.Annotated]
    if len(asked) != 1 or asked[0] is Any or not inspect.isclass(asked[0]) or typing.get_args(asked[0]):
        return None
    return asked[0]


_PLAIN = (type(None), bool, int, float, str)


def _takes_objects(hint: Any) -> bool:
    """Whether ``hint`` takes anything beside plain values; where a number is asked for, nothing is made."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    if typing.get_origin(hint) is typing.Annotated:
        return _takes_objects(typing.get_args(hint)[0])
    inner = typing.get_args(hint)
    return any(_takes_objects(each) for each in inner) if inner else hint not in _PLAIN


def _item(hint: Any) -> Any:
    """What ``hint`` says of the items of a sequence, None where it says nothing."""
    items = [part for part in typing.get_args(hint) if part is not ...]
    return items[0] if len(items) == 1 else None
