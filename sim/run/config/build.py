"""Build objects from configuration: ``_target_`` names a class, the other keys are its arguments.

This is Hydra's convention, with two differences. A class is checked before it is called (sim/run/config/target.py),
so that a configuration can build parts and do nothing else. The arguments are checked against the annotations of the
class, so that a wrong type, a number out of range or an unknown key is one message that names the key. Policies from
outside the package are built the same way.

Parts are wired by name. A parameter that is called after a group (``cache``, ``selector``) gets the part chosen in that
group, unless the node gives it.
"""

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import PydanticUserError, ValidationError
from pydantic_core import SchemaError
from typing_extensions import get_protocol_members, is_protocol

from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.checked_calls import check_calls
from mezzotint.sim.run.config.choices import choices
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.target import locate_class, no_such
from mezzotint.sim.run.config.typed import spell_type, validate_value


class Parts:
    """The parts of one run, each built once, when it is first needed.

    Args:
        nodes: the configuration of each part by its group; None or empty if none is chosen.
    """

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._built: dict[str, Any] = {}
        self._building: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def target(self, name: str) -> object:
        """Return the name of the class that is chosen in a group; None if none is."""
        return (self._nodes[name] or {}).get(TARGET)

    def get(self, name: str, kind: Any = None) -> Any:
        """Return the part of a group; None if none is chosen.

        Raises:
            ConfigError: parts need each other; also what ``build`` raises.
        """
        if not self._nodes[name]:
            return None
        if name not in self._built:
            if name in self._building:
                circle = " needs ".join([*self._building[self._building.index(name) :], name])
                raise ConfigError(f"{circle}: parts cannot be built from each other; choose another {name}=")
            self._building.append(name)
            self._built[name] = build(self._nodes[name], name, kind, parts=self)
            self._building.pop()
        return check_calls(_check_kind(self._built[name], kind, name), kind)

    def refuse_unread(self, system: str) -> None:
        """Raise ConfigError if a chosen part is used by nothing in ``system``."""
        for name, node in self._nodes.items():
            if node and name not in self._built:
                raise ConfigError(
                    f"{name}: nothing in system={system} takes one; choose parts that take one, or leave it out "
                    f"(~{name} where the system brings it)"
                )


def build(node: Any, key: str, kind: Any = None, parts: Parts | None = None) -> Any:
    """Build the object that ``node`` describes.

    Args:
        node: a mapping with ``_target_`` and arguments.
        key: the key of ``node`` in the configuration, for messages.
        kind: the class or protocol that is expected; a target that makes something else is not called.
        parts: the parts of the run, for parameters that ``node`` does not give.

    Raises:
        ConfigError: the target cannot be imported or makes something else, or an argument is unknown, absent, of
            another type or out of range. Errors of the class itself pass unchanged.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ConfigError(f"{key}: expected a mapping with {TARGET}, found {node!r}; choose one of its group's files")
    target = locate_class(node[TARGET], key, kind)
    try:
        parameters = inspect.signature(target).parameters
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"{key}: {node[TARGET]} cannot be called from a configuration ({error})") from None
    given = {name: value for name, value in node.items() if name != TARGET}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name not in parameters and not takes_any:
            raise ConfigError(f"{key}.{name}: {node[TARGET]} takes no such setting; {suggest(name, parameters)}")
    wired = {} if parts is None else _wire_parts(parts, key, node[TARGET], parameters, given, hints)
    needed = [name for name, p in parameters.items() if p.default is p.empty and p.kind not in _ANY]
    lacking = [name for name in needed if name not in given and name not in wired]
    if lacking:
        raise ConfigError(f"{key}.{lacking[0]}: {node[TARGET]} needs this setting and nothing sets it")
    arguments = {name: _argument(value, f"{key}.{name}", hints.get(name), parts) for name, value in given.items()}
    return check_calls(_check_kind(target(**arguments, **wired), kind, key), kind)


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _wire_parts(
    parts: Parts,
    key: str,
    target: str,
    parameters: Mapping[str, inspect.Parameter],
    given: Mapping[str, Any],
    hints: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments that are parts of the run. Raises ConfigError if a required part is not chosen."""
    wired = {}
    for name, parameter in parameters.items():
        if name not in parts or name in given:
            continue
        part = parts.get(name, _kind(hints.get(name), parts.target(name)))
        if part is not None:
            wired[name] = part
        elif parameter.default is parameter.empty:
            needed_part = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
            raise ConfigError(f"{key} ({target}) needs {needed_part} and none is chosen; add {name}={_example(name)}")
    return wired


def _check_kind(part: Any, kind: Any, key: str) -> Any:
    """Return ``found`` if it is of ``kind``. Raises ConfigError, naming the absent methods, if it is not."""
    if kind is None or (is_protocol(kind) and not getattr(kind, "_is_runtime_protocol", False)):
        return part
    if isinstance(part, kind):
        return part
    lacks = sorted(name for name in get_protocol_members(kind) if not hasattr(part, name)) if is_protocol(kind) else []
    raise no_such(type(part), kind, key, lacks)


def _example(group: str) -> str:
    """Return a choice of ``group`` as an example in a message."""
    return next((choice.name for choice in choices(group)), "...")


def _argument(value: Any, key: str, hint: Any, parts: Parts | None) -> Any:
    if isinstance(value, Mapping) and TARGET in value and _takes_objects(hint):
        return build(value, key, _kind(hint, value[TARGET]), parts)
    if isinstance(value, list) and any(isinstance(item, Mapping) and TARGET in item for item in value):
        return [_argument(item, f"{key}.{i}", _item(hint), parts) for i, item in enumerate(value)]
    if hint is None:
        return value
    try:
        return validate_value(value, hint)
    except (PydanticUserError, SchemaError):
        # A protocol: objects of it were built above, so only null is left where it is allowed.
        if value is None and type(None) in typing.get_args(hint):
            return None
        raise ConfigError(f"{key}: found {value!r}, expected a mapping with {TARGET}") from None
    except ValidationError as error:
        raise ConfigError(f"{key}: found {value!r}, expected {spell_type(hint)}") from error


def _kind(hint: Any, target: object) -> Any:
    """Return the one class or protocol in ``hint`` besides plain types; None if there is none or several.

    Of a protocol and classes that are none, it is the class that ``target`` names, or else the protocol.
    """
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    kinds = [part for part in parts if part not in _PLAIN and typing.get_origin(part) is not typing.Annotated]
    if len(kinds) > 1 and all(map(inspect.isclass, kinds)):
        named = [kind for kind in kinds if f"{kind.__module__}.{kind.__qualname__}" == target]
        kinds = named or [kind for kind in kinds if is_protocol(kind)]
    if len(kinds) != 1 or kinds[0] is Any or not inspect.isclass(kinds[0]) or typing.get_args(kinds[0]):
        return None
    return kinds[0]


_PLAIN = (type(None), bool, int, float, str)


def _takes_objects(hint: Any) -> bool:
    """Return True if ``hint`` allows anything besides plain values."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    if typing.get_origin(hint) is typing.Annotated:
        return _takes_objects(typing.get_args(hint)[0])
    inner = typing.get_args(hint)
    return any(_takes_objects(part) for part in inner) if inner else hint not in _PLAIN


def _item(hint: Any) -> Any:
    """Return the type of the items of sequence ``hint``; None if it is not stated."""
    items = [part for part in typing.get_args(hint) if part is not ...]
    return items[0] if len(items) == 1 else None
