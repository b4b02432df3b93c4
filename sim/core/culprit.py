"""Name the class at fault in the errors of a run: which part returned a wrong value, raised, or made a wrong call."""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any

import simpy

from mezzotint.sim.core.errors import ConfigError, SimulationError

MACHINERY = (
    "mezzotint.sim.engine",
    "mezzotint.sim.answering",
    "mezzotint.sim.cluster.cluster",
    "mezzotint.sim.cluster.free_workers",
    "mezzotint.sim.cluster.memory",
    "mezzotint.sim.core.clock",
    "mezzotint.sim.core.culprit",
    "mezzotint.sim.core.request",
    "mezzotint.sim.core.worker",
    "mezzotint.sim.frontend.delay",
    "mezzotint.sim.metrics.",
    "simpy.",
    "contextlib",
)
"""Modules that act on behalf of the part that called them, and are never named."""

BINDS = ("bind", "draw", "skip", "observed", "roles", "require", "load", "schedule", "encode", "judge")
"""A part has one of these methods: most parts bind; a delay draws, a selector skips, a source loads, and so on."""


def class_name(part: object) -> str:
    """Return the module and class of ``part``."""
    made = type(part)
    return f"{made.__module__}.{made.__qualname__}"


def part_name(parts: Mapping[str, object], kind: str) -> str:
    """Return the kind of a part with its class, and the classes from outside the package that it is composed of."""
    part = parts.get(kind)
    within = ", ".join(_outsiders_in(part, [*parts.values()]))
    return f"the {kind.rstrip('0123456789')} ({class_name(part)}{' with ' if within else ''}{within})"


def part_names(parts: Mapping[str, object], *kinds: str) -> str:
    """Return the names of the parts of ``kinds``, for an error that one of them caused."""
    names = [part_name(parts, kind) for kind in kinds if parts.get(kind) is not None]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def caller(out: int = 0) -> str:
    """Return the class of the part that made the present call, or the module and name of a function outside classes.

    Of several parts on the stack, the innermost one from outside the package counts, before ours. A function from
    outside that no part called counts before what is further out, such as the command line.

    Args:
        out: calls to leave out; 1 names the caller of the method that asks, not the method's own class.
    """
    function = outside = first = ""
    for frame, _ in walk_stack(sys._getframe(1 + out)):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(MACHINERY):
            continue
        if "self" not in frame.f_locals:
            name = f"{module}.{frame.f_code.co_qualname}"
            function = function or name
            if not (first or outside or is_ours(module)):
                outside = name
            continue
        part = frame.f_locals["self"]
        first = first or class_name(part)
        if _is_part(part) and not is_ours(class_name(part)):
            return class_name(part)
    return outside or first or function or "a part"


def calling_kind(parts: Mapping[str, object], out: int = 2) -> str | None:
    """Return the kind of the part that made a call, ``out`` calls up; None for one of ours, or no part."""
    frame = sys._getframe(out)
    if is_ours(frame.f_globals["__name__"]):
        return None
    # The last kind first: what is both scheduler and executor may do what an executor may.
    return next((kind for kind, part in list(parts.items())[::-1] if part is frame.f_locals.get("self")), None)


def innermost_kind(parts: Mapping[str, object]) -> str | None:
    """Return the kind of the part of ``parts`` that is the innermost caller; None if no part is."""
    kinds = {id(part): kind for kind, part in parts.items()}
    for frame, _ in walk_stack(sys._getframe(1)):
        kind = kinds.get(id(frame.f_locals.get("self", parts)))
        if kind is not None:
            return kind
    return None


def has_outsiders(parts: Mapping[str, object]) -> bool:
    """Return True if the class of one of ``parts``, or of a part within them, is not of the package."""
    outer = [part for part in parts.values() if part is not None]
    return any(not is_ours(class_name(part)) or any(_outsiders_in(part, list(outer))) for part in outer)


def attributed_error(error: BaseException, actors: Mapping[Any, str]) -> SimulationError | None:
    """Return a SimulationError that names the part which raised ``error``; None if no part did.

    ``actors`` names the part of each of SimPy's processes.

    Of several parts on the stack, the innermost one counts, and one from outside the package before ours.
    """
    found: tuple[object, FrameType, int] | None = None
    resumed: list[simpy.Process] = []
    for frame, line in walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        if isinstance(part, simpy.Process):
            resumed.append(part)
        if not _is_part(part) or type(part).__module__.startswith(MACHINERY):
            continue
        if found is None or is_ours(class_name(found[0])) or not is_ours(class_name(part)):
            found = part, frame, line
    if found is None and (function := _called_function(error)) is not None:
        found = function
    if found is None:
        if (call := _uncallable(error)) is not None:
            return SimulationError(f"{call} cannot be called as the engine does: {error}; correct the class")
        who = next((actors[each] for each in resumed if each in actors), None)
        if who is None:
            return None
        what = next(reversed(str(error).splitlines()), type(error).__name__)
        return SimulationError(f"{who}: {what}; a process yields events of the clock, such as clock.timeout(60)")
    part, frame, line = found
    code = frame.f_code
    where = f"in {code.co_name}, {Path(code.co_filename).name} line {line}"
    who = part if isinstance(part, str) else class_name(part)
    within = ", ".join(_outsiders_in(part, []))
    if within and is_ours(who):
        who += f" with {within}"
    return SimulationError(f"{who} raised {type(error).__name__}: {error} ({where}); correct the class")


def _called_function(error: BaseException) -> tuple[str, FrameType, int] | None:
    """Return the function outside the package and its libraries that the engine called and that raised ``error``."""
    is_called = False
    for frame, line in walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if (
            is_called
            and not is_ours(module)
            and module.partition(".")[0] not in (*sys.stdlib_module_names, "simpy", "numpy")
        ):
            return f"{module}.{frame.f_code.co_qualname}", frame, line
        is_called = module.startswith(MACHINERY)
    return None


def _uncallable(error: BaseException) -> str | None:
    """Return the function from outside the package that the engine called with arguments that it does not take."""
    frame = [*walk_tb(error.__traceback__)][-1][0]
    call = frame.f_locals.get("call")
    if not isinstance(error, TypeError) or call is None or not frame.f_globals["__name__"].startswith(MACHINERY):
        return None
    module = getattr(call, "__module__", None) or "mezzotint"
    part = getattr(call, "__self__", None)
    who = f"{module}.{call.__qualname__}" if part is None else f"{class_name(part)}.{call.__name__}"
    return None if is_ours(module) else who


def is_raised_outside(error: BaseException) -> bool:
    """Return True if a class from outside the package raised ``error``, itself or in a library that it called."""
    for frame, _ in reversed([*walk_tb(error.__traceback__)]):
        part = frame.f_locals.get("self")
        if is_ours(frame.f_globals.get("__name__", "")):
            return False
        if _is_part(part):
            return True
    return False


def unnamed_refusal(error: BaseException) -> BaseException | None:
    """Return a refusal of what a class from outside the package did as one that names the class; None of others.

    What it made may refuse itself, such as a schedule of no times. A SimulationError of ours names its culprit already.
    """
    if isinstance(error, SimulationError) and not is_raised_outside(error):
        return None
    parts = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    who = [class_name(part) for part in parts if _is_part(part) and not is_ours(class_name(part))]
    return type(error)(f"{who[-1]}: {error}") if who and who[-1] not in str(error) else None


@lru_cache(maxsize=1024)
def is_ours(module: str) -> bool:
    """Return True for the name of a module, or of a class in it, of the package itself."""
    return module.partition(".")[0] == "mezzotint"


def error_of(who: str) -> type[ConfigError] | type[SimulationError]:
    """Return the error of what the class ``who`` did: of ours a ConfigError, since only its settings can be wrong."""
    return ConfigError if is_ours(who) else SimulationError


def _is_part(found: object) -> bool:
    made = type(found)
    return made.__module__ != "builtins" and any(callable(getattr(made, name, None)) for name in BINDS)


def _outsiders_in(part: object, seen: list[object]) -> Iterator[str]:
    """Yield the classes from outside the package of the parts that ``part`` is made of, without those ``seen``."""
    names = list(getattr(part, "__dict__", ()))
    for made in type(part).__mro__:
        slots = made.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in names:
        inner = None if name.startswith("_") else getattr(part, name, None)
        if _is_part(inner) and not any(inner is each for each in seen):
            seen.append(inner)
            if not is_ours(class_name(inner)):
                yield class_name(inner)
            yield from _outsiders_in(inner, seen)
