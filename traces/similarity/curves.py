"""Hit-rate curves: how a first-in-first-out cache would do at every size at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.error import TraceError
from traces.similarity.neighbours import UNIT, Neighbours


@dataclass(frozen=True, slots=True)
class Curve:
    """Hit rates of a sliding window over the rows of a trace (MoDM's cache-all with FIFO, without service time).

    A window of c rows holds the artifact of each of the last c requests, so a request hits at a threshold exactly
    when its latest earlier row at or above that threshold is at most c rows back.

    Attributes:
        rows: requests.
        back: K -> how many rows back that is, ascending, of the requests that have such a row at all.
    """

    rows: int
    back: Mapping[int, NDArray[np.int64]]

    def hit_rate(self, sizes: Sequence[int]) -> NDArray[np.float64]:
        """Share of requests that hit, (len(sizes),), for caches of ``sizes`` artifacts."""
        return self._reached(min(self.back), sizes)

    def share_by_k(self, sizes: Sequence[int]) -> dict[int, NDArray[np.float64]]:
        """Share of requests that skip each K, (len(sizes),) each: those that reach it and no larger one."""
        ks = sorted(self.back)
        reached = [self._reached(k, sizes) for k in ks] + [np.zeros(len(sizes))]
        return {k: here - above for k, here, above in zip(ks, reached, reached[1:], strict=False)}

    def saving(self, sizes: Sequence[int], steps: int = 50) -> NDArray[np.float64]:
        """Share of denoising steps saved: the sum over K of its share times K/N (NIRVANA, 4.1)."""
        shares = [share * k / steps for k, share in self.share_by_k(sizes).items()]
        return np.asarray(np.sum(shares, axis=0), np.float64)

    def _reached(self, k: int, sizes: Sequence[int]) -> NDArray[np.float64]:
        reached: NDArray[np.int64] = np.searchsorted(self.back[k], np.asarray(sizes), side="right")
        return reached / self.rows


def fifo(known: Neighbours, at_least: Mapping[int, float], *, strict: bool = False) -> Curve:
    """The curve of all cache sizes, in one pass over the neighbours.

    Args:
        known: complete lists down to the lowest threshold.
        at_least: K -> similarity, as a selector has it.
        strict: whether a similarity must exceed its threshold.

    Raises:
        TraceError: no K, or lists that were cut: the latest row may be one that was left out.
    """
    if not at_least:
        raise TraceError("hit-rate curve: no K; give at least one threshold")
    if not known.complete.all():
        raise TraceError(
            f"hit-rate curve: {int((~known.complete).sum())} rows have more neighbours than were kept; keep them all "
            "(most = the number of rows)"
        )
    ends = np.asarray(known.ends)
    starts = np.concatenate(([0], ends[:-1]))
    own = np.flatnonzero(ends > starts)
    back = {}
    for k, limit in at_least.items():
        least = round(limit * UNIT)
        reach = known.units > least if strict else known.units >= least
        latest = np.full(len(ends), -1, np.int64)
        if len(own):
            latest[own] = np.maximum.reduceat(np.where(reach, known.rows, -1), starts[own])
        has = np.flatnonzero(latest >= 0)
        back[k] = np.sort(has - latest[has])
    return Curve(len(ends), back)
