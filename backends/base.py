"""The backend protocol: requests in stages in, seconds and joules (and, if live, tensors) out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from conf.assumption import Assumption


class BackendError(ValueError):
    """A profile or a live pipeline cannot answer: the message names the file, the key and the remedy."""


class WorkFailed(RuntimeError):
    """One piece of work could not be done (memory ran out, say); others may be. The text is the reason."""


@dataclass(slots=True, eq=False)
class Work:
    """One request as a backend runs it: which model, which shape, from which step, with which add-ons.

    Args:
        steps: the full number N; N - K of them are run.
        skipped: K.
        row: the request's row in the trace.
        refine: the artifact it starts from is a final image, which must be encoded and noised before the
            remaining steps (MoDM, 5), rather than a latent, which is used as it is (NIRVANA, 4).
        artifact: what a live backend starts from.
        capture: names -> steps after which a live backend keeps the latents; None keeps the final image.
        controlnets: run beside the denoiser at every step, one after another in its loop.
        loras: in the denoiser's weights.
        apart: ControlNets that run on GPUs of their own, whose seconds are no part of a step's (AddonBackend.apart).

    Attributes:
        done: steps that lie behind it; begins at K and is advanced by Backend.steps.
        state: what a live backend keeps of it between the stages: conditioning and latents.
        made: what a live backend kept: the final image, or the latents by name.
        quality: factor by which the image falls short of the full run's, where a backend measures that.
        shape: model, size and number of ControlNets in one word: works of one shape can share a batch.
    """

    model: str
    width: int
    height: int
    steps: int
    skipped: int = 0
    row: int = -1
    refine: bool = False
    artifact: Any = None
    capture: Mapping[int, int] | None = None
    controlnets: tuple[str, ...] = ()
    loras: tuple[str, ...] = ()
    remote_controlnets: tuple[str, ...] = ()
    done: int = field(init=False)
    state: Any = field(init=False, default=None, repr=False)
    made: Any = field(init=False, default=None, repr=False)
    quality: float | None = field(init=False, default=None)
    shape: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.done = self.skipped
        # Text, because it is hashed once: batches are counted by shape whenever one joins or leaves.
        self.shape = f"{self.model} {self.width}x{self.height}+{len(self.controlnets)}"


@dataclass(slots=True)
class Cost:
    """Seconds on the GPU, and the joules drawn; None where neither energy nor power was measured."""

    seconds: float
    joules: float | None = None

    def plus(self, other: "Cost") -> "Cost":
        """This and then ``other``; the joules are known where both are."""
        joules = None if self.joules is None or other.joules is None else self.joules + other.joules
        return Cost(self.seconds + other.seconds, joules)

    def times(self, factor: float) -> "Cost":
        """``factor`` times as much of both."""
        return Cost(self.seconds * factor, None if self.joules is None else self.joules * factor)

    def over(self, divisor: float) -> "Cost":
        """One of ``divisor`` equal parts. Not ``times`` its inverse, which is rounded once more."""
        return Cost(self.seconds / divisor, None if self.joules is None else self.joules / divisor)


FREE = Cost(0.0, 0.0)


def total_j(costs: Iterable[Cost]) -> float | None:
    """Joules of all of ``costs``; None where one is not known."""
    joules = [cost.joules for cost in costs]
    return None if None in joules else sum(each for each in joules if each is not None)


def total(costs: Sequence[Cost]) -> Cost:
    """All of ``costs`` one after another."""
    return Cost(sum(cost.seconds for cost in costs), total_j(costs))


@dataclass(slots=True)
class Stages:
    """What one request took: ``denoise_s`` of the N - K steps, ``other_s`` of encoding and decoding with
    post-processing; ``energy_j`` is None where a part was not measured."""

    denoise_s: float
    other_s: float
    energy_j: float | None


@dataclass(frozen=True, slots=True)
class Asset:
    """What lies in a GPU memory, with its base model (a model is its own) and its bytes where the trace says them."""

    kind: Literal["model", "controlnet", "lora"]
    name: str
    model: str
    size: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RemoteControlNetCosts:
    """The seconds of one step, where its ControlNets run on GPUs of their own (SwiftDiffusion, 4.1).

    ``encoder_s`` is the denoiser's encoder and middle block, which run at the same time as the ControlNets,
    ``controlnet_s`` one ControlNet, ``receive_s`` taking in and adding what one says, on the denoiser's GPU.
    """

    encoder_s: float
    controlnet_s: float
    receive_s: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """How the costs of one model on one kind of GPU are known; None where that is not stated.

    ``basis`` is one of Profile.basis or ``live``, ``precision`` the number formats of the networks, ``service_error``
    the known relative error of the service times.
    """

    basis: str | None = None
    precision: str | None = None
    service_error: float | None = None
    source: str | None = None


class RequestInputs(Protocol):
    """What the rows of the trace ask for, for a backend that really makes the images."""

    def prompt(self, row: int) -> str: ...

    def seed(self, row: int) -> int: ...


@runtime_checkable
class Backend(Protocol):
    """What the stages of serving cost on one kind of GPU.

    A request goes through begin, steps (as often as it takes) and end; each takes several requests together, of
    one size or of several. Any raises BackendError for what was not measured or cannot be made, and WorkFailed.

    ``live`` says that artifacts are made, and so must be there before they can be reused; ``quality_basis`` names what
    ``Work.quality`` is measured by; ``by_row`` says that works of one shape may cost differently. Where it is known
    that ``peak_bytes`` is None for all works, ``measures_memory`` is False. A subclass may keep what has a value or a
    body here.
    """

    live: bool
    by_row: bool
    quality_basis: str | None
    measures_memory: bool = True

    def open(self, asked: RequestInputs) -> None:
        """Take what the rows ask for, once, before anything runs."""

    def require(self, model: str) -> None:
        """Raise BackendError now, before a long run starts, where ``model`` cannot be served."""

    def begin(self, works: Sequence[Work]) -> Cost:
        """Encode their prompts, and the artifacts that are to be refined."""

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """Run ``count`` denoising steps of all of them together, and advance ``Work.done``."""

    def end(self, works: Sequence[Work]) -> Cost:
        """Decode their latents into images. Raises BackendError for one that has steps left."""

    def load(self, asset: Asset) -> Cost:
        """Put ``asset`` on a GPU: a model in place of another, a LoRA read and patched into its model."""

    def bytes(self, asset: Asset) -> int | None:
        """What ``asset`` takes while it is resident; None where nobody measured it."""

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        """Most bytes allocated while they step and decode together, weights included; None where unmeasured."""
        return None

    def assumptions(self) -> list[Assumption]:
        """What the answers given so far rest on besides the measured tables."""

    def provenance(self, model: str) -> Provenance:
        """Return how the costs of ``model`` are known."""
        return Provenance()

    def group_sizes(self) -> Collection[int]:
        """Return the numbers of GPUs that step one request at once, and of which the speed was measured."""
        return ()

    def speedup_of(self, model: str, width: int, height: int, gpus: int) -> float | None:
        """Return how many times faster than on one GPU a step is on ``gpus``; None where nobody measured it."""
        return None


@runtime_checkable
class AddonBackend(Protocol):
    """A backend that tells the stages of add-ons apart, so that they can be put elsewhere or left out.

    Each raises BackendError for what was not measured.
    """

    def read_lora(self, lora: Asset) -> Cost:
        """Bring its file into host memory."""

    def create_lora(self, lora: Asset, beside: Sequence[Asset]) -> Cost:
        """Put side branches in the place of the model's layers, where ``beside`` have theirs, and fuse them (4.2)."""

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        """Quantiles of reading and creating ``lora`` over their mean, at equal steps of probability from 0 to 1; empty
        where the seconds are measured as they come, or nobody measured their spread."""

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        """Merge them, of one model and in host memory, in place into weights that have none (SwiftDiffusion, 4.2)."""

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        """Take out all that were merged, at once."""

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        """The parts of a step of ``batch`` works like this one, whose ControlNets run elsewhere, the denoiser's on
        ``gpus`` GPUs at once, plain kernels; of a live backend, of the step that it made last."""

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        """How many times faster than plain a step is with ``kernels``."""


@runtime_checkable
class Patching(Protocol):
    """A backend that steps images of different sizes as one batch, cut into patches (PatchedServe, section 4)."""

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """Run ``count`` denoising steps of all of them together in patches of ``side`` pixels, and advance
        ``Work.done``. Raises BackendError for works of several models, or where nobody measured it."""


def standalone_cost(backend: Backend, work: Work) -> Stages:
    """Run one request alone on the GPU, from step K to the image."""
    works = (work,)
    begun = backend.begin(works)
    stepped = backend.steps(works, work.steps - work.done)
    ended = backend.end(works)
    joules = total_j(cost if cost.seconds else FREE for cost in (begun, stepped, ended))
    return Stages(stepped.seconds, begun.seconds + ended.seconds, joules)


def check_done(works: Sequence[Work]) -> None:
    """Raise BackendError for a work that is to end and has steps left, or ran more than it has."""
    for work in works:
        if work.done != work.steps:
            said = f"row {work.row} ({work.model}) is to be decoded after {work.done} of {work.steps} steps"
            raise BackendError(f"{said}; run all of its steps, and no more, first")
