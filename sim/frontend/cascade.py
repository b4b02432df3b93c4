"""Cascades: a light model answers, a discriminator scores its image, and a heavy model makes low ones again.

Source: DiffServe (arXiv 2411.15381) and its artifact (7f2e4d70).
"""

from dataclasses import dataclass, field

import numpy as np

from mezzotint.settings.ranges import Seconds, Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import SCORES
from mezzotint.sim.protocols import FrontEnd, RequestColumn, Run

ESCALATED = "escalated"
"""Column: True if the heavy model made the image."""


@dataclass(slots=True)
class Cascade(FrontEnd):
    """Plan every request on the light model, and again on the heavy one if its image scores below ``threshold``.

    A simulation makes no images, so whether one scores below t is drawn: it does with probability f(t), the measured
    share at that threshold. The draw of a request is the same at every threshold, so a higher one escalates it too.

    Args:
        shares: threshold -> f(t), the share of light images that score below it; linear between, (0, 0) is implied.
        threshold: threshold at the start; a controller may change it.
        discriminator_s: seconds of scoring one image, on no GPU of its own.
        light, heavy: the roles of the models.

    Raises ConfigError if shares fall with the threshold.
    """

    shares: dict[float, Share]
    threshold: Share = 0.5
    discriminator_s: Seconds = 0.02
    light: str = "light"
    heavy: str = "heavy"
    _run: Run = field(init=False, repr=False)
    _plan: Plan = field(init=False, repr=False)
    _draws: np.random.Generator = field(init=False, repr=False)
    _escalated: RequestColumn = field(init=False, repr=False)
    _points: tuple[list[float], list[float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points = sorted({0.0: 0.0, **self.shares}.items())
        below = [share for _, share in points]
        if below != sorted(below):
            raise ConfigError(
                f"frontend.shares: found {self.shares}; a higher threshold never sends fewer images on: expected "
                "shares that do not fall"
            )
        self._points = [at for at, _ in points], below

    def bind(self, run: Run) -> None:
        self._run = run
        self._plan = Plan(run.model(self.light).name, then=Plan(run.model(self.heavy).name))
        self._draws = run.rng(SCORES)
        self._escalated = run.add_column(ESCALATED, bool, total="cascade.escalated")
        run.attempts()
        if run.backend.live:
            raise ConfigError(
                "frontend: a cascade's scores are drawn, and a live backend needs real ones; choose another"
            )
        run.assume("seconds to score an image", self.discriminator_s, "DiffServe: on no GPU of its own")

    def escalated_share(self, threshold: float) -> float:
        """Return f(t): the share of light images that score below ``threshold``."""
        return float(np.interp(threshold, *self._points))

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self._plan)
        return 0.0

    def judge_s(self, request: Request) -> float:
        return self.discriminator_s

    def escalates(self, request: Request, now_s: float) -> bool:
        if self._draws.random() >= self.escalated_share(self.threshold):
            return False
        self._escalated[request.row] = True
        return True
