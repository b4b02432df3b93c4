"""Check the class that a ``_target_`` names before it is called.

A configuration could name anything by its dotted path, such as a function that deletes files. A target is therefore
called only if it makes an object of the expected kind.
"""

import inspect
import typing
from collections.abc import Sequence
from typing import Any

from typing_extensions import get_protocol_members, is_protocol

from mezzotint.sim.core.culprit import is_ours
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.plugins import TARGET, import_part


def locate_class(target: Any, key: str, kind: Any = None) -> Any:
    """Return the class that ``target`` names, or the function that is annotated to return one.

    Args:
        key: the key of the target's mapping, for messages.
        kind: the class or protocol that it must make.

    Raises:
        ConfigError: the module is neither ours nor a plug-in's or cannot be imported, or the target makes no ``kind``.
    """
    where = f"{key}.{TARGET}"
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"{where}: found {target!r}, expected the dotted path of a class")
    module, _, name = target.rpartition(".")
    try:
        made = getattr(import_part(module, where), name)
    except AttributeError:
        raise ConfigError(f"{where}: the module {module} has no {name}") from None
    product = made if inspect.isclass(made) else _return_class(made)
    if product is None:
        raise ConfigError(f"{where}: found {target}, expected a class, or a function annotated with what it returns")
    import_part(str(made.__module__), where)  # its own module, if the named one only imports it
    if is_ours(made.__module__) and kind is None and not inspect.isclass(made):
        raise ConfigError(f"{where}: found the function {target}, expected a class")
    return _making(made, product, kind, key)


def _return_class(made: Any) -> Any:
    """Return the class in a function's return annotation; None without one."""
    if not inspect.isfunction(made):
        return None
    try:
        annotation = typing.get_type_hints(made).get("return")
    except (TypeError, NameError):
        return None
    return annotation if inspect.isclass(annotation) and annotation is not type(None) else None


def _making(made: Any, product: type, kind: Any, key: str) -> Any:
    """Return ``made`` if it makes a ``kind``; attributes that only instances have are checked after building."""
    if kind is None:
        return made
    if not is_protocol(kind):
        if issubclass(product, kind):
            return made
        raise no_such(product, kind, key)
    members = get_protocol_members(kind)
    required = kind.__abstractmethods__ or members
    missing = [name for name in required if not _has(product, name)]
    methods = [name for name in missing if inspect.isfunction(inspect.getattr_static(kind, name, None))]
    values = [name for name in members - required if not hasattr(kind, name) and not _has(product, name)]
    abstract = getattr(product, "__abstractmethods__", ())  # if it inherits from the protocol
    if methods or abstract or values:
        raise no_such(product, kind, key, [*missing, *abstract, *values])
    for name in members - required:  # if it does not inherit: take the protocol's default bodies
        if not _has(product, name):
            setattr(product, name, inspect.getattr_static(kind, name))
    return made


def _has(product: type, name: str) -> bool:
    return hasattr(product, name) or any(name in vars(base).get("__annotations__", ()) for base in product.__mro__)


def no_such(given: type, kind: Any, key: str, lacks: Sequence[str] = ()) -> ConfigError:
    """Return the error that ``given`` is no ``kind``, with the members that it lacks."""
    lacking = f": it lacks {', '.join(sorted(lacks))}" if lacks else ""
    return ConfigError(f"{key}: {given.__module__}.{given.__qualname__} is no {kind.__name__}{lacking}")
