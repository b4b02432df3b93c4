"""Scales: from an encoder's similarity to CLIP's, on which the papers' thresholds stand.

NIRVANA and MoDM say how many steps may be skipped at which cosine of CLIP vectors; cosines of another encoder are
carried over by an increasing map. Where a map was fitted, it says on what, and how well it fits.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from math import isinf
from typing import Protocol, runtime_checkable

from conf.assumption import Assumption
from conf.ranges import Number
from traces.error import TraceError


@runtime_checkable
class SimilarityMap(Protocol):
    """An increasing map between an encoder's similarity and CLIP's."""

    def to_clip(self, similarity: float) -> float:
        """Where a similarity of the encoder stands on CLIP's scale."""

    def from_clip(self, similarity: float) -> float:
        """The inverse: the encoder's similarity that stands for one of CLIP's."""

    def assumptions(self) -> list[Assumption]:
        """What a result that uses it rests on."""


@dataclass(slots=True)
class Identity:
    """The encoder is CLIP, or its similarity is taken as if it were CLIP's."""

    def to_clip(self, similarity: float) -> float:
        return similarity

    def from_clip(self, similarity: float) -> float:
        return similarity

    def assumptions(self) -> list[Assumption]:
        return [Assumption("scale of similarity", "the encoder's own, taken as CLIP's", "similarity_map=identity")]


@dataclass(frozen=True, slots=True)
class Fitted:
    """One published number that a scale was fitted on, and what the simulation gives with it.

    Args:
        target: its id in the scorecard, and which of its values.
        paper, ours: the two numbers, in the unit of the target.
    """

    target: str
    paper: Number
    ours: Number


@dataclass(slots=True)
class PiecewiseLinear:
    """Straight lines between fixed points, the first and the last one continued beyond them.

    Args:
        at: similarity of the encoder -> similarity of CLIP, both rising, at least two; else a TraceError.
        fitted: what the points were fitted on; goes into every summary with its residuals.
        shown: the same numbers on another trace, with the same points; likewise.
        source: how they were found.
    """

    at: dict[float, float]
    source: str
    fitted: list[Fitted] = field(default_factory=list)
    shown: list[Fitted] = field(default_factory=list)
    _own: list[float] = field(init=False, repr=False)
    _clip: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._own = sorted(self.at)
        self._clip = [self.at[own] for own in self._own]
        rises = all(low < high for low, high in pairwise(self._clip))
        if len(self._own) < 2 or not rises or not all(abs(x) < 1e6 for x in (*self._own, *self._clip)):
            expected = "two or more points, CLIP's similarity rising with the encoder's"
            raise TraceError(f"similarity_map.at: found {self.at}, expected {expected}")

    def to_clip(self, similarity: float) -> float:
        return _along(similarity, self._own, self._clip)

    def from_clip(self, similarity: float) -> float:
        return _along(similarity, self._clip, self._own)

    def assumptions(self) -> list[Assumption]:
        said = [
            Assumption(
                "scale of similarity: the encoder's -> CLIP's",
                {f"{own:g}": at for own, at in self.at.items()},
                self.source,
            )
        ]
        for what, numbers in (("residuals of that scale", self.fitted), ("the same on another trace", self.shown)):
            if numbers:
                residuals = {one.target: round(one.ours - one.paper, 6) for one in numbers}
                said.append(Assumption(f"{what}, ours - paper", residuals, "the targets that it was fitted on"))
        return said


def _along(x: float, xs: list[float], ys: list[float]) -> float:
    if isinf(x):
        return x
    right = bisect_right(xs, x, 1, len(xs) - 1)
    low, high = xs[right - 1], xs[right]
    if x == high:
        return ys[right]
    return ys[right - 1] + (ys[right] - ys[right - 1]) * (x - low) / (high - low)
