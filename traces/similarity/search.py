"""Nearest-artifact search: the artifact in the cache that is most similar to a prompt.

The nearest artifact has the highest similarity at or above the floor; among ties the oldest is taken (MoDM, 3.2). The
floor is the lowest similarity threshold of any K.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from mezzotint.traces.similarity.similarities import SimilaritySource

Found = tuple[int, float]
"""An entry and its similarity."""


class Index(Protocol):
    """Searchable index of the artifacts in a cache."""

    def add(self, entry: int, row: int) -> None:
        """Add the artifact of ``row`` as ``entry``. Entries are added in increasing order."""

    def remove(self, entry: int) -> None:
        """Remove ``entry``."""

    def best(self, row: int) -> Found | None:
        """Return the best entry for the prompt of ``row``; None if none reaches the floor. Rows never decrease."""

    def __len__(self) -> int: ...


@runtime_checkable
class Search(Protocol):
    """Makes indexes over the vectors of one trace."""

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """Return a function that makes an empty index.

        Args:
            source: bound to the trace, of ``rows`` rows, preloaded ones included.
            floor: products below it are not found.
            content: names the trace and the encoder in the disk cache; None keeps nothing on disk.
        """
