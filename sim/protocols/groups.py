"""Groups of GPUs that change while a request runs: which GPUs run which stage next, and for how many steps."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol, runtime_checkable

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.progress import Progress, StageCost
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols.run import Run


class Launch(NamedTuple):
    """A decision: the next ``steps`` of ``progress`` run on ``gpus``, as soon as all of them are idle.

    Attributes:
        progress: a request of StageView.waiting.
        gpus: the GPUs; the parallel degree is their number, one of StageView.degrees.
        steps: steps that it runs, at most Progress.left.
        ahead: True if it was decided before the boundary, so that its work begins without executor.launch_s.
        every: steps from one boundary, at which it can be interrupted, to the next.
        batch: other requests that run the same steps with it, as one batch; each waits, and has its
            Progress.batch_key.
        service: other GPUs, which run its ControlNets: `StageView.service_gpus` of them.
    """

    progress: Progress
    gpus: tuple[int, ...]
    steps: Count = 1
    ahead: bool = False
    every: Count = 1
    batch: tuple[Progress, ...] = ()
    service: tuple[int, ...] = ()


Rank = tuple[float, ...]
"""Urgency of a request, as a tuple of numbers that the policy chooses; the least is the most urgent."""

NOBODY: Rank = inf, inf, inf
"""Rank after all requests."""


class Stand(NamedTuple):
    """For how long a decision stands: until then, a decision at each boundary would launch the same again.

    It stands while all four conditions hold. A stand that ends too early is right, only slower. One that ends too late
    changes the results, and no check finds it.

    Attributes:
        steps: steps from the begin of the launch, at most.
        rank: no request of a lower rank waits (GroupPolicy.first_waiting).
        idle: at most so many GPUs are idle, besides its own.
        until_s: the boundary is before this instant.
    """

    steps: int = 0
    rank: Rank = ()
    idle: float = inf
    until_s: float = inf


NEVER = Stand()
"""A decision that holds up to the next boundary alone."""


@runtime_checkable
class Estimates(Protocol):
    """Estimates of the cost of a stage, for the scheduler; the machine takes the true one.

    Attributes:
        are_exact: True, once bound, if every estimate is the true cost.
        are_fixed: True if no estimate changes during a run.
    """

    __slots__ = ()
    are_exact: bool = False
    are_fixed: bool = False

    @abstractmethod
    def bind(self, run: Run, cost: "CostOf") -> None:
        """Take the run, and the function of true costs."""

    @abstractmethod
    def cost(self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()) -> StageCost:
        """Return the estimated cost of ``stage`` on ``degree`` GPUs, of ``request`` in a batch with ``others``."""

    def observed(
        self, request: Request, stage: Stage, degree: int, steps: int, seconds: float, others: Sequence[Request] = ()
    ) -> None:
        """Take note of what ``steps`` of ``stage`` of ``request`` and ``others`` really took, which ended now."""
        return


class CostOf(Protocol):
    """The true cost of a stage by request, stage, parallel degree, and the other requests of its batch.

    ``as_usual`` takes the request without its sampling parameters.
    """

    def __call__(
        self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = (), *, as_usual: bool = False
    ) -> StageCost: ...


class StageView(Protocol):
    """The executor of stages, as a group policy sees it. Nothing in it can be set, nor in a Progress.

    Attributes:
        waiting: the requests at a boundary, on no GPU and with no launch decided, in the order of their coming there.
        estimates_are_exact: True if every estimate is the true cost.
        claimed: for each GPU that runs stages, the number of launches decided and not ended that hold it. GPUs that
            serve ControlNets (Cluster.servers), the last ones, are not among them. A GPU that is not open
            (Worker.open) counts as held: it is down, loads, leaves its role, or is not rented.
    """

    @property
    def waiting(self) -> Mapping[Progress, None]: ...

    @property
    def claimed(self) -> Sequence[int]: ...

    @property
    def estimates_are_exact(self) -> bool: ...

    def idle(self) -> list[int]:
        """Return the GPUs that no launch claims, in ascending order."""

    def degrees(self, progress: Progress) -> Sequence[int]:
        """Return the parallel degrees on which the present stage of ``progress`` may run, ascending."""

    def cost(
        self, progress: Progress, degree: int, stage: Stage | None = None, others: Sequence[Progress] = ()
    ) -> StageCost:
        """Return the estimated cost of the present stage of ``progress``, or of ``stage``, on ``degree`` GPUs.

        In a batch with ``others``, if there are any.
        """

    def service_gpus(self, progress: Progress, degree: int) -> int:
        """Return how many GPUs the ControlNets of ``progress`` take beside ``degree`` GPUs of its denoiser.

        None where they run inline, or on GPUs that the allocation sets aside.
        """

    def remaining_s(self, progress: Progress, degree: int) -> float:
        """Return the estimated seconds of all that is left of ``progress`` alone, on ``degree`` GPUs where a stage may.

        Of a running launch, the steps that ended by now are behind.
        """

    def interrupt(self, progress: Progress) -> None:
        """End the running launch of ``progress`` at its next boundary."""

    def withdraw(self, progress: Progress) -> None:
        """Take back the launch of ``progress`` if it has not started: its requests wait again (``at_boundary``)."""

    def ask_again(self) -> None:
        """Have `GroupPolicy.stands` asked anew for every launch that runs on."""

    def place(self, gpus: Sequence[int], components: Sequence[str]) -> None:
        """State, before the run, that ``gpus`` will run ``components`` alone: they hold these at the start."""

    def discard(self, progress: Progress, reason: str) -> None:
        """End the request of ``progress``, which waits, as discarded by the policy."""

    def decide_at(self, time_s: float) -> None:
        """Have the policy decide at ``time_s``, after what happens and before what starts at that instant."""

    def of_kind(self, gpu: Gpu) -> "StageView":
        """Return this view with the parallel degrees and costs of the kind ``gpu``, of a cluster of several kinds."""


@runtime_checkable
class GroupPolicy(Protocol):
    """A group policy: decides at every event which GPUs run which stage next (``executor=stages``).

    A launch claims its GPUs from the decision to its end, and starts after all events of the instant, once all of them
    are idle and up. A claim keeps no other launch from claiming the same GPU: they run one after another.

    The policy decides after every event, and again after launches started, until nothing more starts. At one instant
    the events come in this order: launches end or pass a boundary, in the order in which their last steps began;
    requests end; GPUs fail or return; requests arrive; ``decide_at``; starts, in the order of decision. A request that
    starts at the instant of its boundary has not paused.

    A launch that is lost with a GPU ends (``at_boundary``) with no steps left, and then its request (``ended``).

    Attributes:
        decides_before_release: True to decide at the end of a launch before its GPUs are free, too.
        acts_on_answers: True to be told of the end of a request at its answer, after its handling, though its GPUs
            are free before.
        follows_gpus: True if it launches on GPUs of ``StageView.idle`` alone, so that GPUs may come, go and change
            their role. Of launches that have not started on a GPU that goes, the requests wait again (``at_boundary``).
        needs_equal_steps: True if it takes all steps of a request as equally long.
        batches_stages: True if it forms the batches that a stage asks for (Stage.max_batch).
        chooses_service_gpus: True if it chooses the GPUs of ControlNets (Launch.service).
        max_batch: most requests of the batches that it forms of its own.
    """

    __slots__ = ()
    decides_before_release: bool = False
    acts_on_answers: bool = False
    follows_gpus: bool = False
    needs_equal_steps: bool = False
    batches_stages: bool = False
    chooses_service_gpus: bool = False
    max_batch: Count = 1

    @abstractmethod
    def bind(self, run: Run, view: StageView) -> None: ...

    def arrived(self, progress: Progress, now_s: float) -> None:
        """Take note of a new request."""
        return

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        """Take note that a launch of ``progress`` ended; its GPUs are free, and it waits or has no steps left."""
        return

    def ended(self, progress: Progress, now_s: float) -> None:
        """Take note that a request ended and its GPUs are free, or that it was lost with its GPU and arrives anew.

        Of handling that overlaps, this is before the answer, unless the policy ``acts_on_answers``.
        """
        return

    def restarted(self, progress: Progress, now_s: float) -> None:
        """Take note that a waiting request begins its plan anew, since a GPU that held its latent failed."""
        return

    @abstractmethod
    def decide(self, now_s: float) -> Iterable[Launch]:
        """Return launches of waiting requests, in the order in which they may start."""

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        """Return for how long the decision on a launch stands, which starts now or runs.

        It is asked only if executor.launch_s is 0, no estimate changes during the run (Estimates.are_fixed), and the
        launch has no batch, equal steps that nothing delays, and no later stage.

        Args:
            progress: its request.
            gpus: its GPUs.
            begin_s: instant at which its first step begins, after any load or move.
        """
        return NEVER

    def first_waiting(self) -> Rank:
        """Return the lowest rank of the requests that wait, for `Stand.rank`; NOBODY, never None, if none does."""
        return NOBODY
