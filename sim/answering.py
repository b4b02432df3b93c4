"""From an image to the end of its request: a cascade may have the image made again, and the answer takes time.

A request that completes (Run.end) goes through three steps before it ends; one that is discarded or fails through none:

1. Judge. If its plan has a next try (Plan.then), the front end judges the image: ``judge_s`` seconds, on no GPU.
2. Next try. If the image is too poor (``escalates``), the request is offered anew with the plan of its next try, which
   may have a next try of its own. Times and energy of all tries add up, and the request starts with the first.
3. Answer. The handling of a completed request takes ``Handling.answer_s``. Where GPUs are held for it, the executor has
   waited for it already.
"""

from collections.abc import Callable
from typing import NamedTuple

from mezzotint.sim.core.clock import COMPLETION, INSERTION
from mezzotint.sim.core.plan import WHOLE, Plan
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.metrics.recorder import HANDLING
from mezzotint.sim.protocols import AttemptLog, FrontEnd, RequestColumn, Run


class Earlier(NamedTuple):
    """The sums of the earlier tries of a request: their number, the first start, seconds and joules."""

    tries: int
    start_s: float
    load_s: float
    denoise_s: float
    decode_s: float
    energy_j: float


FIRST = Earlier(0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Of a first try."""


class Answering:
    """The end of requests: judgement of images, further tries of a cascade, and answers that come later.

    Args:
        offer_again: offers a request to the scheduler anew, to run a plan.
    """

    __slots__ = ("_answered", "_column", "_earlier", "_frontend", "_log", "_offer_again", "_run")

    def __init__(self, run: Run, frontend: FrontEnd, offer_again: Callable[[Request, Plan], None]) -> None:
        self._run, self._frontend, self._offer_again = run, frontend, offer_again
        self._log: AttemptLog | None = run.attempts() if is_cascade(frontend) else None
        self._earlier: dict[int, Earlier] = {}
        self._answered: Request | None = None
        self._column: RequestColumn | None = None
        if run.handling.has_after:
            self._column = run.add_column(HANDLING, default=0.0)

    def delays(self, request: Request, outcome: int) -> bool:
        """Return True if ``request`` ends later: it completed, and its image is judged or its answer takes time."""
        if outcome != COMPLETED or request is self._answered:
            return False
        if self._log is not None:
            self._end_try(request, self._log)
            if request.plan.then is not None:
                clock = self._run.clock
                clock.at(clock._now + self._frontend.judge_s(request), COMPLETION, self._judged, request)
                return True
        return self._is_answered_later(request)

    def _end_try(self, request: Request, log: AttemptLog) -> None:
        """Add the try that ended to the log of attempts, and the earlier ones to ``request``."""
        before = self._earlier.get(request.row, FIRST)
        # On groups of GPUs the executor has logged it, stage by stage; an artifact that is the answer ran on no GPU.
        if not log.is_exclusive and request.model is not None:
            gpus, steps = self._run.cluster.gpus_of(request.worker), request.steps - request.skipped
            log.add(
                request.row, before.tries, WHOLE, request.model, gpus, request.start_s, self._run.clock._now, steps,
                energy_j=request.energy_j,
            )  # fmt: skip
        if before.tries:
            request.start_s = before.start_s
            request.load_s += before.load_s
            request.denoise_s += before.denoise_s
            request.decode_s += before.decode_s
            request.energy_j += before.energy_j

    def _judged(self, request: Request) -> None:
        """Offer ``request`` anew if its image is too poor; else answer it."""
        then, row = request.plan.then, request.row
        if then is not None and self._log is not None and self._frontend.escalates(request, self._run.clock._now):
            # Kept aside, since the next try writes the same attributes anew.
            self._earlier[row] = Earlier(
                self._earlier.get(row, FIRST).tries + 1, request.start_s, request.load_s, request.denoise_s,
                request.decode_s, request.energy_j,
            )  # fmt: skip
            self._log.keep(row)
            self._offer_again(request, then)
        elif not self._is_answered_later(request):
            self._end(request)

    def _is_answered_later(self, request: Request) -> bool:
        """Return True if the answer of ``request`` takes time; it ends then."""
        handling, clock = self._run.handling, self._run.clock
        if self._column is None:
            return False
        self._column[request.row] = after_s = handling.answer_s(request)
        # An artifact that is the answer itself holds no GPU.
        if after_s == 0.0 or not (handling.overlap or request.model is None):
            return False
        # INSERTION: an answer comes after all completions of its instant, and before arrivals.
        clock.at(clock._now + after_s, INSERTION, self._end, request)
        return True

    def _end(self, request: Request) -> None:
        """End ``request`` without a further delay."""
        self._answered = request
        self._run.end(request)


def is_cascade(frontend: FrontEnd) -> bool:
    """Return True if ``frontend`` judges images, of a class of ours or of another that follows the protocol."""
    return getattr(type(frontend), "judge_s", FrontEnd.judge_s) is not FrontEnd.judge_s
