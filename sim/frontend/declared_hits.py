"""Declared hits: the share of requests by K is given, and neither prompts nor a cache decide."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from mezzotint.settings.ranges import Share, SomeShare, Steps
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import SUMMARY
from mezzotint.sim.core.streams import HITS
from mezzotint.sim.protocols import Run, Selector

PREDICTED, FORGONE = -1, -2
"""Draws of a request that the match predictor expects no match for, rightly and wrongly; 0 is a miss, else K."""

Curve = dict[Annotated[float, Ge(0)], Annotated[float, Ge(0)]]
"""A piecewise linear curve: a position, such as an hour -> a factor on the hit rate."""

BLOCK = 1 << 16
"""Requests that are drawn at a time."""

DAY_H = 24.0
TOLERANCE = 1e-9


@dataclass(slots=True)
class DeclaredHits:
    """Draw K of every request from given shares, instead of searching a cache.

    ``shares``, ``hit_rate`` and ``mean_k`` are constraints. What they leave open follows the distribution of largest
    entropy over the other K of the selector. So a hit rate alone gives equal shares, and with a mean K the shares are
    proportional to exp(lambda K).

    Args:
        shares: K -> share of all requests that hit at K.
        hit_rate: share of all requests that hit at any K; null is the sum of ``shares``.
        mean_k: mean K of the hits, in steps of the selector's N; null leaves it open.
        of_run: run folder whose ``cache.hit_rate`` and ``cache.hit_share_by_k`` are taken instead of the above.
        autocorrelation: of the draws of successive requests, from 0 to 1: a request repeats the draw before it with
            this probability. Shares stay as they are.
        by_hour: hour of the simulated day, from 0 to 24 -> factor on the hit rate, linear in between and periodic.
        by_request: requests served so far -> factor on the hit rate, linear in between and constant after the last: a
            cache that fills.
        precision: share of the searches that find a match, with a match predictor (NIRVANA, 7.7: 0.96); null searches
            for every prompt.
        recall: share of the matches that are searched for (NIRVANA, 7.7: 0.95). It decides which prompts without a
            search count as forgone matches, and no time.

    Raises ConfigError: no distribution has the given shares, hit rate and mean K, or the hit rate exceeds 1.
    """

    shares: dict[Steps, Share] = field(default_factory=dict)
    hit_rate: Share | None = None
    mean_k: Annotated[float, Ge(0)] | None = None
    of_run: Path | None = None
    autocorrelation: Annotated[float, Ge(0), Lt(1)] = 0.0
    by_hour: Curve | None = None
    by_request: Curve | None = None
    precision: SomeShare | None = None
    recall: SomeShare | None = None

    def __post_init__(self) -> None:
        if self.of_run is not None and (self.shares or self.hit_rate is not None or self.mean_k is not None):
            raise ConfigError("hits.of_run: found beside shares, hit_rate or mean_k; give the run or the numbers")
        if self.of_run is None and not self.shares and self.hit_rate is None:
            raise ConfigError(
                "hits: found no hit rate; add hits.hit_rate=0.7, hits.shares={5: 0.2, 10: 0.3} or hits.of_run"
            )
        if self.recall is not None and self.precision is None:
            raise ConfigError("hits.recall: found without hits.precision; add that, or leave both out")

    def share_by_k(self, selector: Selector) -> dict[int, float]:
        """Return the share of all requests by K, ascending, each above 0.

        Raises ConfigError: the constraints cannot be met, or the run of ``of_run`` cannot be read.
        """
        if self.of_run is not None:
            return _shares_of_run(self.of_run)
        hit_rate = math.fsum(self.shares.values()) if self.hit_rate is None else self.hit_rate
        left = hit_rate - math.fsum(self.shares.values())
        if left < -TOLERANCE or hit_rate > 1 + TOLERANCE:
            raise ConfigError(
                f"hits.shares: found {self.shares}, in all more than the hit rate of {min(hit_rate, 1):g}"
            )
        found = dict(self.shares)
        if left > TOLERANCE:
            open_ks = sorted(set(getattr(selector, "thresholds", ())) - set(self.shares))
            if not open_ks:
                raise ConfigError(
                    f"hits.hit_rate: found {hit_rate:g}, and the selector has no K for {left:g} of the requests; add "
                    "them to hits.shares"
                )
            given = math.fsum(k * share for k, share in self.shares.items())
            mean = None if self.mean_k is None else (self.mean_k * hit_rate - given) / left
            found |= {k: left * p for k, p in zip(open_ks, _largest_entropy(open_ks, mean), strict=True)}
        elif self.mean_k is not None:
            raise ConfigError("hits.mean_k: found beside shares that leave nothing open; leave it out, or some shares")
        return {k: share for k, share in sorted(found.items()) if share > 0}

    def draw(self, run: Run, selector: Selector, stored: Sequence[int]) -> "array[int]":
        """Return the draw of every served request, in trace order: K, 0 for a miss, PREDICTED or FORGONE.

        Drawn block by block, into as few bytes as the greatest K takes, so that a long trace takes little memory.

        Args:
            stored: K of the latents that the cache stores; empty for final images, which any K can start from.

        Raises ConfigError: a K is not stored or above the selector's N; also what ``share_by_k`` raises.
        """
        by_k = self.share_by_k(selector)
        wrong = [k for k in by_k if k > selector.of_steps or (stored and k not in stored)]
        if wrong:
            allowed = ", ".join(map(str, stored)) if stored else f"1 to {selector.of_steps}"
            raise ConfigError(f"hits: found hits at K = {wrong[0]}, expected K = {allowed}")
        ks = np.array([0, *by_k][::-1])  # the largest K for the smallest draws, so that bursts are of like requests
        mean = math.fsum(by_k.values())
        bounds = np.cumsum([*by_k.values()][::-1]) / mean if by_k else np.array([])
        found, kind = (array("b"), np.int8) if ks.max() <= np.iinfo(np.int8).max else (array("h"), np.int16)
        rng, rows = run.rng(HITS), run.workload.rows
        last: float | None = None
        for start in range(0, rows, BLOCK):
            served = np.arange(start, min(start + BLOCK, rows))
            hit_rate = mean * self._factors(run, served)
            if hit_rate.max() > 1 + TOLERANCE:
                raise ConfigError(
                    f"hits: found a hit rate of {hit_rate.max():g} after by_hour and by_request; expected up to 1"
                )
            repeat, fresh, searched = rng.random((len(served), 3)).T
            # A draw that repeats is that of the request before, which may be of the block before.
            last = fresh[0] if last is None else last
            newest = np.maximum.accumulate(np.where(repeat >= self.autocorrelation, np.arange(len(served)), -1))
            u = np.where(newest < 0, last, fresh[newest])
            last = u[-1]
            scaled = np.divide(u, hit_rate, out=np.full(len(served), np.inf), where=hit_rate > 0)
            hits = np.minimum(bounds.searchsorted(scaled, "right"), len(by_k) - 1)
            drawn = ks[np.where(scaled < 1, hits, len(by_k))]
            if self.precision is not None:
                drawn = self._predict_misses(drawn, hit_rate, searched)
            found.frombytes(drawn.astype(kind).tobytes())
        return found

    def _factors(self, run: Run, served: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the factor on the hit rate of each of the ``served`` requests, (n,)."""
        factors = np.ones(len(served))
        if self.by_request:
            factors *= np.interp(served, *_points(self.by_request))
        if self.by_hour:
            times = run.workload.schedule.times
            if len(times) < run.workload.rows:
                raise ConfigError(
                    "hits.by_hour: found beside arrivals that wait for earlier requests, whose hours are not known "
                    "beforehand; choose other arrivals= or leave it out"
                )
            hours, values = _points(self.by_hour)
            if hours[-1] > DAY_H:
                raise ConfigError(f"hits.by_hour: found hour {hours[-1]:g}, expected 0 to 24")
            factors *= np.interp(times[served] / 3600 % DAY_H, hours, values, period=DAY_H)
        return factors

    def _predict_misses(
        self, drawn: NDArray[Any], hit_rate: NDArray[np.float64], searched: NDArray[np.float64]
    ) -> NDArray[Any]:
        """Split the misses into searches in vain and predicted ones, so that ``precision`` and ``recall`` hold."""
        assert self.precision is not None
        misses = 1 - hit_rate
        in_vain = hit_rate * (1 / self.precision - 1)
        forgone = hit_rate * (1 / self.recall - 1) if self.recall else np.zeros(len(hit_rate))
        if (in_vain + forgone > misses + TOLERANCE).any():
            lowest = float(hit_rate[(in_vain + forgone - misses).argmax()])
            raise ConfigError(
                f"hits.precision: found {self.precision:g} and recall {self.recall or 1:g}, which need more "
                f"misses than a hit rate of {lowest:g} leaves; raise them"
            )
        u = searched * misses
        return np.where(drawn > 0, drawn, np.where(u < in_vain, 0, np.where(u < in_vain + forgone, FORGONE, PREDICTED)))

    def describe(self, selector: Selector) -> str:
        """Return the shares in words, for the assumptions of a run."""
        by_k = self.share_by_k(selector)
        words = [
            f"{math.fsum(by_k.values()):.4g} of the requests",
            *(f"{share:.4g} at K = {k}" for k, share in by_k.items()),
        ]
        if self.autocorrelation:
            words.append(f"autocorrelation {self.autocorrelation:g}")
        words += [
            f"{name} {getattr(self, name)}"
            for name in ("by_hour", "by_request", "precision", "recall")
            if getattr(self, name)
        ]
        return ", ".join(words)

    @property
    def basis(self) -> str:
        """The origin of the shares, for the assumptions of a run."""
        if self.of_run is not None:
            return f"declared: hits of the run in {self.of_run.name}"
        if self.hit_rate is None and self.mean_k is None:
            return "declared: hits.shares"
        return "declared: hits.hit_rate and mean_k; what they leave open has the largest entropy over the selector's K"


def _points(curve: Curve) -> tuple[list[float], list[float]]:
    ordered = sorted(curve.items())
    return [at for at, _ in ordered], [factor for _, factor in ordered]


def _largest_entropy(ks: Sequence[int], mean: float | None) -> list[float]:
    """Return the probabilities over ``ks`` (ascending) with the largest entropy for the ``mean``, if given.

    They are proportional to exp(lambda k). Raises ConfigError if the mean is not between the smallest and largest K.
    """
    if mean is None:
        return [1 / len(ks)] * len(ks)
    from scipy.optimize import brentq  # a slow import, not always needed

    low, high = ks[0], ks[-1]
    if not low - TOLERANCE <= mean <= high + TOLERANCE:
        raise ConfigError(
            f"hits.mean_k: the hits that shares leave open would need a mean K of {mean:g}, and the selector has K = "
            f"{', '.join(map(str, ks))}; change mean_k, hit_rate or shares"
        )
    if mean <= low + TOLERANCE or mean >= high - TOLERANCE:
        return [float(k == (low if mean <= low + TOLERANCE else high)) for k in ks]

    def weights(slope: float) -> NDArray[np.float64]:
        exponents = slope * (np.array(ks, float) - (high if slope > 0 else low))
        raw = np.exp(exponents)
        found: NDArray[np.float64] = raw / raw.sum()
        return found

    slope = brentq(lambda slope: float(weights(slope) @ np.array(ks, float)) - mean, -MAX_SLOPE, MAX_SLOPE, xtol=1e-14)
    return [float(p) for p in weights(slope)]


MAX_SLOPE = 50.0
"""Bound on lambda per step; at it, neighbouring K differ by a factor of exp(50)."""


def _shares_of_run(folder: Path) -> dict[int, float]:
    """Return the share of all requests by K of a finished run. Raises ConfigError if it has none."""
    from mezzotint.sim.metrics.run_files import read_summary  # pandas, which no other declaration needs

    try:
        cache = read_summary(folder)["cache"] or {}
    except ConfigError as error:
        raise ConfigError(f"hits.of_run: {error}") from None
    hit_rate, by_k = cache.get("hit_rate"), cache.get("hit_share_by_k")
    if hit_rate is None or by_k is None or not all(k.isdecimal() and share is not None for k, share in by_k.items()):
        raise ConfigError(f"hits.of_run: {folder / SUMMARY}: holds no hits by K; name the folder of a run with a cache")
    return {int(k): hit_rate * share for k, share in sorted(by_k.items(), key=lambda item: int(item[0])) if share > 0}
