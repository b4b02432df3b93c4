"""The parts of the cache: admission, eviction, step selection, match prediction and service delays."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols.run import Run
from mezzotint.traces.similarity.similarities import SimilaritySource

Item = int
"""The unit of eviction: the state of one entry (one earlier request) after step K, as one integer.

``item = entry << 14 | k``, so ``entry, k = item >> 14, item & (1 << 14) - 1``. A final image has K = 0. Items sort by
entry, then K. An integer takes half the memory of a tuple, and the garbage collector does not scan it.
"""

Partition = int
"""A partition of the index, searched on its own: the code of a cache key (mezzotint.sim.cache.key)."""

Change = tuple[float, Partition, int, int, bool]
"""A change of the index: when it was requested (s), partition, entry, the trace row that made it, and True if
inserted (or False if deleted)."""


@runtime_checkable
class Selector(Protocol):
    """A step selector: maps the similarity of the best match to K, out of ``of_steps`` (N)."""

    of_steps: int
    alpha: float | None

    @property
    def floor(self) -> float:
        """The similarity below which no step is skipped; -inf where that is not known."""

    def skip(self, similarity: float) -> int:
        """Return K: 0 is a miss, and ``of_steps`` returns the artifact as it is."""


@runtime_checkable
class Eviction(Protocol):
    """An eviction policy: chooses the items that leave a full cache.

    The cache reports what enters (``added``) and what is reused (``used``), and asks for ``victims``, never for none.
    It reports nothing when victims leave: the policy forgets them as it names them.
    """

    __slots__ = ()

    def bind(self, run: Run, similarity: SimilaritySource, selector: Selector) -> None:
        """Take the run, before anything is added.

        Args:
            similarity: the similarity of the cache, bound to the trace's embeddings.
            selector: the cache's step selector.
        """
        return

    def restrict(self, codes: NDArray[np.int64], lifetime_s: float | None = None) -> None:
        """Take what an artifact may serve, before ``bind``.

        Args:
            codes: code of the cache key of every trace row, (preload + rows,); it serves only rows of its own.
            lifetime_s: seconds after which it is deleted; None is never.
        """
        return

    @abstractmethod
    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """Take note that trace row ``row`` left ``entry`` in the cache: an item ``entry << 14 | k`` for each of ``ks``.

        Entries are numbered in the order in which they enter, and ``ks`` ascend.
        """

    def used(self, item: Item) -> None:
        """Take note that a request starts from ``item``, which is in the cache."""
        return

    @abstractmethod
    def victims(self, count: int) -> list[Item]:
        """Return ``count`` different items of the cache to evict, the worst first, and forget them."""


@runtime_checkable
class Admission(Protocol):
    """An admission policy: decides at completion if the artifacts of a request are stored."""

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def admits(self, request: Request) -> bool:
        """Return True to store the artifacts of ``request``, which just completed."""


class Watcher(Protocol):
    """An observer of the index."""

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        """Take note that searches see ``changes`` from ``now_s`` on."""


@runtime_checkable
class MatchPredictor(Protocol):
    """A match predictor: predicts before a search if it would find an artifact that is similar enough."""

    __slots__ = ()

    def bind(self, run: Run, similarity: SimilaritySource) -> None:
        """Take the run, and the similarity of the cache, bound to the trace's embeddings, which it learns."""
        return

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        """Take note that searches see ``changes`` from ``now_s`` on."""
        return

    @abstractmethod
    def expects(self, row: int, now_s: float) -> bool:
        """Return True to search for the prompt of trace row ``row``. Neither argument ever falls between calls."""


@runtime_checkable
class Delay(Protocol):
    """A distribution of seconds."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return ``count`` independent delays in seconds, shape (count,)."""
