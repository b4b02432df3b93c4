"""Checked calls of parts from outside the package: what a method returns must be what its protocol says.

The return types of a protocol are the law. ``-> Seconds`` is a finite number of seconds, 0 or more; ``-> bool`` is True
or False, and not what Python takes for it. The class at fault is named at the call, before the value changes anything.

Our own classes are not checked call by call, so that they cost nothing: their tests hold them, and what any part wrote
is verified in bulk when the run ends (mezzotint.sim.metrics.invariants).
"""

import dataclasses
import inspect
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache, wraps
from operator import is_
from typing import Annotated, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from typing_extensions import get_protocol_members, is_protocol

from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.run.config.typed import spell_type, strict

Law = Callable[[Any], Any]
"""Return the value, as a plain number where it is NumPy's. Raises Broken if it is not what it must be."""


CHECKED = "is_checked"
"""Mark of a checked method."""

SHORT = reprlib.Repr()
SHORT.maxother = SHORT.maxstring = 120


class Broken(Exception):
    """A value is not what the law says; the text is what was expected."""


def check_calls(part: Any, kind: Any) -> Any:
    """Have every call of a method of ``part`` checked that its own class defines and a protocol of it describes.

    Args:
        part: an object; one of our own classes is returned as it is.
        kind: the protocol that is expected of it; None if that is not known.
    """
    made: Any = type(part)
    if is_ours(class_name(part)):
        return part
    checked: type | None = _checked_class(made, kind)
    if checked is not None:
        object.__setattr__(part, "__class__", checked)  # it may be a frozen dataclass
        if "bind" not in vars(checked):
            _check_attributes(part, kind)
    return part


@lru_cache(maxsize=256)
def _checked_class(made: Any, kind: Any) -> type | None:
    """Return a subclass of ``made`` with checked methods, of the same name; None if there is nothing to check."""
    body: dict[str, Any] = {}
    for protocol in _protocols(made, kind):
        for name in get_protocol_members(protocol):
            member = inspect.getattr_static(made, name, None)
            stated = inspect.getattr_static(protocol, name, None)
            function = _function(member)
            if name in body or is_ours(getattr(function, "__module__", "mezzotint")):
                continue  # an attribute, or a default body of the protocol
            if hasattr(function, CHECKED):
                continue  # as a member of another protocol
            if name == "bind" and inspect.isfunction(member):
                body[name] = _binding(member, kind)
                continue
            function_stated = _function(stated)
            if inspect.isfunction(function_stated):
                hint = typing.get_type_hints(function_stated, include_extras=True).get("return")
            else:  # an attribute, which a property may give
                hint = typing.get_type_hints(protocol, include_extras=True).get(name)
            if law_of(hint) is None:
                continue
            if isinstance(member, property):
                body[name] = property(_check_results(function, name, hint))
            elif inspect.isfunction(member):
                body[name] = _check_results(member, name, hint)
    if not body:
        return None
    body |= {"__slots__": (), "__module__": made.__module__, "__qualname__": made.__qualname__}
    try:
        return type(made.__name__, (made,), body)
    except Exception as error:
        raise ConfigError(
            f"{made.__module__}.{made.__qualname__} cannot be extended, as is done to check its calls "
            f"({type(error).__name__}: {error}); let __init_subclass__ and its metaclass pass"
        ) from error


def _protocols(made: type, kind: Any) -> Sequence[Any]:
    """Return ``kind`` and what it extends, and the protocols that ``made`` inherits from."""
    above = [*(kind.__mro__ if inspect.isclass(kind) else ()), *made.__mro__]
    return [base for base in dict.fromkeys(above) if is_protocol(base)]


def _function(member: Any) -> Any:
    return member.fget if isinstance(member, property) else member


def _check_results(method: Callable[..., Any], name: str, hint: Any) -> Callable[..., Any]:
    """Return ``method``, whose results must be a ``hint``; items of an iterable are checked as they are taken."""
    is_lazy = typing.get_origin(hint) is Iterable
    law = law_of(typing.get_args(hint)[0] if is_lazy else hint)
    assert law is not None

    def check(part: Any, args: Sequence[Any], result: Any) -> Any:
        try:
            return law(result)
        except Broken as broken:
            raise _error(part, name, args, result, str(broken)) from None

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if not is_lazy:
            return check(self, args, result)
        if not isinstance(result, Iterable):
            raise _error(self, name, args, result, "an iterable")
        return (check(self, args, item) for item in result)

    setattr(call, CHECKED, True)
    return call


def _binding(method: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    @wraps(method)
    def bind(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        _check_attributes(self, kind)

    setattr(bind, CHECKED, True)
    return bind


def _check_attributes(part: Any, kind: Any) -> None:
    """Check the attributes that the protocol states, once the part is bound. Raises SimulationError."""
    for protocol in _protocols(type(part), kind):
        hints = typing.get_type_hints(protocol, include_extras=True)
        for name in get_protocol_members(protocol) - hints.keys():
            stated, member = (inspect.getattr_static(kind, name, None) for kind in (protocol, type(part)))
            if isinstance(stated, property) and not isinstance(member, property):
                hints[name] = typing.get_type_hints(stated.fget, include_extras=True).get("return")
        for name, hint in hints.items():
            law = law_of(hint)
            if law is None or name.startswith("_") or not hasattr(part, name):
                continue
            try:
                law(getattr(part, name))
            except Broken as broken:
                value = SHORT.repr(getattr(part, name))
                raise SimulationError(f"{class_name(part)} has {name} = {value}; expected {broken}") from None


def _error(part: Any, name: str, args: Sequence[Any], result: Any, expected: str) -> SimulationError:
    rows = [request.row for request in args if isinstance(request, Request)]
    rows += [progress.request.row for progress in args if isinstance(progress, Progress)]
    where = f" for the request in row {rows[0]}" if rows else ""
    return SimulationError(f"{class_name(part)} returned {SHORT.repr(result)} from {name}{where}; expected {expected}")


# -- laws of types ---------------------------------------------------------------------------------------------------


def law_of(hint: Any) -> Law | None:
    """Return the law of the type ``hint``; None if anything is allowed, or if only a run could tell."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return _real
    if hint in (bool, int, str) or origin in (Annotated, typing.Literal):
        return _plain(hint)
    if origin in (types.UnionType, typing.Union):
        return _any_of(inner)
    if origin is tuple:
        return _tuple(inner)
    if origin is Iterable:
        return law_of(inner[0])  # of its items
    if inspect.isclass(origin) and issubclass(origin, Collection) and origin is not np.ndarray:
        return _collection(origin, [law_of(part) for part in inner])
    if not inspect.isclass(hint) or hint is type(None):
        return None
    if is_protocol(hint) and not getattr(hint, "_is_runtime_protocol", False):
        return None
    fields = _fields(hint)
    return _instance(hint) if fields is None else _law_of_fields(hint, fields)


def _real(value: Any) -> Any:
    if isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool):
        return value.item() if isinstance(value, np.generic) else value
    raise Broken("a number")


def _plain(hint: Any) -> Law:
    adapter: TypeAdapter[Any] = TypeAdapter(strict(hint))

    def law(value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value
        try:
            return adapter.validate_python(value, strict=True)
        except ValidationError:
            raise Broken("True or False" if hint is bool else spell_type(hint)) from None

    return law


def _instance(kind: type) -> Law:
    """Return the law of an object of ``kind``; the calls of one of a protocol are checked in turn."""

    def law(value: Any) -> Any:
        if isinstance(value, kind):
            return check_calls(value, kind) if is_protocol(kind) else value
        raise Broken(f"a {kind.__name__}")

    return law


def _any_of(options: Sequence[Any]) -> Law | None:
    laws = [law_of(option) for option in options if option is not type(None)]
    known = [law for law in laws if law is not None]
    if len(known) < len(laws):
        return None
    is_optional = type(None) in options

    def law(value: Any) -> Any:
        if value is None and is_optional:
            return None
        expected = []
        for option in known:
            try:
                return option(value)
            except Broken as broken:
                expected.append(str(broken))
        raise Broken(" or ".join([*expected, *(["None"] if is_optional else [])]))

    return law


def _tuple(inner: Sequence[Any]) -> Law:
    laws = [law_of(hint) for hint in inner if hint is not ...]
    is_any_length = len(laws) < len(inner)

    def law(value: Any) -> Any:
        if not isinstance(value, tuple) or not (is_any_length or len(value) == len(laws)):
            raise Broken("a tuple" if is_any_length else f"a tuple of {len(laws)}")
        of_items = laws * len(value) if is_any_length else laws
        items = tuple(item if law is None else law(item) for item, law in zip(value, of_items, strict=True))
        return value if all(map(is_, items, value)) else items

    return law


def _collection(origin: Any, laws: Sequence[Law | None]) -> Law:
    """Return the law of a list and the like of one type of items, or of a mapping of keys and values."""

    def law(value: Any) -> Any:
        if not isinstance(value, origin) or isinstance(value, str):
            raise Broken(f"a {origin.__name__.lower()}")
        columns: Any = (value.keys(), value.values()) if isinstance(value, Mapping) else (value,)
        checked = [
            column if item_law is None else [item_law(item) for item in column]
            for column, item_law in zip(columns, laws, strict=False)
        ]
        is_plain = isinstance(value, Mapping) or all(map(is_, checked[0], columns[0]))
        return value if is_plain else checked[0]

    return law


def _fields(kind: type) -> Mapping[str, Any] | None:
    """Return the types of the fields of a tuple with names, or of a dataclass of numbers alone; None of others."""
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not is_tuple and not dataclasses.is_dataclass(kind):
        return None
    hints = typing.get_type_hints(kind, include_extras=True)
    return hints if is_tuple or all(_holds_numbers(hint) for hint in hints.values()) else None


def _holds_numbers(hint: Any) -> bool:
    """Return True for numbers, and for tuples and mappings of them."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _holds_numbers(inner[0])
    if origin in (types.UnionType, typing.Union, tuple, Mapping):
        return all(option in (type(None), ...) or _holds_numbers(option) for option in inner)
    return hint in (float, int)


def _law_of_fields(kind: Any, fields: Mapping[str, Any]) -> Law:
    laws = {name: law for name, hint in fields.items() if (law := law_of(hint)) is not None}
    is_tuple = issubclass(kind, tuple)

    def law_of_fields(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Broken(f"a {kind.__name__}")
        plain = {}
        for name, law in laws.items():
            field = getattr(value, name)
            try:
                plain[name] = law(field)
            except Broken as broken:
                raise Broken(f"{broken} as its {name}") from None
            if plain[name] is field:
                del plain[name]
        if is_tuple:
            return value._replace(**plain) if plain else value
        # A copy, since the part may return one object again with other numbers.
        made = copy(value)
        for name, number in plain.items():
            object.__setattr__(made, name, number)
        return made

    return law_of_fields
