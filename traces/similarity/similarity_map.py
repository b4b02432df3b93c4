"""Similarity maps: from an encoder's similarity to CLIP's, which the papers' thresholds refer to.

NIRVANA and MoDM set the number of skipped steps by the cosine of CLIP vectors. An increasing map turns cosines of
another encoder into CLIP's. A fitted map states its data and its residuals.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Protocol, runtime_checkable

from annotated_types import Ge, Le

from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Number
from mezzotint.traces.error import TraceError

Cosine = Annotated[float, Ge(-1 - 1e-6), Le(1 + 1e-6)]
"""A similarity, up to rounding."""


@runtime_checkable
class SimilarityMap(Protocol):
    """Increasing map between an encoder's similarity and CLIP's."""

    def to_clip(self, similarity: float) -> Cosine:
        """Return CLIP's similarity for one of the encoder."""

    def from_clip(self, similarity: float) -> float:
        """Return the encoder's similarity for one of CLIP, the inverse of ``to_clip``."""

    def assumptions(self) -> list[Assumption]:
        """Return the assumptions of a result that uses this map."""


@dataclass(slots=True)
class Identity:
    """Identity map: the encoder is CLIP, or its similarity is taken as CLIP's."""

    def to_clip(self, similarity: float) -> float:
        return similarity

    def from_clip(self, similarity: float) -> float:
        return similarity

    def assumptions(self) -> list[Assumption]:
        return [Assumption("scale of similarity", "the encoder's own, taken as CLIP's", "similarity_map=identity")]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A published number that a map was fitted to, and the simulated number with that map.

    Args:
        target: id of the target in the scorecard, and which of its values.
        paper, ours: the published and the simulated number, in the unit of the target.
    """

    target: str
    paper: Number
    ours: Number


@dataclass(slots=True)
class PiecewiseLinear:
    """Straight lines between fixed points; the first and the last line continue beyond them.

    Args:
        at: similarity of the encoder -> similarity of CLIP, both rising, at least two points.
        source: how the points were found.
        fitted: numbers that the points were fitted to; the residuals enter every summary.
        shown: the same numbers on another trace with the same points; the residuals enter every summary.

    Raises TraceError: ``at`` has fewer points, or does not rise.
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
        assumptions = [
            Assumption(
                "scale of similarity: the encoder's -> CLIP's",
                {f"{own:g}": at for own, at in self.at.items()},
                self.source,
            )
        ]
        for what, numbers in (
            ("residuals of that scale, ours - paper", self.fitted),
            ("the same on another trace, ours - paper", self.shown),
        ):
            if numbers:
                residuals = {one.target: round(one.ours - one.paper, 6) for one in numbers}
                assumptions.append(Assumption(what, residuals, "the targets that it was fitted on"))
        return assumptions


def _along(x: float, xs: list[float], ys: list[float]) -> float:
    right = bisect_right(xs, x, 1, len(xs) - 1)
    low, high = xs[right - 1], xs[right]
    if x == high:
        return ys[right]
    return ys[right - 1] + (ys[right] - ys[right - 1]) * (x - low) / (high - low)
