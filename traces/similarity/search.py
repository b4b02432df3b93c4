"""Nearest-artifact search: which artifact that is in a cache now is the most similar to a prompt.

An *index* holds the artifacts of one cache (or one part of it) and answers exactly what comparing a query with
all of them would: the highest similarity that is not below the floor, among equals the artifact inserted first,
as an argmax over a cache in insertion order (MoDM, 3.2). The floor is the lowest similarity that any K asks for:
below it a request is a miss whatever was found, and a vector database would be told so too.

A *search* makes indexes: ``Exact`` compares as the run goes; ``Remembered`` compares the rows of a trace once, keeps
the result on disk, and looks it up in every later run, whatever its cache, policy, cluster or rate.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from traces.similarity.spaces import Space

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

    def open(self, space: Space, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """What makes the indexes of a run.

        Args:
            space: bound to the trace.
            rows: of the trace, preloaded ones included.
            floor: similarities below it are not found.
            content: names the trace and the encoder, for what is remembered; None keeps nothing on disk.
        """
