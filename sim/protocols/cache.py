"""The parts of reuse: what is stored of earlier requests, what leaves, and what a similarity is worth."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sim.core.request import Request
from sim.protocols.run import Run
from traces.similarity.similarities import SimilaritySource

Item = int
"""What is stored and evicted as one: the state of an entry (one earlier request) after step K, as one number.

40 bits of the entry's number stand above 14 of K, so items are in the order of entry, then K. Millions are held, and
a number takes half the memory of a tuple, is made several times as fast, and is none of the garbage collector's.
"""

Shape = tuple[int, int, int] | None
"""What is searched apart: width, height and steps of a latent; None where all are searched together."""

Change = tuple[float, Shape, int, int, bool]
"""A record of ``entry``, the artifact of trace row ``row``: when it was asked for in seconds, what it is searched
with, the entry, the row, and whether it is inserted (or deleted)."""


@runtime_checkable
class Selector(Protocol):
    """Turns the similarity of the best match into K."""

    of_steps: int
    alpha: float | None

    @property
    def floor(self) -> float:
        """No similarity below it skips a step; -inf where that is not known."""

    def skip(self, similarity: float) -> int:
        """Steps to skip of ``of_steps``: 0 is a miss, ``of_steps`` returns the artifact as it is."""


@runtime_checkable
class Eviction(Protocol):
    """Keeps what it needs to know of the items in a cache to name the next ones to go."""

    __slots__ = ()

    def bind(self, run: Run, space: SimilaritySource, selector: Selector) -> None:
        """Take what it decides by, before anything is added: random streams, or, by ``space`` and ``selector``, what a
        later request could start from."""
        return

    @abstractmethod
    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        """``entry``, larger than those before it, entered the cache with its items at ``ks``, in order: all that the
        trace's ``row`` left behind."""

    def used(self, item: Item) -> None:
        """A request starts from ``item``."""
        return

    @abstractmethod
    def victims(self, count: int) -> list[Item]:
        """The ``count`` items to evict now, the worst first; they are forgotten here. As many are in the cache."""


@runtime_checkable
class Admission(Protocol):
    """Decides at completion whether the artifacts of a request are kept."""

    __slots__ = ()

    def bind(self, run: Run) -> None:
        return

    @abstractmethod
    def admits(self, request: Request) -> bool:
        """Whether ``request``, just completed, is kept."""


class Watcher(Protocol):
    """Told of what can be found."""

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        """From ``now_s`` on a search sees ``changes``."""


@runtime_checkable
class MatchPredictor(Protocol):
    """Says before a search whether it would find an artifact that is similar enough."""

    __slots__ = ()

    def bind(self, run: Run, space: SimilaritySource) -> None:
        """Take the run's clock and streams and the space, bound to its trace, whose vectors it learns."""
        return

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        """From ``now_s`` on the database finds what ``changes`` inserted and no longer what they deleted."""
        return

    @abstractmethod
    def expects(self, row: int, now_s: float) -> bool:
        """Whether the prompt of trace row ``row`` is searched for. Neither argument ever falls."""


@runtime_checkable
class Delay(Protocol):
    """A distribution of seconds."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """``count`` independent delays in seconds, shape (count,)."""
