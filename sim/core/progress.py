"""Progress of a request through its plan: its stage, the steps left, and the GPUs that it last ran on."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.plan import WHOLE, Stage
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of a stage on some number of GPUs: before its first step, of a step, and after its last.

    In a batch the steps are those of all its requests; the rest each request does on its own, one after another.
    ``watts`` is the power of all its GPUs; NaN where it is not known. ``step_s`` is the mean step of a full run, and
    ``ends`` the ends of its steps in mean steps, from 0 to N; it is empty where all steps are equal. The steps of a
    stage are the last ones of a full run. ``apart`` is, of a batch of several sizes, the seconds before the first and
    after the last step of each width and height.
    """

    first_s: Seconds
    step_s: Seconds
    last_s: Seconds
    watts: float
    ends: tuple[float, ...] = ()
    apart: Mapping[tuple[int, int], tuple[Seconds, Seconds]] | None = None

    def times(self, factor: float) -> "StageCost":
        """Return the same steps, and what is before and after them, ``factor`` times as long."""
        apart = self.apart and {
            size: (first_s * factor, last_s * factor) for size, (first_s, last_s) in self.apart.items()
        }
        first_s, step_s, last_s = self.first_s * factor, self.step_s * factor, self.last_s * factor
        return StageCost(first_s, step_s, last_s, self.watts, self.ends, apart)

    def seconds(self, done: int, count: int, steps: int) -> float:
        """Return the seconds of the next ``count`` of ``steps``, of which ``done`` are behind."""
        # As ``steps_s``, without its call.
        seconds = self.step_s * (self._mean_steps(done, count, steps) if self.ends else count)
        if not done:
            seconds += self.first_s
        if done + count == steps:
            seconds += self.last_s
        return seconds

    def _mean_steps(self, done: int, count: int, steps: int) -> float:
        first = len(self.ends) - 1 - steps + done
        return self.ends[first + count] - self.ends[first]

    def steps_s(self, done: int, count: int, steps: int) -> float:
        """Return the seconds of the next ``count`` of ``steps`` alone, without what comes before and after them."""
        return self.step_s * (self._mean_steps(done, count, steps) if self.ends else count)

    def steps_in(self, seconds: float, done: int, steps: int) -> float:
        """Return how many of ``steps``, after ``done``, end in ``seconds`` of steps; a part of a step is a fraction.

        Before the first and after the last of them, steps are taken to be like it.
        """
        mean_steps, ends = seconds / self.step_s, self.ends
        if not ends:
            return mean_steps
        first = len(ends) - 1 - steps + done
        mean_steps += ends[first]
        # bisect_right: at a boundary the step behind it has ended
        # (test_steps_in_the_seconds_of_some_steps_are_these_steps).
        last = min(max(bisect_right(ends, mean_steps) - 1, first), len(ends) - 2)
        return last - first + (mean_steps - ends[last]) / (ends[last + 1] - ends[last])

    def encode_s(self, batch: "Sequence[Progress]") -> float:
        """Return the seconds before the next step of the requests of ``batch`` that have none behind."""
        new = [member.request for member in batch if not member.done]
        if self.apart is None:
            return self.first_s * len(new)
        return sum(self.apart[request.width, request.height][0] for request in new)

    def batch_s(self, batch: "Iterable[Progress]", count: int) -> float:
        """Return the seconds of the next ``count`` steps of the requests of ``batch`` together."""
        # The steps once for all, and the encoding and decoding of each
        # (test_batch_shares_its_steps_and_encodes_and_decodes_one_after_another).
        alone_s = self.step_s * count
        if self.apart is None:
            return alone_s + sum(self.seconds(member.done, count, member.stage.steps) - alone_s for member in batch)
        for member in batch:
            first_s, last_s = self.apart[member.request.width, member.request.height]
            alone_s += first_s * (not member.done) + last_s * (member.done + count == member.stage.steps)
        return alone_s


@dataclass(slots=True)
class Attempt:
    """A run of a stage on some GPUs, without a pause: one launch, or several that follow each other.

    Attributes:
        group: the GPUs.
        index: index of the stage in the plan.
        done: steps of the stage that were behind before it.
        from_s, until_s: instants of its begin and end.
        cost: its true cost.
        estimate: its estimated cost; None if its true one is believed.
        counted_s, counted_done: instant from which its boundaries are counted, and the steps of the stage behind then.
        steps: steps that it ran.
        wait_s: seconds that these waited for ControlNet servers, beyond their cost.
    """

    group: Worker
    index: int
    done: int
    from_s: float
    cost: StageCost
    estimate: StageCost | None
    until_s: float = field(init=False)
    counted_s: float = field(init=False)
    counted_done: int = field(init=False)
    steps: int = 0
    wait_s: Seconds = 0.0

    def __post_init__(self) -> None:
        self.until_s = self.counted_s = self.from_s
        self.counted_done = self.done


class BatchShare(NamedTuple):
    """The share of a request in a batch that requests join and leave.

    ``batch_mean`` is the mean number of requests in it over the seconds of this one, ``gpu_s`` its GPU-seconds.
    """

    batch_mean: float
    gpu_s: float


@dataclass(slots=True)
class BatchRun:
    """A request's run of a stage in a batch that requests join and leave, without a pause: sums over its launches.

    Attributes:
        group: the GPUs.
        index: index of the stage in the plan.
        from_s, until_s: instants of its begin and of the end of its last launch so far.
        steps, seconds, estimate_s, joules, gpu_s: those of its launches; of joules and GPU-seconds the request's share.
        batch_s: requests in the batch, times their seconds together.
        max_batch: most requests in the batch.
    """

    group: Worker
    index: int
    from_s: float
    until_s: float = 0.0
    steps: int = 0
    seconds: Seconds = 0.0
    estimate_s: Seconds = 0.0
    joules: float = 0.0
    gpu_s: Seconds = 0.0
    batch_s: Seconds = 0.0
    max_batch: int = 1

    @property
    def share(self) -> BatchShare:
        mean = self.batch_s / self.seconds if self.seconds else float(self.max_batch)
        return BatchShare(mean, self.gpu_s)


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """A request between its first stage and its last. It is frozen for policies; the stage scheduler changes it.

    Attributes:
        request: the request.
        submission_index: its index in the order of submission, for ties.
        stages: its stages.
        index: index of its present stage in ``stages``.
        stage: the present stage.
        left: steps of the present stage still to run.
        group: the GPUs that it last ran on, where its latent lies; None before its first stage.
        mixes_sizes: True if its steps are of patches (batching=patched), so that a batch may have several sizes.
        running: True while GPUs work for it, alone or in a batch.
        paused_since_s: instant at which it began to wait at a boundary.
        pauses, paused_s: boundaries after which it did not run on at once, and the seconds until it did.
        moves, degree_changes: changes of its GPUs, and of their number.
    """

    request: Request
    submission_index: int
    stages: tuple[Stage, ...]
    paused_since_s: float = 0.0
    mixes_sizes: bool = False
    index: int = field(init=False, default=0)
    stage: Stage = field(init=False)
    left: int = field(init=False)
    group: Worker | None = field(init=False, default=None)
    running: bool = field(init=False, default=False)
    pauses: int = field(init=False, default=0)
    paused_s: float = field(init=False, default=0.0)
    moves: int = field(init=False, default=0)
    degree_changes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        _enter(self, 0)

    @property
    def done(self) -> int:
        """Steps of the present stage that are behind it."""
        return self.stage.steps - self.left

    @property
    def last_gpus(self) -> tuple[int, ...]:
        """The GPUs of ``group``; empty before its first stage."""
        return () if self.group is None else self.group.gpus

    @property
    def batch_key(self) -> tuple[object, ...] | None:
        """Stage, model and size, which all requests of a batch share; None if this one runs alone.

        Sizes are left out where the steps are those of patches.

        Steps of a denoiser without ControlNets and LoRAs are batched, and those of stages that ask for it
        (Stage.max_batch). A whole request that starts from an image is in no batch with others, since it is encoded
        first.
        """
        request, component = self.request, self.stage.component
        if self.stage.denoises:
            if request.addons is not None:
                return None
        elif self.stage.max_batch == 1:
            return None
        # An image to start from is encoded before the first step, and the batch would wait
        # (test_request_from_an_image_is_in_no_batch_with_one_from_noise).
        encodes_image = component == WHOLE and request.plan.refine
        size = () if self.mixes_sizes and self.stage.denoises else (request.width, request.height)
        return component, request.model, size, request.frames, encodes_image, request.sampling

    def __repr__(self) -> str:
        return f"the request in row {self.request.row} with {self.left} steps left of its {self.stage.component}"


class HashedProgress(Progress):
    """The progress of a HashedRequest; it hashes by its submission index, for the same reason."""

    __slots__ = ()

    def __hash__(self) -> int:
        return self.submission_index


write: Callable[[Progress, str, Any], None] = object.__setattr__
"""Set an attribute of a Progress, for the stage scheduler alone."""


def advance(progress: Progress, steps: int) -> bool:
    """Count ``steps`` of the present stage as run; return True if that was the last stage's last step."""
    left = progress.left - steps
    write(progress, "left", left)
    if left:
        return False
    if progress.index + 1 == len(progress.stages):
        return True
    _enter(progress, progress.index + 1)
    return False


def requests_of(batch: Sequence[Progress]) -> Sequence[Request]:
    """Return the requests of ``batch``."""
    return [progress.request for progress in batch]


def restart(progress: Progress, now_s: float) -> None:
    """Begin the plan of ``progress`` anew, on any GPUs: the latent was lost."""
    _enter(progress, 0)
    # As if it never ran: its next launch moves nothing (test_paused_request_loses_the_latent_on_a_failed_gpu).
    write(progress, "group", None)
    write(progress, "paused_since_s", now_s)


def _enter(progress: Progress, index: int) -> None:
    stage = progress.stages[index]
    write(progress, "index", index)
    write(progress, "stage", stage)
    write(progress, "left", stage.steps)
