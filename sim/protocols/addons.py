"""The parts of add-ons: where ControlNets run, when LoRAs enter the weights, and where their files come from."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

from mezzotint.backends.base import FREE, Asset, Cost
from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols.run import Run

Loads = list[tuple[str, Cost]]
"""The loads of a request in order: the kind that the usage log records, and the cost on all GPUs of the worker."""


@runtime_checkable
class ControlNetPlacement(Protocol):
    """The placement of ControlNets: on the worker, or on GPUs of their own."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        """Take the run. ``faster(model)`` is the speedup of ``model``'s denoiser and ControlNets over plain kernels."""

    @abstractmethod
    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """Load the ControlNets of ``request`` before its first step; those of ``active`` stay.

        Raises WorkFailed if they do not fit.
        """

    @abstractmethod
    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        """Return the cost of one step of ``active`` with their ControlNets; without them it is ``plain``."""

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> Count | None:
        """Return for how many steps the last answer of ``step`` holds; None is until something changes."""
        return None

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        """Take note that ``request`` left ``worker``, finished or lost, while ``active`` go on there."""
        return


@runtime_checkable
class LoraLoading(Protocol):
    """The loading of LoRAs: when they enter a model's weights, and when they leave."""

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        """Take the run and ``interrupt``, as Steps.bind does."""

    @abstractmethod
    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """Load the LoRAs of ``request`` before its first step, as far as it waits for them.

        Raises WorkFailed if they do not fit, SimulationError if ``active`` run with others.
        """

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> Count | None:
        """Return the steps to the boundary at which one of ``active`` waits for absent LoRAs; None is never."""
        return None

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """Return the cost of waiting for LoRAs and patching them at a boundary."""
        return FREE

    def request_paused(self, request: Request) -> None:
        """Take note that ``request`` gives up its GPUs at a boundary; it may go on elsewhere (``executor=stages``)."""
        return

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        """Return the cost of the departure of ``request``, finished or lost, while ``active`` go on."""
        return FREE


@runtime_checkable
class LoraFetch(Protocol):
    """The source of LoRA files. ``shared`` is True if concurrent fetches slow each other, so that estimates change."""

    __slots__ = ()
    shared: ClassVar[bool] = False

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> Seconds:
        """Fetch ``asset`` into the host memory of ``worker``, and return the seconds until it is there.

        Report a file that was absent with Run.record_load.
        """

    def expected_s(self, worker: Worker, asset: Asset) -> float:
        """Return when the last fetch of ``asset`` ends or ended, by what is known now.

        Minus infinity where it was never fetched, or nothing changes that time.
        """
        return -inf
