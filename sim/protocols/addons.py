"""The parts of add-ons: where ControlNets run, when LoRAs come into the weights, and where their files come from."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

from backends.base import FREE, Asset, Cost
from sim.core.request import Request
from sim.core.worker import Worker
from sim.protocols.run import Run

Loads = list[tuple[str, Cost]]
"""What is loaded, in order: its kind as the ledger has it, and what it costs on all GPUs of the worker."""


@runtime_checkable
class ControlNetPlacement(Protocol):
    """Where the ControlNets of a request run."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        """Take the run. ``faster(model)`` is how many times faster than plain its ControlNets are, as its denoiser."""

    @abstractmethod
    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """Have them where they will run, before the first step of ``request``; those of ``active`` stay. Raises
        WorkFailed where they cannot be."""

    @abstractmethod
    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        """One step of ``active`` with theirs, of which the worker's own part takes ``plain``."""

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """For how many steps that is what they cost; None: until something changes."""
        return None

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        """``request`` left ``worker``, done or lost, and ``active`` go on there."""
        return


@runtime_checkable
class LoraLoading(Protocol):
    """When the LoRAs of a request come into the weights, and when they leave."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        """Take the run; ``interrupt`` as of Steps.bind."""

    @abstractmethod
    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """What comes before the first step of ``request``. Raises WorkFailed where its LoRAs do not fit,
        SimulationError where ``active`` run on others."""

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """Steps to the boundary at which one of ``active`` waits for its LoRAs, if they have not come; None: never."""
        return None

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """What must be waited for and patched at a boundary."""
        return FREE

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        """``request`` left ``worker``, done or lost, and ``active`` go on there: what that takes."""
        return FREE


@runtime_checkable
class LoraFetch(Protocol):
    """Where the files of LoRAs come from. ``shared``: whether files on their way make each other slower, so that what
    was expected may change."""

    __slots__ = ()
    shared: ClassVar[bool] = False

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        """How long ``asset`` takes from now on until it is in the host memory beside ``worker``; it is on its way.
        What is not there already is told to Run.loaded."""

    def expected_s(self, worker: Worker, asset: Asset) -> float:
        """When the file that was asked for last will have come, or came, by what is known now; minus infinity where
        none was, or nothing changes it."""
        return -inf
