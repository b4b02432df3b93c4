"""Validate values of a configuration against type annotations.

``true`` is not 1, and NaN is not a number. An integer is accepted as a float, and a whole float (1e4, as Hydra reads
it) as an integer. Ranges (mezzotint/settings/ranges.py) are enforced.
"""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, reduce
from operator import or_
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator, ConfigDict, TypeAdapter

MAX_INTEGER = 2**63 - 1
"""The largest value of an integer column."""

_SIGNS: Mapping[type, tuple[str, str]] = {
    Ge: ("at least", "ge"),
    Gt: ("over", "gt"),
    Le: ("at most", "le"),
    Lt: ("under", "lt"),
}


def _refuse_non_number(value: Any) -> Any:
    """Refuse booleans and NaN as a number whose annotation has bounds."""
    if isinstance(value, bool):
        raise ValueError("expected a number")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("expected a number")
    return value


def _number(value: Any) -> Any:
    value = _refuse_non_number(value)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("expected a smaller number")
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _of_fields(kind: type, value: Any) -> Any:
    """Validate the fields of a dataclass, each against its own annotation."""
    if isinstance(value, Mapping):
        hints = typing.get_type_hints(kind)
        for name in hints.keys() & value.keys():
            validate_value(value[name], hints[name])
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number)]
Truth = Annotated[bool, BeforeValidator(_truth)]
_STRICT: Mapping[Any, Any] = {int: Whole, float: Real, bool: Truth}


def validate_value(value: Any, hint: Any) -> Any:
    """Return ``value`` converted to the type ``hint``.

    Raises pydantic's ValidationError if it does not fit, and PydanticUserError or SchemaError for a hint that cannot be
    validated, such as a protocol.
    """
    return _adapter(hint).validate_python(value)


@lru_cache(maxsize=1024)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    """Return the validator of ``hint``, which takes longer to make than to use."""
    # pydantic refuses a second configuration for a dataclass.
    is_dataclass = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    config = None if is_dataclass else ConfigDict(arbitrary_types_allowed=True)
    return TypeAdapter(strict(hint), config=config)


def strict(hint: Any) -> Any:
    """Return ``hint`` with all numbers in it strict, at any depth: a boolean is not accepted."""
    if hint in _STRICT:
        return _STRICT[hint]
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        bounded = inner is int and any(isinstance(bound, Le | Lt) for bound in metadata)
        if bounded:
            return Annotated[(inner, *metadata, BeforeValidator(_refuse_non_number))]
        return Annotated[(strict(inner), *metadata)]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return reduce(or_, [strict(part) for part in typing.get_args(hint)])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Annotated[hint, BeforeValidator(partial(_of_fields, hint))]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (None, typing.Literal, Callable) or not parts:
        return hint
    return origin[tuple(part if part is ... else strict(part) for part in parts)]


def spell_type(hint: Any) -> str:
    """Return ``hint`` in words: ``int, at least 1, or null``."""
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        known = [(*_SIGNS[type(bound)], bound) for bound in metadata if type(bound) in _SIGNS]
        bounds = [f"{sign} {getattr(bound, name):,g}" for sign, name, bound in known]
        return spell_type(inner) + (f" {' and '.join(bounds)}" if bounds else "")
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(spell_type(part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(str(choice) for choice in typing.get_args(hint))
    if hint is type(None):
        return "null"
    if inspect.isclass(hint) and not typing.get_args(hint):
        return hint.__name__
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None and parts:
        return f"{origin.__name__}[{', '.join('...' if part is ... else spell_type(part) for part in parts)}]"
    return str(hint)
