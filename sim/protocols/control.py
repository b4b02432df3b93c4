"""Control: slow loops that change the cluster, and the cluster's first allocation."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from mezzotint.backends.base import Backend
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols.run import Run


@runtime_checkable
class Controller(Protocol):
    """A controller: a slow loop that changes the cluster. Its ``bind`` starts the loop (Run.process).

    One that decides at equal intervals has them as ``period_s``: then ``warmup=auto`` waits for its first decision, and
    the summary says how often it decided.
    """

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
        """Return a role for each of ``gpus`` GPUs: a key of ``models``, or mezzotint.sim.protocols.cluster.SERVER."""

    def assumptions(self) -> list[Assumption]:
        """Return the assumptions behind the split that nobody measured."""
        return []


@runtime_checkable
class Placement(Allocation, Protocol):
    """An allocation of several models to a GPU, by how many requests ask for each (``frontend=by-base-model``)."""

    __slots__ = ()

    def roles(self, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
        """Raises ConfigError: a placement says more of each GPU than one role."""
        raise ConfigError(
            "allocation: found a placement of base models, and nothing tells how popular they are; add "
            "frontend=by-base-model, or choose allocation=uniform-large"
        )

    def assumptions(self) -> list[Assumption]:
        what = "share of the requests of each base model that the placement is planned for"
        return [Assumption(what, "that of the whole trace", "allocation: nobody knows it beforehand")]

    @abstractmethod
    def place(self, gpus: int, shares: Mapping[str, float], slots: int) -> list[list[str]]:
        """Return the roles that each of ``gpus`` GPUs serves, the one that it starts with first.

        Args:
            shares: role -> share of the requests, the most popular first.
            slots: models that the memory of a GPU holds.
        """
