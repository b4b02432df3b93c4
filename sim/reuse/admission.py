"""Admission: which finished requests leave artifacts in the cache."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sim.engine import Engine
from sim.request import Request


@runtime_checkable
class Admission(Protocol):
    """Decides at completion whether the artifacts of a request are kept."""

    def bind(self, engine: Engine) -> None: ...

    def admits(self, request: Request) -> bool:
        """Whether ``request``, just completed, is kept."""


@dataclass(slots=True)
class All:
    """Every image that a GPU made: MoDM's cache-all."""

    def bind(self, engine: Engine) -> None:
        """See Admission.bind."""

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return request.model is not None


@dataclass(slots=True)
class Misses:
    """Only what was made in full: NIRVANA inserts on a miss, since a hit lacks the states before K."""

    def bind(self, engine: Engine) -> None:
        """See Admission.bind."""

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return not request.hit


@dataclass(slots=True)
class Large:
    """Only what the large model made, in full or by refining: MoDM's cache-large."""

    _large: str = field(init=False, default="", repr=False)

    def bind(self, engine: Engine) -> None:
        """See Admission.bind."""
        self._large = engine.models["large"].name

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return request.model == self._large
