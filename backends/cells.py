"""Cells of a profile's lists: each has one value, and its seconds are in proportion to those of its neighbours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mezzotint.backends.base import size_text

if TYPE_CHECKING:
    from mezzotint.backends.profile import Profile

MIN_S = 1e-5
"""Shortest plausible operation: a GPU launches two or three kernels in it."""

MAX_RATIO = 100.0
"""Largest plausible ratio of two neighbours' seconds, both per operation and per pixel. Those of the shipped profiles
differ by 1.7 at most; milliseconds taken for seconds differ by 1000."""

TIMED = ("step", "gang_step", "text_encode", "vae_encode", "vae_decode", "component", "controlnet_step")
"""Lists of seconds."""

_VALUES = {"memory": ("bytes",), "energy": ("joules",), "apart": ("encoder_s", "controlnet_s", "receive_s")}
"""What a point measures, by list; seconds in the others."""

_BY_SIDES = ("component", "apart")
"""Lists whose points are found by width, height and frames; in the others by the pixels of all frames."""

_KEYS = ("batch", "gpus", "nets", "component", "operation")
"""What tells two points of one size apart, where a list has it."""


@dataclass(frozen=True, slots=True)
class _Timed:
    """A point of seconds: ``where`` it stands, and the ``work`` that it measures (pixels of the batch per GPU)."""

    where: str
    work: float
    seconds: float
    is_confirmed: bool


def wrong_cell(profile: "Profile") -> str | None:
    """Return what is wrong with the cells of ``profile``, and what to do; None if nothing is.

    Two points of one cell must have equal values. Seconds that cannot be right by themselves or beside their neighbours
    need ``confirmed: true`` of their point.
    """
    for name in (*TIMED, *_VALUES):
        if found := _contradiction(name, getattr(profile, name)):
            return found
    for points in _neighbours(profile):
        if found := _out_of_proportion(points):
            return found
    return None


def _contradiction(name: str, points: Sequence[Any]) -> str | None:
    fields, first = _VALUES.get(name, ("seconds",)), dict[tuple[Any, ...], int]()
    for row, point in enumerate(points):
        before = points[first.setdefault(_cell(name, point), row)]
        for field in fields:
            one, other = getattr(before, field), getattr(point, field)
            if one != other:
                places = f"{_where(name, points, before)} and {_where(name, points, point)}"
                return f"{places} are one cell: found {field} of {one:g} and of {other:g}, expected one value; keep one"
    return None


def _cell(name: str, point: Any) -> tuple[Any, ...]:
    size = (point.width, point.height, getattr(point, "frames", 1)) if name in _BY_SIDES else (_pixels(point),)
    return (*size, *(getattr(point, key, None) for key in _KEYS))


def _pixels(point: Any) -> int:
    return getattr(point, "width", 1) * getattr(point, "height", 1) * getattr(point, "frames", 1)


def _where(name: str, points: Sequence[Any], point: Any) -> str:
    """Return the place of a point in its list, and its size."""
    size = [] if not hasattr(point, "width") else [size_text(point.width, point.height, getattr(point, "frames", 1))]
    named = [f"{key} {getattr(point, key)}" for key in _KEYS if hasattr(point, key)]
    row = next(number for number, each in enumerate(points) if each is point)
    return f"{name}.{row} ({', '.join([*size, *named])})"


def _neighbours(profile: "Profile") -> Iterator[list[_Timed]]:
    """Yield the points of seconds that one operation takes, on one GPU or several, by the work that they measure."""
    operations: dict[tuple[object, ...], list[_Timed]] = {}
    for name in TIMED:
        points = getattr(profile, name)
        for point in points:
            operation = name.removeprefix("gang_"), getattr(point, "component", None), getattr(point, "nets", 0)
            work = _pixels(point) * point.batch / getattr(point, "gpus", 1)
            timed = _Timed(_where(name, points, point), work, point.seconds, point.confirmed)
            operations.setdefault(operation, []).append(timed)
    if profile.patched is not None and profile.step:
        of = min(profile.step, key=lambda point: point.batch)
        seconds = profile.patched.step_s([(of.width, of.height)] * of.batch, profile.patched.side)
        patched = _Timed(
            f"patched ({size_text(of.width, of.height)}, batch {of.batch})", _pixels(of) * of.batch, seconds, False
        )
        operations["step", None, 0].append(patched)
    for found in operations.values():
        yield sorted(found, key=lambda timed: timed.work)


def _out_of_proportion(points: Sequence[_Timed]) -> str | None:
    confirm = "correct the wrong one, or confirm it with `confirmed: true` on the point"
    for each in points:
        if each.seconds < MIN_S and not each.is_confirmed:
            return (
                f"{each.where}: found {each.seconds:g} s, expected {MIN_S:g} s or more, as a GPU starts no operation "
                f"in less; {confirm}"
            )
    for one, other in pairwise(points):
        longer = other.seconds / one.seconds
        ratios = longer, longer * one.work / other.work
        # Off by both readings: a time may grow with the pixels, or not at all.
        off = min(ratios) > MAX_RATIO or max(ratios) < 1 / MAX_RATIO
        if off and not (one.is_confirmed or other.is_confirmed):
            return (
                f"{one.where} and {other.where} are neighbours: found {one.seconds:g} and {other.seconds:g} s, "
                f"expected seconds within {MAX_RATIO:g} times of each other; {confirm}"
            )
    return None
