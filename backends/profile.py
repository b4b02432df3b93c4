"""A profile: the measured costs of one model on one kind of GPU, and its YAML file.

The smallest profile is one step time, in a YAML file of a folder DIR. A run uses it with ``backend.folder=DIR``::

    schema: 1
    model: my-model
    gpu: h100
    source: timed by hand, 50 steps of one image
    step:
    - {width: 1024, height: 1024, seconds: 0.1}

``model`` is the name in ``models=``, ``gpu`` the kind in ``cluster=``; file names do not matter. A profile replaces the
shipped one of the same model and GPU. No two in a folder may have both in common. Keys are those of ``Profile``; an
unknown key is an error. ``schema``, ``model``, ``gpu``, ``source`` and ``step`` are required. Numbers are finite and
positive, times are seconds, sizes are pixels of the image. Times of a list are of a whole batch, not of an image.

A file may have several models of one GPU: ``models``, in place of ``model``, maps each name to its own keys, and the
keys beside ``models`` are those of all.

How a cost follows from the points of a list:

- A point measures one width, height and ``batch``, and of a video its ``frames`` (1 if absent); only the product of
  width, height and frames, the pixels of all frames, matters. Points of one batch form a row of the grid.
- Between two sizes of a row, and between two batches, the cost is interpolated linearly, in pixels and in batch. A
  point between two batches needs its size in both rows.
- A cell (one number of pixels and batch) has one value: two points that differ are an error. Seconds under 10 us, or
  a hundred times those of a neighbour, or a hundredth, are refused without ``confirmed: true`` on one of the points.
  So are those of a batch that takes less than three quarters of a smaller one's.
- Up to 2 % of its edge's pixels outside the grid, the edge is scaled in proportion, and the summary names the size:
  832x480x81 is 1.3 % below 854x480x80.
- Further outside a run stops (``extrapolate=error``). With ``extrapolate=warn`` the nearest edge is scaled in
  proportion to the pixels and to the batch, and the summary says so.
- Encoding and decoding beyond the largest batch take that batch's time in proportion to the images, without a warning.
- A time of ``step`` or ``gang_step`` is the mean step of a full run; ``step_shares`` says which steps take longer.
- Works of different sizes or numbers of ControlNets share no batch: their times add up (except in ``patched``).
- ``text_encode``, ``vae_encode`` and ``vae_decode`` cost nothing if absent, and the summary says so: ``step`` is then
  taken to include them.
  Other absent keys stop a run that needs them, except ``load_s`` (``backend.unpublished_load_s``), and ``energy`` with
  ``power_w`` and ``memory``, which leave joules and peak bytes unknown.
"""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import date as day
from functools import cached_property, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mezzotint.backends.base import BackendError, size_text
from mezzotint.backends.cells import wrong_cell
from mezzotint.backends.patched import MAX_S, PatchTiming
from mezzotint.backends.scatter import Scatter
from mezzotint.backends.table import Table
from mezzotint.files.atomic import atomic_write, check_ours
from mezzotint.files.document import DocumentError, parse
from mezzotint.files.validation import first_error

Seconds = Annotated[float, Field(gt=0, le=MAX_S)]
Count = Annotated[int, Field(gt=0, lt=2**53)]
Frames = Annotated[int, Field(gt=0, le=2**31 - 1, exclude_if=lambda frames: frames == 1)]
Quantity = Annotated[float, Field(gt=0, le=1e12)]
Gain = Annotated[float, Field(ge=0.01, le=100)]
Key = TypeVar("Key", int, str, tuple[str, int], tuple[str, int, tuple[int, int, int]])


class Strict(BaseModel):
    """Base of all parts of a profile, without conversion: true is not 1, "64" is not 64; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, ignored_types=(cached_property,))


class Timing(Strict):
    """Time of one operation on a batch.

    Attributes:
        batch: images (of ``text_encode``: prompts) in the batch.
        seconds: mean of the samples of the whole batch: a run pays for every stall. Some published ones are medians.
        spread_s: interquartile range in seconds; for the figures alone.
        source: only if it differs from that of the profile.
        confirmed: True if seconds that are out of proportion to those of the neighbours are right.
    """

    batch: Count = 1
    seconds: Seconds
    spread_s: Annotated[float, Field(ge=0, le=MAX_S)] | None = None
    source: str | None = None
    confirmed: Annotated[bool, Field(exclude_if=lambda confirmed: not confirmed)] = False

    @property
    def pixels(self) -> int:
        """Pixels per image; 1 if the time does not depend on the size (text encoding)."""
        return 1


class Size(Strict):
    """``width`` x ``height`` pixels and ``frames`` of a video; 1 frame is an image."""

    width: Count
    height: Count
    frames: Frames = 1

    @property
    def pixels(self) -> int:
        """Pixels of all frames."""
        return self.width * self.height * self.frames

    @property
    def size(self) -> tuple[int, int, int]:
        return self.width, self.height, self.frames


class Point(Size, Timing):
    """A timing at one size."""


class ControlPoint(Point):
    """Extra seconds per step of ``nets`` inline ControlNets, which run one after another."""

    nets: Count


class GroupPoint(Point):
    """Seconds of one step on ``gpus`` GPUs together; ``source`` says how they share it."""

    gpus: Annotated[int, Field(ge=2)]


class StepShares(Size):
    """Weights of the steps of a full run at one size by index, the first step first; later ones weigh as the last."""

    shares: Annotated[list[Quantity], Field(min_length=1)]


class ComponentPoint(Point):
    """Seconds of a step of a component besides text encoder, denoiser and VAE, on ``gpus`` GPUs, for plans that name
    it."""

    component: Annotated[str, Field(min_length=1)]
    gpus: Count = 1


class Weights(Strict):
    """Weights of a component: ``bytes`` on the GPU, and ``load_s`` seconds from host memory to the GPU."""

    bytes: Count
    load_s: Seconds


class RemoteControlNetPoint(Strict):
    """Parts of one step with ControlNets on other GPUs, at batch 1 and with plain kernels.

    Attributes:
        gpus: parallel degree of the denoiser.
        encoder_s: seconds of the denoiser's encoder and middle block.
        controlnet_s: seconds of one ControlNet.
        receive_s: seconds to receive and add the residuals of one ControlNet.
    """

    gpus: Count
    width: Count
    height: Count
    encoder_s: Seconds
    controlnet_s: Seconds
    receive_s: Seconds


class Guidance(Strict):
    """True classifier-free guidance (CFG), which evaluates the denoiser with and without the prompt.

    Attributes:
        cfg: True if the seconds of a step include both halves.
        factor: seconds of a step with CFG over those without; absent: not measured, and taken as 2.
        source: of the factor.
    """

    cfg: bool
    factor: Annotated[float, Field(ge=1, le=10)] | None = None
    source: str | None = None


class LoraTiming(Strict):
    """Seconds of the operations on one LoRA of the denoiser.

    ``read_s``, ``attach_s``, ``fuse_s`` and ``copy_s`` scale with the bytes of a LoRA, the others do not.

    Attributes:
        bytes: size of its file.
        rank: for information alone.
        read_s: from disk (or the system's file cache) to host memory.
        attach_s: from host memory into the denoiser as side branches.
        fuse_s: fold all attached LoRAs into the weights.
        unfuse_s: take all fused LoRAs out of the weights.
        patch_s: attach and fuse in one go, as between two steps of a run.
        copy_s: extra if the LoRA comes from another process.
        merge_s: add it to the weights in place, without new layers (SwiftDiffusion, 4.2); absent: ``patch_s``.
        restore_s: copy the kept weights back; absent: ``unfuse_s``.
        spread: quantiles of read + attach + fuse over their mean, at equal steps of probability from 0 to 1.
    """

    bytes: Count
    rank: Count | None = None
    read_s: Seconds
    attach_s: Seconds
    fuse_s: Seconds
    unfuse_s: Seconds
    patch_s: Seconds
    copy_s: Seconds | None = None
    merge_s: Seconds | None = None
    restore_s: Seconds | None = None
    spread: list[Quantity] | None = None

    @field_validator("spread")
    @classmethod
    def _quantiles(cls, spread: list[float] | None) -> list[float] | None:
        if spread is not None and (len(spread) < 2 or spread != sorted(spread)):
            raise ValueError("expected two or more quantiles in ascending order")
        return spread


class ControlNetLoad(Strict):
    """Loading one ControlNet: ``bytes`` of its weights, and ``load_s`` seconds from its files to the GPU."""

    bytes: Count
    load_s: Seconds


class Ready(Strict):
    """Seconds from the start of the server process until it takes requests, with the load of its model.

    Of these seconds the last ``load_s`` are the load, and busy time of the GPU.
    """

    seconds: Seconds
    source: str | None = None


class FirstCompilation(Strict):
    """Extra seconds of the first request of a shape after each start of a server: compilation, autotuning, capture.

    Without width and height, those of every shape that has no entry of its own. Neither the number of requests in a
    batch nor the number of GPUs counts.
    """

    width: Count | None = None
    height: Count | None = None
    frames: Frames = 1
    seconds: Annotated[float, Field(ge=0, le=MAX_S)]
    source: str | None = None

    @model_validator(mode="after")
    def _whole_size(self) -> "FirstCompilation":
        if (self.width is None) != (self.height is None) or (self.width is None and self.frames > 1):
            raise ValueError("expected width and height, or neither of them and no frames")
        return self

    @property
    def size(self) -> tuple[int, int, int] | None:
        """Width, height and frames; None of every other shape."""
        return None if self.width is None or self.height is None else (self.width, self.height, self.frames)


class Operation(Strict):
    """An operation with ``nets`` inline ControlNets; a base of its own, so that files name it before the size."""

    operation: Literal["step", "vae_encode", "vae_decode", "controlnet_step"] = "step"
    nets: Annotated[int, Field(ge=0)] = 0


class MemoryPoint(Size, Operation):
    """Peak bytes on the GPU during an operation on a batch, weights included."""

    batch: Count
    bytes: Count


class EnergyPoint(Size):
    """Joules of the whole GPU per denoising step of a batch."""

    batch: Count
    joules: Quantity


class Profile(Strict):
    """All costs of ``model`` on ``gpu``; the module says how times between and beyond the points follow.

    Attributes:
        schema: 1.
        model, gpu: names as in ``models=`` and ``cluster=``.
        source: who measured it, and how.
        basis: ``measured`` (or fitted) with this project, or from a raw log in ``source``. ``published``
            measurements of others. ``scaled`` from another GPU or model. ``assumed``.
        service_error: known relative error of the service times, |true / profile - 1|; its source is in ``validation``.
        device, notes: for the reader: the device's full name, remarks.
        date: day of the measurement, or of the round or report that published it; None if the source has none.
        software: the engine that served; ``version`` is its version. None if the source does not say.
        versions: versions of other packages.
        dtype: precision, of the denoiser if components differ.
        validation: how far replayed runs are from measured ones.
        step: one denoising step of a batch, both halves of classifier-free guidance included unless ``guidance`` says
            otherwise. Without any, nothing can be served; another stage must then have points.
        guidance: what a request costs that asks for the other guidance than the seconds are for.
        input_images: images that a request of these seconds brings, of a model that edits.
        gang_step: a step on several GPUs together.
        step_shares: sizes whose steps are not equal. Of N steps, each takes the seconds of ``step`` or ``gang_step``
            times its weight over the mean weight of the N, so that a full run takes N times those seconds. Sizes must
            match exactly; the steps of others are equal.
        text_encode: encoding the prompts of a batch; has no size.
        vae_encode: encoding a batch of images to be refined.
        vae_decode: decoding a batch, with post-processing.
        component: other stages of a request. Sizes and ``gpus`` must match exactly; batches are interpolated.
        component_weights: text-encoder, denoiser, vae or another component -> its weights, for stages on GPUs of their
            own. Absent: loads of components are not charged.
        controlnet_step: extra time per step by number of inline ControlNets, interpolated linearly between numbers
            (0 adds nothing); beyond the largest number in proportion, with ``extrapolate=warn``.
        apart: parts of a step with ControlNets on other GPUs. Sizes and ``gpus`` must match exactly; the parts grow
            with the batch as ``step`` does.
        kernels: name -> seconds of a step without this kernel over those with all of them. A kernel saves the same
            seconds whichever others are used.
        controlnet: loading one ControlNet, in proportion to its bytes.
        lora: operations on one LoRA.
        memory: peak bytes by operation; needs ``step`` points without ControlNets.
        energy: joules of a step, scaled by the extra time of ControlNets.
        load_s: seconds to put the model on the GPU.
        ready: start of the server process. Absent: a start takes ``load_s``.
        compile: first requests of a shape after a start of the server. Absent: they are not charged.
        weights_bytes: bytes of the model on the GPU. Only peak bytes beyond these are scaled outside the grid.
        power_w: watts of the GPU while it works, for all joules that ``energy`` does not give.
        scatter: spread of single requests about these times (mezzotint.backends.scatter).
        patched: a step of images cut into patches (mezzotint.backends.patched).
    """

    schema_: Annotated[int, Field(ge=1, le=1)] = Field(alias="schema")
    model: str
    gpu: str
    source: str
    basis: Literal["measured", "published", "scaled", "assumed"] | None = None
    service_error: Annotated[float, Field(ge=0, le=10)] | None = None
    device: str | None = None
    dtype: str | None = None
    software: str | None = None
    version: str | None = None
    date: str | None = None
    versions: dict[str, str] = {}
    notes: str | None = None
    validation: str | None = None
    guidance: Guidance | None = None
    input_images: Count | None = None
    step: list[Point]
    gang_step: list[GroupPoint] = []
    step_shares: list[StepShares] = []
    text_encode: list[Timing] = []
    vae_encode: list[Point] = []
    vae_decode: list[Point] = []
    component: list[ComponentPoint] = []
    component_weights: dict[str, Weights] = {}
    controlnet_step: list[ControlPoint] = []
    apart: list[RemoteControlNetPoint] = []
    kernels: dict[str, Gain] = {}
    controlnet: ControlNetLoad | None = None
    lora: LoraTiming | None = None
    memory: list[MemoryPoint] = []
    energy: list[EnergyPoint] = []
    load_s: Seconds | None = None
    ready: Ready | None = None
    compile: list[FirstCompilation] = []
    weights_bytes: Count | None = None
    power_w: Quantity | None = None
    scatter: Scatter | None = None
    patched: PatchTiming | None = None

    @field_validator("date", mode="before")
    @classmethod
    def _day(cls, written: Any) -> Any:
        """Return as text what YAML reads as a date where it stands without quotes."""
        return written.isoformat() if isinstance(written, day) else written

    @field_validator("step_shares", "compile")
    @classmethod
    def _one_of_a_size(cls, entries: list[Any]) -> list[Any]:
        for size, count in Counter(entry.size for entry in entries).items():
            if count > 1:
                of = "without a size" if size is None else f"of {size_text(*size)}"
                raise ValueError(f"found {count} entries {of}, expected one of each size")
        return entries

    @cached_property
    def group_tables(self) -> dict[int, Table]:
        """Number of GPUs -> seconds of a step; empty if not measured."""
        return _tables((point.gpus, point, point.seconds) for point in self.gang_step)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Operation -> its seconds; an operation that was not measured is absent."""
        names = ("step", "text_encode", "vae_encode", "vae_decode")
        return _tables((name, point, point.seconds) for name in names for point in getattr(self, name))

    @cached_property
    def component_tables(self) -> dict[tuple[str, int, tuple[int, int, int]], Table]:
        """(Component, GPUs, size) -> seconds of a step by batch; empty if not measured."""
        return _tables(((point.component, point.gpus, point.size), point, point.seconds) for point in self.component)

    @cached_property
    def controlnet_tables(self) -> dict[int, Table]:
        """Number of inline ControlNets -> extra seconds per step; empty if not measured."""
        return _tables((point.nets, point, point.seconds) for point in self.controlnet_step)

    @cached_property
    def peak_tables(self) -> dict[tuple[str, int], Table]:
        """(Operation, number of inline ControlNets) -> peak bytes besides the model's weights.

        Without the weights (0 if unknown), only bytes that grow with size and batch are scaled outside the grid.
        """
        weights = self.weights_bytes or 0
        return _tables(((str(point.operation), point.nets), point, point.bytes - weights) for point in self.memory)

    @cached_property
    def energy_table(self) -> Table | None:
        """Joules per denoising step of a batch; None if not measured."""
        return _tables(("energy", point, point.joules) for point in self.energy).get("energy")


def _tables(points: Iterable[tuple[Key, Any, float]]) -> dict[Key, Table]:
    """Return a Table for each key, in sorted order, from (key, point, its value)."""
    rows: dict[Key, list[tuple[int, int, float]]] = {}
    for key, point, value in points:
        rows.setdefault(key, []).append((point.pixels, point.batch, value))
    return {key: Table(rows[key]) for key in sorted(rows)}


def read(path: Path | Traversable) -> Profile:
    """Read and check a file of one profile. Raises BackendError naming the file and the wrong key."""
    return _checked(_content(_bytes(path), str(path)), str(path))


def read_models(path: Path | Traversable) -> list[Profile]:
    """Read and check a file of one profile or of several models. Raises BackendError naming the file and wrong key."""
    return list(_models(_bytes(path), str(path)))


@lru_cache(maxsize=1024)
def _models(text: bytes, where: str) -> tuple[Profile, ...]:
    """Return the profiles in a file with this ``text``, each parsed once: a plan reads all of them many times."""
    content = _content(text, where)
    models = content.pop("models", None)
    if models is None:
        return (_checked(content, where),)
    if not isinstance(models, dict) or not all(isinstance(own, dict) for own in models.values()) or "model" in content:
        said = "expected the name of each model with its own keys, and no model beside it"
        raise BackendError(f"{where}: models: {said}, found {shortened(models)}; correct the file")
    return tuple(_checked({**content, "model": name, **own}, f"{where}: {name}") for name, own in models.items())


def _bytes(path: Path | Traversable) -> bytes:
    """Return the content of a profile's file. Raises BackendError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _content(text: bytes, where: str) -> dict[str, Any]:
    """Return the mapping in a profile's ``text``. Raises BackendError."""
    try:
        content = parse(text)
    except DocumentError as error:
        raise _unreadable(where, error) from None
    if not isinstance(content, dict):
        said = f"{where}: expected a profile (a mapping with schema: 1), found {shortened(content)}"
        raise BackendError(f"{said}; restore or re-measure it")
    return content


def _unreadable(where: object, error: Exception) -> BackendError:
    reason = " ".join(str(error).split())[:300]
    return BackendError(f"{where}: cannot be read as a profile ({reason}); restore or re-measure it")


def _checked(content: dict[str, Any], where: str) -> Profile:
    """Return the profile of ``content``, from ``where``. Raises BackendError."""
    try:
        profile = Profile.model_validate(content)
    except ValidationError as error:
        raise BackendError(f"{where}: {first_error(error)}; correct or re-measure it") from None
    if not profile.tables:
        raise BackendError(f"{where}: step: found no point, expected times of a step or another stage; re-measure it")
    if wrong := wrong_cell(profile):
        raise BackendError(f"{where}: {wrong}")
    return profile


def file_name(gpu: str, model: str) -> str:
    """Return the name of a profile's file, GPU_MODEL.yaml.

    Raises:
        BackendError: a file name cannot hold the name, or the GPU's has an underscore, where it would end.
    """
    for name in (gpu, model):
        if "_" in gpu or not re.fullmatch(r"\w[\w.-]*", name):
            raise BackendError(f"{name!r} cannot name a profile file, GPU_MODEL.yaml; use letters, digits, '.' and '-'")
    return f"{gpu}_{model}.yaml"


def check_replaced(path: Path) -> None:
    """Raise BackendError if ``path`` is a file other than a profile, which a write would destroy."""
    check_ours(path, BackendError, "a profile", b"", b"gpu:", b"schema:")


def write(profile: Profile, path: Path) -> None:
    """Write ``profile`` atomically. Raises BackendError naming the file.

    ``schema`` comes last, so that a truncated copy is refused, at whatever byte it was cut.
    """
    content = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    filled = {key: value for key, value in content.items() if value not in ([], {}) or key == "step"}
    # At the end: reading requires it, so a file that was cut anywhere is no profile.
    filled["schema"] = filled.pop("schema")
    text = yaml.safe_dump(filled, sort_keys=False, allow_unicode=True, width=118, default_flow_style=None)
    with atomic_write(path, BackendError) as temporary:
        temporary.write_text(text, encoding="utf-8")


def find(gpu: str, folders: Iterable[Path | Traversable]) -> dict[str, Profile]:
    """Return the profiles of ``gpu`` in ``folders`` by model; those of a later folder win. Raises BackendError."""
    by_model: dict[str, Profile] = {}
    for folder in folders:
        is_shipped = folder == shipped()  # its files are named GPU_*.yaml: no need to read those of other GPUs
        profiles = within(folder, f"{gpu}_" if is_shipped else "")
        by_model |= {profile.model: profile for profile in profiles if profile.gpu == gpu}
    return by_model


def within(folder: Path | Traversable, prefix: str = "") -> list[Profile]:
    """Return the profiles in ``folder``: all YAML files whose name starts with ``prefix`` and not with a dot.

    Raises:
        BackendError: a file is not a profile, or two are of one GPU and model.
    """
    try:
        files = sorted(folder.iterdir(), key=lambda file: file.name)
    except OSError as error:
        raise BackendError(f"{folder}: cannot be read ({error.strerror}); name a folder of profiles") from None
    profiles: dict[tuple[str, str], tuple[str, Profile]] = {}
    for file in files:
        name = file.name
        if name.startswith(".") or not (name.startswith(prefix) and name.lower().endswith((".yaml", ".yml"))):
            continue
        try:
            of_file = read_models(file)
        except BackendError as error:  # perhaps a file that was never meant to be a profile
            raise BackendError(f"{error}, or take it out of backend.folder") from None
        for profile in of_file:
            key = profile.gpu, profile.model
            if key in profiles:
                said = f"{profiles[key][0]} and {name} are both profiles of {profile.model} on {profile.gpu}"
                raise BackendError(f"{folder}: {said}, expected one; take one out, or correct its gpu or model")
            profiles[key] = name, profile
    if not profiles and not prefix:
        raise BackendError(f"{folder}: found no profile (a file NAME.yaml), expected one or more; name their folder")
    return [profile for _, profile in profiles.values()]


def shipped() -> Traversable:
    """Return the folder of profiles in this package."""
    return resources.files("mezzotint.backends") / "profiles"
