"""Nearest-artifact search: which artifact that is in a cache now is the most similar to a prompt.

It is the one of the highest similarity that is not below the floor, among equals the one inserted first (MoDM, 3.2).
The floor is the lowest similarity that any K asks for.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from traces.similarity.similarities import SimilaritySource

Found = tuple[int, float]
"""An entry and its similarity."""


class Index(Protocol):
    """The artifacts that are in a cache now."""

    def add(self, entry: int, row: int) -> None:
        """Let the artifact of ``row`` be found as ``entry``. Entries are given in increasing order."""

    def remove(self, entry: int) -> None:
        """Let ``entry`` no longer be found."""

    def best(self, row: int) -> Found | None:
        """The best entry for the prompt of ``row``; None where none reaches the floor. Rows never fall."""

    def __len__(self) -> int: ...


@runtime_checkable
class Search(Protocol):
    """Makes indexes over one space of one trace."""

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """What makes the indexes of a run.

        Args:
            source: bound to the trace, of ``rows`` rows, preloaded ones included.
            floor: similarities below it are not found.
            content: names the trace and the encoder, for what is remembered; None keeps nothing on disk.
        """
