"""The front end: the part that plans a request before it queues."""

from abc import abstractmethod
from typing import Protocol, runtime_checkable

from mezzotint.settings.ranges import Seconds, Share
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols.run import Run


@runtime_checkable
class FrontEnd(Protocol):
    """The front end: chooses the model and the first step of a request. It takes time but no GPU."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def admit(self, request: Request, now_s: float) -> Seconds:
        """Plan ``request``: call Run.assign with its plan.

        Returns:
            The seconds that planning took. The scheduler is offered the request after them.
        """

    def judge_s(self, request: Request) -> Seconds:
        """Return the seconds of judging the image that was just made, of a request whose plan has a next try (a
        cascade). ``escalates`` is asked after them."""
        return 0.0

    def escalates(self, request: Request, now_s: float) -> bool:
        """Return True if the image is too poor, so that the next try runs (Plan.then)."""
        return False

    def completed(self, request: Request) -> bool:
        """Return True if ``insert`` must be called for ``request``, whose image was just made."""
        return False

    def insert(self, request: Request, now_s: float) -> None:
        """Make the artifacts of ``request`` visible to searches."""
        return


@runtime_checkable
class CascadeFrontEnd(FrontEnd, Protocol):
    """The front end of a cascade, as a controller sees it.

    Attributes:
        light, heavy: roles of the models.
        threshold: score below which an image is made again.
        discriminator_s: seconds of scoring one.
        shares: threshold -> share of the light model's images that score below it.
    """

    light: str
    heavy: str
    threshold: float
    discriminator_s: Seconds
    shares: dict[float, Share]

    def escalated_share(self, threshold: float) -> Share:
        """Return the share of the light model's images that score below ``threshold``."""
