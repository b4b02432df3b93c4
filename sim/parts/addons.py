"""The parts of add-ons: where ControlNets run, when LoRAs come into the weights, and where their files come from."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from backends.base import Asset, Cost
from sim.parts.cluster import Worker
from sim.parts.run import Run
from sim.request import Request

Loads = list[tuple[str, Cost]]
"""What is loaded, in order: its kind as the ledger has it, and what it costs on all GPUs of the worker."""


@runtime_checkable
class ControlNets(Protocol):
    """Where the ControlNets of a request run."""

    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        """Take the run. ``faster(model)`` is how many times faster than plain its ControlNets are, as its denoiser."""

    def bring(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """Have them where they will run, before the first step of ``request``; those of ``active`` stay.

        Raises WorkFailed where they cannot be."""

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        """One step of ``active`` with theirs, of which the worker's own part takes ``plain``."""

    def holds(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """For how many steps that is what they cost; None: until something changes."""

    def gone(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        """``request`` left ``worker``, done or lost, and ``active`` go on there."""


@runtime_checkable
class Loras(Protocol):
    """When the LoRAs of a request come into the weights, and when they leave."""

    def bind(self, run: Run, cut: Callable[[Worker], None]) -> None:
        """Take the run; ``cut`` as of Steps.bind."""

    def bring(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        """What comes before the first step of ``request``.

        Raises WorkFailed where they do not fit, SimulationError where others of ``active`` run on other LoRAs."""

    def holds(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """Steps to the boundary at which one of ``active`` waits for its LoRAs, if they have not come; None: never."""

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """What must be waited for and patched at a boundary."""

    def gone(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        """``request`` left ``worker``, done or lost, and ``active`` go on there: what that takes."""


@runtime_checkable
class Fetch(Protocol):
    """Where the files of LoRAs come from.

    One whose files make each other slower has a method ``expected_s(worker, asset) -> float``: when the file
    that was asked for last will have come, or came, by what is known now; minus infinity where none was.
    """

    def bind(self, run: Run) -> None: ...

    def seconds(self, worker: Worker, asset: Asset, now_s: float) -> float:
        """How long ``asset`` takes from now on until it is in the host memory beside ``worker``; it is on its way.
        What is not there already is told to Run.loaded."""
