"""Outages of a service."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from mezzotint.sim.core.errors import ConfigError


@dataclass(slots=True)
class Outages:
    """Windows [from_s, until_s) on the run's clock in which a service is down. Raises ConfigError, naming ``key``, for
    windows that are empty, overlap or fall."""

    windows: Sequence[tuple[float, float]]
    key: str
    _coming: Iterator[tuple[float, float]] = field(init=False, repr=False)
    _edges: list[float] = field(init=False, repr=False)
    _from_s: float = field(init=False, default=-inf)
    _until_s: float = field(init=False, default=-inf)

    def __post_init__(self) -> None:
        edges = [edge for window in self.windows for edge in window]
        if edges and not (edges[0] >= 0 and all(low < high for low, high in pairwise([*edges, inf]))):
            raise ConfigError(
                f"{self.key}: found {[list(w) for w in self.windows]}, expected windows [from_s, until_s] in order, "
                "from 0 s on, each to end before the next begins"
            )
        self._coming = iter(self.windows)
        self._edges = edges

    def is_down(self, now_s: float) -> bool:
        """Return True if the service is down at ``now_s``, which never falls."""
        if not self.windows:
            return False
        # The service is up at the end of a window: windows are half open.
        while self._until_s <= now_s:
            self._from_s, self._until_s = next(self._coming, (inf, inf))
        return self._from_s <= now_s

    def completion_s(self, start_s: float, seconds: float) -> float:
        """Return when work of ``seconds`` that starts at ``start_s`` is done; an outage makes it start again."""
        for from_s, until_s in self.windows:
            # Windows are in order, so one pass is enough: a delay can only run into later ones.
            if start_s < until_s and (from_s <= start_s or from_s < start_s + seconds):
                start_s = until_s
        return start_s + seconds

    def is_up(self, time_s: float) -> bool:
        """Return True if the service answers at ``time_s``; times may come in any order."""
        # Edges alternate: after an odd number of them a window is open.
        return bisect_right(self._edges, time_s) % 2 == 0
