"""Cells of a profile's lists: each has one value, and its seconds are in proportion to those of its neighbours."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from mezzotint.backends.base import size_text

if TYPE_CHECKING:
    from mezzotint.backends.profile import Profile

MIN_S = 1e-5
"""Shortest plausible operation: a GPU launches two or three kernels in it."""

MAX_RATIO = 100.0
"""Largest plausible ratio of two neighbours' seconds, both per operation and per pixel. Those of the shipped profiles
differ by 1.7 at most; milliseconds taken for seconds differ by 1000."""

MIN_GROWTH = 0.75
"""Least plausible ratio of a batch's seconds to those of a smaller one. The shipped profiles have 0.79 and more,
seconds of one image of the batch, in place of all, 0.3 to 0.9."""

WHOLE = ("step", "gang_step", "vae_encode", "vae_decode")
"""Lists whose seconds are large enough to be told from noise."""

TIMED = ("step", "gang_step", "text_encode", "vae_encode", "vae_decode", "component", "controlnet_step")
"""Lists of seconds."""

_VALUES = {"memory": ("bytes",), "energy": ("joules",), "apart": ("encoder_s", "controlnet_s", "receive_s")}
"""What a point measures, by list; seconds in the others."""

_BY_SIDES = ("component", "apart")
"""Lists whose points are found by width, height and frames; in the others by the pixels of all frames."""

_KEYS = ("batch", "gpus", "nets", "component", "operation")
"""What tells two points of one size apart, where a list has it."""


CONFIRM = "correct the wrong one, or confirm it with `confirmed: true` on the point"


class _Timed(NamedTuple):
    """A point of seconds: the ``work`` that it measures (pixels of the batch per GPU), and where it stands."""

    work: float
    seconds: float
    is_confirmed: bool
    where: str


def wrong_cell(profile: "Profile") -> str | None:
    """Return what is wrong with the cells of ``profile``, and what to do; None if nothing is.

    Two points of one cell must have equal values. Seconds that cannot be right by themselves or beside their neighbours
    need ``confirmed: true`` of their point.
    """
    wrong = (_contradiction(name, getattr(profile, name)) for name in (*TIMED, *_VALUES))
    shrinking = (_shrinks(name, getattr(profile, name)) for name in WHOLE)
    disproportions = (_out_of_proportion(points) for points in _neighbours(profile))
    return next(filter(None, chain(wrong, shrinking, disproportions)), None)


def _contradiction(name: str, points: Sequence[Any]) -> str | None:
    rows = dict[tuple[Any, ...], int]()
    for row, point in enumerate(points):
        size = (point.width, point.height, getattr(point, "frames", 1)) if name in _BY_SIDES else (point.pixels,)
        first = rows.setdefault((*size, *(getattr(point, key, None) for key in _KEYS)), row)
        for field in _VALUES.get(name, ("seconds",)):
            one, other = getattr(points[first], field), getattr(point, field)
            if one != other:
                cells = f"{_where(name, first, points[first])} and {_where(name, row, point)}"
                return f"{cells} are one cell: found {field} of {one:g} and of {other:g}, expected one value; keep one"
    return None


def _shrinks(name: str, points: Sequence[Any]) -> str | None:
    """Return what is wrong if a batch takes much less time than a smaller one of its size."""
    longest = dict[tuple[int, int], int]()
    for row in sorted(range(len(points)), key=lambda row: points[row].batch):
        point = points[row]
        first = longest.setdefault((point.pixels, getattr(point, "gpus", 1)), row)
        one = points[first]
        if point.seconds < MIN_GROWTH * one.seconds and not (point.confirmed or one.confirmed):
            cells = f"{_where(name, first, one)} and {_where(name, row, point)}"
            expected = "expected about as many or more for the larger batch, since seconds are those of the whole batch"
            return f"{cells}: found {one.seconds:g} and {point.seconds:g} s, {expected}; {CONFIRM}"
        if point.seconds > one.seconds:
            longest[point.pixels, getattr(point, "gpus", 1)] = row
    return None


def _where(name: str, row: int, point: Any) -> str:
    """Return the place of a point in its list, and its size."""
    size = [size_text(point.width, point.height, getattr(point, "frames", 1))] if hasattr(point, "width") else []
    named = [f"{key} {getattr(point, key)}" for key in _KEYS if hasattr(point, key)]
    return f"{name}.{row} ({', '.join([*size, *named])})"


def _neighbours(profile: "Profile") -> Iterator[list[_Timed]]:
    """Yield the points of seconds that one operation takes, on one GPU or several, by the work that they measure."""
    operations: dict[tuple[object, ...], list[_Timed]] = {}
    for name in TIMED:
        for row, point in enumerate(getattr(profile, name)):
            operation = name.removeprefix("gang_"), getattr(point, "component", None), getattr(point, "nets", 0)
            work = point.pixels * point.batch / getattr(point, "gpus", 1)
            timed = _Timed(work, point.seconds, point.confirmed, _where(name, row, point))
            operations.setdefault(operation, []).append(timed)
    if profile.patched is not None and profile.step:
        of = min(profile.step, key=lambda point: point.batch)
        seconds = profile.patched.step_s([(of.width, of.height)] * of.batch, profile.patched.side)
        where = f"patched ({size_text(of.width, of.height)}, batch {of.batch})"
        operations["step", None, 0].append(_Timed(of.pixels * of.batch, seconds, False, where))
    for points in operations.values():
        yield sorted(points, key=lambda timed: timed.work)


def _out_of_proportion(points: Sequence[_Timed]) -> str | None:
    for point in points:
        if point.seconds < MIN_S and not point.is_confirmed:
            expected = f"expected {MIN_S:g} s or more, as a GPU starts no operation in less"
            return f"{point.where}: found {point.seconds:g} s, {expected}; {CONFIRM}"
    for one, other in pairwise(points):
        longer = other.seconds / one.seconds
        ratios = longer, longer * one.work / other.work
        # Off by both readings: a time may grow with the pixels, or not at all.
        off = min(ratios) > MAX_RATIO or max(ratios) < 1 / MAX_RATIO
        if off and not (one.is_confirmed or other.is_confirmed):
            seconds = f"found {one.seconds:g} and {other.seconds:g} s"
            expected = f"expected seconds within {MAX_RATIO:g} times of each other"
            return f"{one.where} and {other.where} are neighbours: {seconds}, {expected}; {CONFIRM}"
    return None
