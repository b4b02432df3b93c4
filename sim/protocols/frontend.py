"""The front end: the part that plans a request before it queues."""

from abc import abstractmethod
from typing import Protocol, runtime_checkable

from sim.core.request import Request
from sim.protocols.run import Run


@runtime_checkable
class FrontEnd(Protocol):
    """The front end: chooses the model and the first step of a request. It takes time but no GPU."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def admit(self, request: Request, now_s: float) -> float:
        """Plan ``request``: set what it skips, then call Run.assign with its model.

        Returns:
            The seconds that planning took. The scheduler is offered the request after them.
        """

    def completed(self, request: Request) -> bool:
        """Return True if ``insert`` must be called for ``request``, whose image was just made."""
        return False

    def insert(self, request: Request, now_s: float) -> None:
        """Make the artifacts of ``request`` visible to searches."""
        return
