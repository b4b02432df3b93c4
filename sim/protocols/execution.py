"""Execution: how a worker turns plans into GPU time."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from mezzotint.backends.base import FREE, Cost, Work
from mezzotint.settings.ranges import Count, Joules, Seconds
from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols.addons import Loads
from mezzotint.sim.protocols.run import Run


@runtime_checkable
class Executor(Protocol):
    """The executor: runs accepted requests on a worker.

    ``max_batch`` bounds the requests that run on one worker. It is read before ``bind``.

    For every request that it accepts, an executor

    1. puts the request's model on the worker if another is there (Worker.model, Cluster.fetch, Cluster.install);
    2. asks the backend for costs: ``work = run.work(request)``, then begin, steps and end of ``worker.backend``;
    3. waits for simulated time with ``run.clock.at(time_s, COMPLETION, call, arg)`` (mezzotint.sim.core.clock);
    4. records every second from start to end once, with Cluster.record_busy;
    5. writes the request's start_s, load_s, denoise_s, decode_s and energy_j;
    6. calls Run.keep_artifact and Run.end, then Cluster.release, once each.
    """

    __slots__ = ()
    max_batch: int = 1

    @abstractmethod
    def bind(self, run: Run) -> None: ...

    @abstractmethod
    def accept(self, worker: Worker, request: Request) -> None:
        """Start or queue ``request`` on ``worker``, which counts it in Worker.running already."""

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        """Stop all work on ``worker``, whose GPU is lost, and record its busy time up to now (Cluster.record_busy).

        Returns:
            The requests that were running or joining. Run.end and Cluster.release are not called for them.
        """
        raise SimulationError(
            f"{worker} fails and the executor ({class_name(self)}) has no method abort; choose another executor= or "
            "failures=none"
        )

    def stop(self, request: Request, now_s: float) -> None:
        """Stop ``request``, which its client has given up, at its next step boundary, if it runs.

        It ends then by Run.end, as failed, with its times and energy up to there. One that has run its last step goes
        on to its end, and so does every request of an executor without this method.
        """
        return


@runtime_checkable
class Steps(Protocol):
    """The stage costs of continuous batching (``batching=``). A GPU does one thing at a time.

    A request joins (``prepare``), steps with the others (``step``), and leaves (``finish``). The executor does the
    rest: it counts Request.steps_left down, records busy time and energy, and ends the request. The joules of a Cost
    are those of all GPUs of the worker; without joules, the power of the worker's kind of GPU counts.

    The usual implementation asks the backend. ``prepare`` makes and keeps ``run.work(request)``. ``step`` sets
    ``work.done`` to ``request.steps - request.steps_left`` and calls Backend.steps. ``finish`` calls Backend.end and
    Run.keep_artifact. An implementation with costs of its own needs no Work.
    """

    __slots__ = ()

    @abstractmethod
    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        """Take the run, before the clock starts.

        Args:
            interrupt: ends a worker's present run of steps at the next boundary; ``boundary`` and ``step`` are then
                called anew. Call it when costs change between arrivals, as when an add-on was fetched.
        """

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads | None:
        """Load the add-ons of ``request``, which joins ``active``, and return what that costs.

        None has the executor load them one after another. Raises WorkFailed if they do not fit.
        """
        return None

    @abstractmethod
    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        """Return what comes before the first step of ``request``, such as text encoding.

        Its model and add-ons are resident then, and fetching its artifact is charged by the executor.
        """

    @abstractmethod
    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """Return the cost of one step of all of ``active``; waiting at ControlNet servers counts.

        The answer holds for every step until the batch changes, the run of steps is interrupted, or ``stable_steps``
        have passed. With a live backend it is asked before each step.
        """

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> Count | None:
        """Return for how many steps, 1 or more, the last answer of ``step`` holds; None is for all."""
        return None

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """Return the cost of a boundary at which the batch changed, or after ``interrupt``: patching a LoRA, say."""
        return FREE

    @abstractmethod
    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        """Return the cost from the last step of ``request`` to its image (decoding), and the cost after the image."""

    def request_lost(self, worker: Worker, request: Request) -> None:
        """Forget ``request``, which failed or was lost with its GPU; ``finish`` is not called for it."""
        return

    def price(self, works: Sequence[Work]) -> Cost:
        """Return the cost of one step of ``works``, the mean over all of their steps where those differ.

        ``works`` were not begun and belong to no request. Schedulers that estimate a batch before it runs ask for it.
        """
        raise ConfigError(
            f"batching: {type(self).__qualname__} cannot estimate the cost of a step, which the scheduler asks for; "
            "choose another batching= or discipline="
        )


TOLERANCE = 1e-9
"""A share of a step: a time no further than this past a step boundary counts as at it."""


@runtime_checkable
class StepCosts(Protocol):
    """Cumulative costs of the next steps of a fixed batch, where one step may cost more than the next."""

    @property
    def longest_s(self) -> Seconds:
        """The seconds of the longest of the steps, or an upper bound of them."""

    def seconds(self, count: int) -> Seconds: ...

    def joules(self, count: int) -> Joules | None:
        """Return the joules of the first ``count`` steps; None where they are not known."""

    def steps_by(self, elapsed_s: float) -> int:
        """Return the fewest steps that take at least ``elapsed_s``, up to TOLERANCE."""

    def reused(self, count: int) -> Sequence[float]:
        """Return, for each request of the batch, the steps' worth of features taken from the cache."""


def check_step_costs(costs: StepCosts, count: int) -> None:
    """Check that ``costs`` of ``count`` steps are cumulative, where a class from outside the package has them.

    Raises SimulationError, naming the class.
    """
    if is_ours(class_name(costs)):
        return
    first_s, total_s, longest_s = costs.seconds(1), costs.seconds(count), costs.longest_s
    if (count > 1 and not first_s < total_s) or total_s > longest_s * count * (1 + TOLERANCE):
        raise SimulationError(
            f"{class_name(costs)} has {first_s} s for the first step and {total_s} s for {count} steps, the longest of "
            f"{longest_s} s; StepCosts.seconds(count) is the sum of the first count steps, each of longest_s at most"
        )
    if costs.steps_by(total_s) != count:
        raise SimulationError(
            f"{class_name(costs)} has {costs.steps_by(total_s)} steps by the end of {count} steps; expected {count} "
            "from steps_by"
        )


@runtime_checkable
class FeatureCache(Protocol):
    """A feature cache: the denoiser reuses features of an earlier step instead of computing them anew.

    The cost of a step then depends on the progress of each request of the batch.
    """

    def bind(self, run: Run) -> None: ...

    def step_costs(self, active: Sequence[Request], count: int, step: Callable[[Sequence[Request]], Cost]) -> StepCosts:
        """Return the costs of the next ``count`` steps of ``active``.

        Args:
            step: requests -> the cost of one step of them without reuse.
        """
