"""A door whose every request finds the same number of steps to skip."""

from dataclasses import dataclass, field

from conf.ranges import Seconds, Steps
from sim.errors import ConfigError
from sim.model import Model
from sim.parts import Run
from sim.request import Request


@dataclass(slots=True)
class Resumed:
    """Every request goes on from an image of its own prompt that is at hand, and skips ``k`` steps of its model's.

    SwiftDiffusion's NIRVANA-10 and NIRVANA-20 (6.1), which prepare images with the very prompts that are served.

    Args:
        k: steps skipped.
        fetch_s: seconds until the image is there, on the worker.
        role: of the model that runs it.

    Raises ConfigError, when bound, where the model has no more than ``k`` steps.
    """

    k: Steps = 10
    fetch_s: Seconds = 0.0
    role: str = "large"
    _run: Run = field(init=False, repr=False)
    _model: Model = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        """See Door.bind."""
        self._run, self._model = run, run.model(self.role)
        if self.k >= self._model.steps:
            raise ConfigError(f"door.k: found {self.k}, expected fewer than the {self._model.steps} steps of the model")
        run.assume("steps skipped by every request", self.k, "door.k; an image of its own prompt is at hand")
        run.assume("fetch time of that image [s]", self.fetch_s, "door.fetch_s")

    def admit(self, request: Request, now_s: float) -> float:
        """See Door.admit."""
        request.k, request.of_steps, request.refine, request.fetch_s = self.k, self._model.steps, True, self.fetch_s
        self._run.assign(request, self._model)
        return 0.0

    def completed(self, request: Request) -> bool:
        """See Door.completed."""
        return False

    def insert(self, request: Request, now_s: float) -> None:
        """See Door.insert."""
