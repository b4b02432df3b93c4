"""Admission: which finished requests leave artifacts in the cache."""

from dataclasses import dataclass, field

from sim.model import in_role
from sim.parts import Run
from sim.request import Request


@dataclass(slots=True)
class All:
    """Every image that a GPU made: MoDM's cache-all."""

    def bind(self, run: Run) -> None:
        """See Admission.bind."""

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return request.model is not None


@dataclass(slots=True)
class Misses:
    """Only what was made in full: NIRVANA inserts on a miss, since a hit lacks the states before K."""

    def bind(self, run: Run) -> None:
        """See Admission.bind."""

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return not request.hit


@dataclass(slots=True)
class Large:
    """Only what the model of one role made, in full or by refining: MoDM's cache-large."""

    role: str = "large"
    _large: str = field(init=False, default="", repr=False)

    def bind(self, run: Run) -> None:
        """See Admission.bind."""
        self._large = in_role(run.models, self.role).name

    def admits(self, request: Request) -> bool:
        """See Admission.admits."""
        return request.model == self._large
