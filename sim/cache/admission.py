"""Admission: decide which finished requests leave artifacts in the cache."""

from dataclasses import dataclass, field

from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Admission, Run


@dataclass(slots=True)
class All(Admission):
    """Admit every image that a GPU made: MoDM's cache-all."""

    def admits(self, request: Request) -> bool:
        return request.model is not None


@dataclass(slots=True)
class Misses(Admission):
    """Admit only full generations: NIRVANA inserts on a miss, since a hit lacks the states before K."""

    def admits(self, request: Request) -> bool:
        return not request.hit


@dataclass(slots=True)
class Large(Admission):
    """Admit only images of the model of one role, made in full or by refining: MoDM's cache-large.

    Args:
        role: that role.
    """

    role: str = "large"
    _model: str = field(init=False, default="", repr=False)

    def bind(self, run: Run) -> None:
        self._model = in_role(run.models, self.role).name

    def admits(self, request: Request) -> bool:
        return request.model == self._model
