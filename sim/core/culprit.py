"""The names of parts in the errors of a run: which class returned a wrong value, raised, or made a wrong call."""

import sys
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType

from backends.base import Cost
from sim.core.errors import SimulationError

MACHINERY = (
    *(
        "sim.engine",
        "sim.core.clock",
        "sim.core.request",
        "sim.metrics.",
        "sim.core.culprit",
        "sim.frontend.delay",
        "simpy.",
    ),
    *("sim.cluster.cluster", "sim.cluster.memory", "sim.core.worker", "sim.cluster.free_workers"),
)
"""Modules that act for the part that called them."""

OURS = ("sim", "backends", "traces", "conf")

BINDS = ("bind", "draw", "skip", "observed", "roles", "require")
"""A part has one of these methods: of most parts, of a delay, a selector, a forecast, an allocation, a backend."""


def of(part: object) -> str:
    """Module and class of ``part``."""
    made = type(part)
    return f"{made.__module__}.{made.__qualname__}"


def named(parts: Mapping[str, object], kind: str) -> str:
    """The part of ``kind`` with its class, and the classes from outside the package that it is composed of."""
    part = parts.get(kind)
    within = [of(each) for each in _composed(part, [*parts.values()]) if not _ours(of(each))]
    return f"the {kind.rstrip('0123456789')} ({of(part)}{' with ' if within else ''}{', '.join(within)})"


def several(parts: Mapping[str, object], *kinds: str) -> str:
    """The parts of ``kinds`` that there are, for an error that one of them caused."""
    names = [named(parts, kind) for kind in kinds if parts.get(kind) is not None]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def caller(out: int = 0) -> str:
    """The class of the part that made the present call; of a function outside classes, its module and name. ``out``
    calls are left out: 1 names the caller of a method that asks, and not the method's own class."""
    function = ""
    for frame, _ in walk_stack(sys._getframe(1 + out)):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(MACHINERY):
            continue
        if "self" in frame.f_locals:
            return of(frame.f_locals["self"])
        function = function or f"{module}.{frame.f_code.co_qualname}"
    return function or "a part"


def sane(cost: Cost, part: object, method: str) -> Cost:
    """Return ``cost``, the result of ``method`` of ``part``. Raises SimulationError if it is negative or not finite."""
    try:
        if 0.0 <= cost.seconds < inf and (cost.joules is None or 0.0 <= cost.joules < inf):
            return cost
    except (AttributeError, TypeError):
        pass
    raise SimulationError(
        f"{of(part)} returned {cost!r} from {method}; expected a Cost of 0 or more seconds and 0 or more joules, None "
        "where they are not known"
    )


def yes(found: object, part: object, method: str) -> bool:
    """Return ``found``, the result of ``method`` of ``part``. Raises SimulationError if it is no truth value."""
    if found is True or found is False:
        return found
    if type(found).__name__ == "bool":  # NumPy's
        return bool(found)
    raise SimulationError(f"{of(part)} returned {found!r} from {method}; expected True or False")


def nearest(parts: Mapping[str, object]) -> str | None:
    """The kind of the part of ``parts`` that is the innermost caller of the present call; None where none is."""
    kinds = {id(part): kind for kind, part in parts.items()}
    for frame, _ in walk_stack(sys._getframe(1)):
        kind = kinds.get(id(frame.f_locals.get("self", parts)))
        if kind is not None:
            return kind
    return None


def raised(error: Exception) -> SimulationError | None:
    """``error`` as one that names the innermost part that was at work, of one from outside the package where there is
    one; None where no part was."""
    found: tuple[object, FrameType, int] | None = None
    for frame, line in walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        if not _is_part(part) or type(part).__module__.startswith(MACHINERY):
            continue
        if found is None or _ours(of(found[0])) or not _ours(of(part)):
            found = part, frame, line
    if found is None:
        return None
    part, frame, line = found
    code = frame.f_code
    where = f"in {code.co_name}, {Path(code.co_filename).name} line {line}"
    within = [of(each) for each in _composed(part, []) if not _ours(of(each))] if _ours(of(part)) else []
    who = f"{of(part)} with {', '.join(within)}" if within else of(part)
    return SimulationError(f"{who} raised {type(error).__name__}: {error} ({where}); correct the class")


def _ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _is_part(found: object) -> bool:
    return any(callable(getattr(type(found), name, None)) for name in BINDS)


def _composed(part: object, seen: list[object]) -> Iterator[object]:
    """The parts that ``part`` holds in its own attributes, and theirs, without those ``seen``."""
    names = list(getattr(part, "__dict__", ()))
    for made in type(part).__mro__:
        slots = made.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in names:
        inner = None if name.startswith("_") else getattr(part, name, None)
        if _is_part(inner) and not any(inner is each for each in seen):
            seen.append(inner)
            yield inner
            yield from _composed(inner, seen)
