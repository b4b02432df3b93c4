"""The backend protocol: requests in stages in, seconds and joules (and, if live, tensors) out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Bytes, Count, Joules, Positive, Seconds


class BackendError(ValueError):
    """A profile or a live pipeline cannot answer: the message names the file, the key and the remedy."""


class WorkFailed(RuntimeError):
    """One piece of work could not be done (memory ran out, say); others may be. The text is the reason."""


@dataclass(slots=True, eq=False)
class Work:
    """One request as a backend runs it: its model, shape, first step and add-ons.

    Args:
        steps: N, the steps of a full run; N - K of them are run.
        skipped: K, the steps skipped.
        row: the request's row in the trace.
        refine: True if the artifact is a final image, which is encoded and noised before the remaining steps
            (MoDM, 5). A latent is used as it is (NIRVANA, 4).
        artifact: the image or latent that a live backend starts from.
        capture: names -> steps after which a live backend keeps the latents; None keeps the final image.
        controlnets: ControlNets run inline, one after another at every step.
        loras: LoRAs in the denoiser's weights.
        remote_controlnets: ControlNets on other GPUs. Their seconds are not part of the cost of a step
            (AddonBackend.remote_controlnet_costs).
        frames: frames of a video; 1 is an image.
        images: images that the request makes as one batch.
        cfg: with (True) or without true classifier-free guidance, where the seconds of its model are for the other
            (Backend.basis); None is as they are.
        input_images: images that it brings, which are encoded before its steps.

    Attributes:
        done: steps already run or skipped; starts at K, and Backend.steps advances it.
        state: conditioning and latents that a live backend keeps between the stages.
        made: the final image of a live backend, or its captured latents by name.
        quality: score of the image over that of a full run, if the backend measures it.
        shape: model, size, number of inline ControlNets and guidance as text; works of one shape can share a batch.
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
    frames: int = 1
    images: int = 1
    cfg: bool | None = None
    input_images: int = 0
    done: int = field(init=False)
    state: Any = field(init=False, default=None, repr=False)
    made: Any = field(init=False, default=None, repr=False)
    quality: float | None = field(init=False, default=None)
    shape: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.done = self.skipped
        self.shape = shape_text(self.model, self.width, self.height, self.frames, len(self.controlnets), self.cfg)


@lru_cache(maxsize=4096)
def shape_text(model: str, width: int, height: int, frames: int, nets: int, cfg: bool | None) -> str:
    """Return ``Work.shape``: text, because it is hashed once, and batches are counted by it as requests come and go."""
    guidance = "" if cfg is None else " with CFG" if cfg else " without CFG"
    return f"{model} {size_text(width, height, frames)}+{nets}{guidance}"


def size_text(width: int, height: int, frames: int = 1) -> str:
    """Return a size as text: WIDTHxHEIGHT, and of a video WIDTHxHEIGHTxFRAMES."""
    return f"{width}x{height}" if frames == 1 else f"{width}x{height}x{frames}"


@dataclass(slots=True)
class Cost:
    """GPU seconds and joules; joules are None if neither energy nor power was measured."""

    seconds: Seconds
    joules: Joules | None = None

    def plus(self, other: "Cost") -> "Cost":
        """Add ``other``; the joules are None if either is unknown."""
        joules = None if self.joules is None or other.joules is None else self.joules + other.joules
        return Cost(self.seconds + other.seconds, joules)

    def times(self, factor: float) -> "Cost":
        """Multiply seconds and joules by ``factor``."""
        return Cost(self.seconds * factor, None if self.joules is None else self.joules * factor)

    def over(self, divisor: float) -> "Cost":
        """Divide seconds and joules by ``divisor``; ``times`` the inverse would round once more."""
        return Cost(self.seconds / divisor, None if self.joules is None else self.joules / divisor)


FREE = Cost(0.0, 0.0)


def total_j(costs: Iterable[Cost]) -> float | None:
    """Add up the joules of ``costs``; None if one is unknown."""
    joules = [cost.joules for cost in costs]
    return None if None in joules else sum(each for each in joules if each is not None)


def total(costs: Sequence[Cost]) -> Cost:
    """Add up ``costs`` that follow one another."""
    return Cost(sum(cost.seconds for cost in costs), total_j(costs))


@dataclass(slots=True)
class Stages:
    """Cost of one request by stage.

    Attributes:
        denoise_s: seconds of the N - K steps.
        other_s: seconds of encoding, and of decoding with post-processing.
        energy_j: joules of all stages; None if one was not measured.
    """

    denoise_s: float
    other_s: float
    energy_j: float | None


@dataclass(frozen=True, slots=True)
class Asset:
    """A model, ControlNet or LoRA that occupies GPU memory.

    Attributes:
        model: its base model; a model is its own.
        size: bytes, if the trace gives them.
    """

    kind: Literal["model", "controlnet", "lora"]
    name: str
    model: str
    size: int | None = field(default=None, compare=False)


shared_asset = lru_cache(maxsize=1 << 16)(Asset)
"""Return an Asset, the same object for equal arguments: each request needs several, and making one is slow."""


def weights_of(model: str) -> Asset:
    """Return the weights of ``model``, all components together."""
    return shared_asset("model", model, model)


class ComponentWeights(NamedTuple):
    """Weights of a component: bytes on the GPU, and seconds to load them from the host."""

    bytes: int
    load_s: float


@dataclass(frozen=True, slots=True)
class RemoteControlNetCosts:
    """Seconds of the parts of one step with ControlNets on other GPUs (SwiftDiffusion, 4.1).

    Attributes:
        encoder_s: the denoiser's encoder and middle block, which run while the ControlNets do.
        controlnet_s: one ControlNet.
        receive_s: receiving and adding the residuals of one ControlNet on the denoiser's GPU.
    """

    encoder_s: float
    controlnet_s: float
    receive_s: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of the costs of one model on one kind of GPU; None for what is not stated.

    Attributes:
        basis: one of Profile.basis, or ``live``.
        precision: number formats of the networks.
        service_error: known relative error of the service times.
        software: the engine that served, and its version.
        date: day of the measurement, or of its publication.
        untimed: stages that have no seconds of their own.
    """

    basis: str | None = None
    precision: str | None = None
    service_error: float | None = None
    source: str | None = None
    software: str | None = None
    date: str | None = None
    untimed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestBasis:
    """Kind of request that the seconds of one model were measured on, besides size and steps.

    Attributes:
        cfg: True if a step includes both halves of true classifier-free guidance; None if that is not stated.
        input_images: images that such a request brings, as an edit does.
        is_counted: True if the backend counts ``images``, ``cfg`` and ``input_images`` of a work.
    """

    cfg: bool | None = None
    input_images: int = 0
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class ServerStart:
    """Seconds that a start of a server process costs, and its first requests.

    Attributes:
        ready_s: from the start of the process until it takes requests, with the load of its model; None if nobody
            measured it.
        compile_s: (width, height, frames) -> extra seconds of the first request of that shape after each start.
        other_compile_s: those of every other shape; None if nobody measured them.
        ready_source, compile_source: who measured them.
    """

    ready_s: float | None = None
    compile_s: Mapping[tuple[int, int, int], float] = field(default_factory=dict)
    other_compile_s: float | None = None
    ready_source: str | None = None
    compile_source: str | None = None

    @property
    def knows_compile(self) -> bool:
        """True if the first request of some shape is known to take longer."""
        return bool(self.compile_s) or self.other_compile_s is not None

    def first_s(self, shape: tuple[int, int, int]) -> float | None:
        """Return the extra seconds of the first request of ``shape``; None if nobody measured them."""
        return self.compile_s.get(shape, self.other_compile_s)


UNKNOWN_START = ServerStart()


class RequestInputs(Protocol):
    """Prompts, seeds and seconds of the trace, by row, and whether any row asks for several images."""

    def prompt(self, row: int) -> str: ...

    def seed(self, row: int) -> int: ...

    def service_s(self, row: int) -> float: ...

    def has_several_images(self) -> bool: ...


@runtime_checkable
class Backend(Protocol):
    """Costs of the stages of serving on one kind of GPU.

    A request goes through ``begin``, one or more ``steps`` and ``end``. Each takes several requests together, of one
    size or of several. All raise BackendError for a cost that is unknown or an image that cannot be made, and
    WorkFailed. A subclass may keep the values and bodies given here.

    Attributes:
        live: True if images are really made; an artifact can then be reused only after it was made.
        by_row: True if works of one shape may cost differently.
        quality_basis: name of the metric of ``Work.quality``; None without one.
        measures_memory: False if ``peak_bytes`` is None for all works.
    """

    live: bool
    by_row: bool
    quality_basis: str | None
    measures_memory: bool = True

    def open(self, asked: RequestInputs) -> None:
        """Take the prompts and seeds of the trace, once, before anything runs."""

    def require(self, model: str) -> None:
        """Raise BackendError before the run starts if ``model`` cannot be served."""

    def alias(self, model: str, architecture: str) -> None:
        """Let ``model`` cost what ``architecture`` costs. Raises BackendError if it cannot."""
        raise BackendError(f"{type(self).__name__} cannot cost {model} as {architecture}; add backend=profiled")

    def begin(self, works: Sequence[Work]) -> Cost:
        """Encode the prompts, and the final images that are to be refined."""

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """Run ``count`` denoising steps of ``works`` together, and advance ``Work.done``."""

    def end(self, works: Sequence[Work]) -> Cost:
        """Decode latents into images. Raises BackendError for a work with steps left."""

    def load(self, asset: Asset) -> Cost:
        """Load ``asset`` onto a GPU: a model replaces another, a LoRA is read and patched into its model."""

    def bytes(self, asset: Asset) -> Bytes | None:
        """Return the bytes of the resident ``asset``; None if not measured."""

    def peak_bytes(self, works: Sequence[Work]) -> Bytes | None:
        """Return the peak bytes while ``works`` step and decode together, weights included; None if not measured."""
        return None

    def assumptions(self) -> list[Assumption]:
        """Return the assumptions behind the costs returned so far, besides the measured tables."""

    def provenance(self, model: str) -> Provenance:
        """Return the origin of the costs of ``model``."""
        return Provenance()

    def basis(self, model: str) -> RequestBasis:
        """Return what the seconds of ``model`` are for."""
        return RequestBasis()

    def server_start(self, model: str) -> ServerStart:
        """Return what a start of a server of ``model`` costs besides `load`."""
        return UNKNOWN_START

    def group_sizes(self, model: str | None = None) -> Collection[Count]:
        """Return the parallel degrees above 1 with a measured speed, of ``model`` or of any."""
        return ()

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        """Return one step of a batch of ``batch`` requests like ``work`` on ``gpus`` GPUs; None if not measured.

        Its joules are those of all GPUs. Of two or more requests ``work`` has no row.
        """
        if gpus == batch == 1:
            return self.steps((replace(work),))
        raise BackendError(f"{type(self).__name__} does not know a step on several GPUs; add backend=profiled")

    def unequal_sizes(self, model: str) -> Collection[tuple[int, int, int]]:
        """Return the (width, height, frames) at which the steps of ``model`` take unequal seconds (``step_ends``)."""
        return ()

    def step_ends(self, work: Work) -> Sequence[float]:
        """Return the ends of the steps of a full run like ``work``, from 0 to N, in mean steps; empty if all are equal.

        The first is 0 and the last N. ``steps`` charges them, and ``group_step`` is the mean step.
        """
        return ()

    def component_s(self, component: str, work: Work, gpus: int, batch: int = 1) -> Seconds:
        """Return the seconds of a step of a ``component`` besides text encoder, denoiser and VAE.

        Of ``batch`` requests like ``work`` together. Of two or more requests ``work`` has no row.
        """
        raise BackendError(f"{type(self).__name__} knows no component {component!r}; add backend=profiled")

    def component_degrees(self, component: str, model: str) -> Collection[Count]:
        """Return the parallel degrees at which such a ``component`` of ``model`` was measured."""
        return ()

    def component_weights(self, component: str, model: str) -> ComponentWeights | None:
        """Return the weights of ``component``, of a plan's stage, of ``model``; None if not measured."""
        return None


@runtime_checkable
class AddonBackend(Protocol):
    """A backend that knows the cost of each stage of an add-on, so that stages can be moved or left out.

    All methods raise BackendError for a cost that was not measured.
    """

    def read_lora(self, lora: Asset) -> Cost:
        """Read the file of ``lora`` into host memory."""

    def create_lora(self, lora: Asset, beside: Sequence[Asset]) -> Cost:
        """Attach ``lora`` as side branches to a model with those of ``beside``, and fuse all (4.2)."""

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        """Return quantiles of the seconds of reading and creating ``lora``, over their mean.

        Returns:
            Quantiles at equal steps of probability from 0 to 1; empty on a live backend, or if not measured.
        """

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        """Merge ``loras`` from host memory in place into the weights of their one model (SwiftDiffusion, 4.2)."""

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        """Take all merged LoRAs out of the weights at once."""

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        """Return the parts of a step of ``batch`` works like ``work`` with ControlNets on other GPUs.

        Args:
            gpus: parallel degree of the denoiser.

        Returns:
            Seconds with plain kernels; of a live backend, those of the last step of ``work``.
        """

    def faster(self, model: str, kernels: Sequence[str]) -> Positive:
        """Return the speedup of a step with ``kernels`` over plain ones."""


@runtime_checkable
class Patching(Protocol):
    """A backend that steps images of different sizes as one batch, cut into patches (PatchedServe, section 4)."""

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """Run ``count`` denoising steps of ``works`` as one batch of patches, and advance ``Work.done``.

        Args:
            side: side of a patch in pixels.

        Raises:
            BackendError: the works have several models, or the step was not measured.
        """


def serves(backend: Backend, model: str) -> bool:
    """Return True if ``backend`` has costs of ``model``."""
    try:
        backend.require(model)
    except BackendError:
        return False
    return True


def standalone_cost(backend: Backend, work: Work) -> Stages:
    """Return the cost of one request alone on a GPU, from step K to the image."""
    works = (work,)
    begun = backend.begin(works)
    stepped = backend.steps(works, work.steps - work.done)
    ended = backend.end(works)
    joules = total_j(cost if cost.seconds else FREE for cost in (begun, stepped, ended))
    return Stages(stepped.seconds, begun.seconds + ended.seconds, joules)


def check_done(works: Sequence[Work]) -> None:
    """Raise BackendError for a work that ran fewer or more steps than its own before decoding."""
    for work in works:
        if work.done != work.steps:
            said = f"row {work.row} ({work.model}) is to be decoded after {work.done} of {work.steps} steps"
            raise BackendError(f"{said}; run all of its steps, and no more, first")
