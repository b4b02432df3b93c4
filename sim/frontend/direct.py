"""Direct front end: run every request on one model, without a cache."""

from dataclasses import dataclass, field

from mezzotint.settings.ranges import Seconds, Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import FrontEnd, Run


@dataclass(slots=True)
class Direct(FrontEnd):
    """Plan every request in full on the model of one ``role``, in no time.

    Args:
        role: role of the model.
        skip_fraction: share of each request's steps to skip, as if a cache had hit. PatchedServe (8) and SwiftDiffusion
            (6.1) stand NIRVANA in like this. Not on a live backend.
        fetch_s: seconds to fetch the artifact that the other steps start from, on the worker.
        refine: True if that artifact is an image, which is encoded first.
    """

    role: str = "large"
    skip_fraction: Share = 0.0
    fetch_s: Seconds = 0.0
    refine: bool = False
    _run: Run = field(init=False, repr=False)
    _plan: Plan = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._plan = Plan(run.model(self.role).name)
        if self.skip_fraction:
            self._plan = self._plan._replace(skip_fraction=self.skip_fraction, refine=self.refine, fetch_s=self.fetch_s)
            if run.backend.live:
                raise ConfigError("frontend.skip_fraction: a live backend runs every step; choose another frontend=")
            run.assume(
                "share of all steps that is not run",
                self.skip_fraction,
                "frontend.skip_fraction: stands for a cache's hits",
            )

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self._plan)
        return 0.0
