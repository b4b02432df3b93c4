"""Control: slow loops that change the cluster, and the cluster's first allocation."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from backends.base import Backend
from conf.assumption import Assumption
from sim.core.model import Model
from sim.core.request import Request
from sim.protocols.run import Run


@runtime_checkable
class Controller(Protocol):
    """A controller: a slow loop that changes the cluster. Its ``bind`` starts the loop (Run.process)."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    def arrived(self, request: Request, now_s: float) -> None:
        """Take note that ``request`` arrived and was planned."""
        return


@runtime_checkable
class Allocation(Protocol):
    """An allocation: gives each GPU of the cluster its role when the clock starts."""

    __slots__ = ()

    @abstractmethod
    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        """Return a role for each of ``gpus`` GPUs: a key of ``models``, or sim.protocols.cluster.SERVER."""

    def assumptions(self) -> list[Assumption]:
        """Return the assumptions behind the split that nobody measured."""
        return []
