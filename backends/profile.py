"""A profile: what was measured for one model on one GPU, read from and written to a YAML file."""

import re
from collections.abc import Iterable
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from backends.base import BackendError
from backends.patched import MAX_S, PatchTiming
from backends.scatter import Scatter
from backends.table import Table
from conf.atomic import atomic_write, check_ours
from conf.document import DocumentError, parse
from conf.validation import first_error

Seconds = Annotated[float, Field(gt=0, le=MAX_S)]
Count = Annotated[int, Field(gt=0, lt=2**53)]
Quantity = Annotated[float, Field(gt=0, le=1e12)]
Key = TypeVar("Key", int, str, tuple[str, int])


class Strict(BaseModel):
    """What a profile is made of, exactly: true is not 1, "64" is not 64, and no key is passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, ignored_types=(cached_property,))


class Timing(Strict):
    """Median seconds of one operation on a batch; ``spread_s`` is the interquartile range, if known.

    ``source`` is set where the point has another source than its profile.
    """

    batch: Count = 1
    seconds: Seconds
    spread_s: Annotated[float, Field(ge=0, le=MAX_S)] | None = None
    source: str | None = None

    @property
    def pixels(self) -> int:
        """Pixels per image: 1 for an operation whose time does not depend on the size (text encoding)."""
        return 1


class Point(Timing):
    """A timing at one image size, in pixels."""

    width: Count
    height: Count

    @property
    def pixels(self) -> int:
        return self.width * self.height


class ControlPoint(Point):
    """What ``nets`` ControlNets run in line, one after another, add to one step: extra seconds per step."""

    nets: Count


class GroupPoint(Point):
    """One step on ``gpus`` GPUs at once, by whatever parallelism the source says."""

    gpus: Annotated[int, Field(ge=2)]


class RemoteControlNetPoint(Strict):
    """One step whose ControlNets run beside the denoiser, on GPUs of their own, at batch 1 and with plain kernels.

    ``gpus`` share the denoiser's step. ``encoder_s`` is its encoder and middle block, ``controlnet_s`` one ControlNet,
    ``receive_s`` what taking in one ControlNet's residuals adds.
    """

    gpus: Count
    width: Count
    height: Count
    encoder_s: Seconds
    controlnet_s: Seconds
    receive_s: Seconds


class LoraTiming(Strict):
    """What one LoRA of the denoiser costs, seconds of each operation.

    ``bytes`` is its file; reading, attaching and copying grow with it, patching and unfusing do not. ``read_s`` is from
    the disk (or the system's file cache) to host memory, ``attach_s`` from there into the denoiser as side branches,
    ``fuse_s`` and ``unfuse_s`` into the weights and out again (all LoRAs at once), ``patch_s`` attaching and fusing in
    one go, as between two steps of a run; ``copy_s`` is extra where a LoRA comes from another process. ``merge_s`` is
    adding it to the weights in place, without any layer created (SwiftDiffusion, section 4.2), and ``restore_s``
    copying the kept weights back; ``patch_s`` and ``unfuse_s`` stand for them where not measured. ``spread`` is
    quantiles, over the mean, of reading, attaching and fusing together, at equal steps of probability from 0 to 1.
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
    """One ControlNet as it is put on the device: ``bytes`` of its weights, ``load_s`` from its files."""

    bytes: Count
    load_s: Seconds


class MemoryPoint(Strict):
    """Most bytes allocated on the device while an operation ran on a batch, the weights included."""

    operation: Literal["step", "vae_encode", "vae_decode", "controlnet_step"] = "step"
    nets: Annotated[int, Field(ge=0)] = 0
    width: Count
    height: Count
    batch: Count
    bytes: Count


class EnergyPoint(Strict):
    """Joules that the whole device drew per denoising step of a batch."""

    width: Count
    height: Count
    batch: Count
    joules: Quantity


class Profile(Strict):
    """Everything measured for ``model`` on ``gpu``.

    ``step`` is the time of one denoising step of a batch (both halves of classifier-free guidance included);
    ``vae_encode`` and ``vae_decode`` are per batch too, the latter with post-processing. ``load_s`` is the
    time to put the model on the GPU, null where nobody published it, and ``weights_bytes`` what it takes there;
    ``power_w`` is the device's draw while it denoises; ``scatter`` how single requests deviate from all of these.
    ``gang_step`` is a step on several GPUs at once, ``patched`` one of images that are cut into patches, ``apart`` one
    whose ControlNets run on other GPUs, ``kernels`` how many times faster each makes a step. ``source`` says who
    measured it, ``validation`` how far runs that were replayed with it are from what was measured, where somebody
    looked. Of a profile without steps, say of a VAE alone, nothing can be served.

    ``basis`` states how the seconds are known: measured or fitted with this project, or from a raw log that the source
    names; published by others who measured them; scaled from a measurement of another GPU or model; or assumed.
    ``dtype`` is the precision, of the denoiser where components differ.
    ``service_error`` is the known relative error of the service times, |true / profile - 1|, with its source in
    ``validation``. Both are null where nobody knows.
    """

    schema_: Annotated[int, Field(ge=1, le=1)] = Field(alias="schema")
    model: str
    gpu: str
    source: str
    basis: Literal["measured", "published", "scaled", "assumed"] | None = None
    service_error: Annotated[float, Field(ge=0, le=10)] | None = None
    device: str | None = None
    date: str | None = None
    dtype: str | None = None
    versions: dict[str, str] = {}
    notes: str | None = None
    validation: str | None = None
    step: list[Point]
    gang_step: list[GroupPoint] = []
    text_encode: list[Timing] = []
    vae_encode: list[Point] = []
    vae_decode: list[Point] = []
    controlnet_step: list[ControlPoint] = []
    apart: list[RemoteControlNetPoint] = []
    kernels: dict[str, Quantity] = {}
    controlnet: ControlNetLoad | None = None
    lora: LoraTiming | None = None
    memory: list[MemoryPoint] = []
    energy: list[EnergyPoint] = []
    load_s: Seconds | None = None
    weights_bytes: Count | None = None
    power_w: Quantity | None = None
    scatter: Scatter | None = None
    patched: PatchTiming | None = None

    @cached_property
    def group_tables(self) -> dict[int, Table]:
        """Seconds of a step by number of GPUs, each a Table; empty if not measured."""
        return _tables((at.gpus, at.pixels, at.batch, at.seconds) for at in self.gang_step)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The operations by name, each a Table; an operation that was not measured is absent."""
        names = ("step", "text_encode", "vae_encode", "vae_decode")
        return _tables((name, at.pixels, at.batch, at.seconds) for name in names for at in getattr(self, name))

    @cached_property
    def controlnet_tables(self) -> dict[int, Table]:
        """Extra seconds per step by number of ControlNets in line, each a Table; empty if not measured."""
        return _tables((at.nets, at.pixels, at.batch, at.seconds) for at in self.controlnet_step)

    @cached_property
    def peak_tables(self) -> dict[tuple[str, int], Table]:
        """Most bytes allocated besides the model's weights, by operation and number of ControlNets in line.

        The weights are apart (0 bytes of them where nobody said), so that only what grows with the size and the
        batch is scaled outside the grid.
        """
        weights = self.weights_bytes or 0
        return _tables(
            ((str(at.operation), at.nets), at.width * at.height, at.batch, at.bytes - weights) for at in self.memory
        )

    @cached_property
    def energy_table(self) -> Table | None:
        """Joules per denoising step of a batch; None if not measured."""
        return Table((at.width * at.height, at.batch, at.joules) for at in self.energy) if self.energy else None


def _tables(points: Iterable[tuple[Key, int, int, float]]) -> dict[Key, Table]:
    """Make a Table of the (pixels, batch, value) of each key, the keys in order."""
    found: dict[Key, list[tuple[int, int, float]]] = {}
    for key, pixels, batch, value in points:
        found.setdefault(key, []).append((pixels, batch, value))
    return {key: Table(found[key]) for key in sorted(found)}


def read(path: Path | Traversable) -> Profile:
    """Read and check one profile file. Raises BackendError naming the file and the key that is wrong."""
    try:
        content = parse(path.read_bytes())
    except (OSError, DocumentError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BackendError(f"{path}: cannot be read as a profile ({reason}); restore or re-measure it") from None
    if not isinstance(content, dict):
        said = f"{path}: expected a profile (a mapping with schema: 1), found {shortened(content)}"
        raise BackendError(f"{said}; restore or re-measure it")
    try:
        profile = Profile.model_validate(content)
    except ValidationError as error:
        raise BackendError(f"{path}: {first_error(error)}; correct or re-measure it") from None
    if not profile.tables:
        raise BackendError(f"{path}: step: found no point, expected times of a step or another stage; re-measure it")
    return profile


def file_name(gpu: str, model: str) -> str:
    """Return the name of a profile's file. Raises BackendError for a GPU or a model that it cannot hold: the GPU's name
    ends at the first underscore."""
    for name in (gpu, model):
        if "_" in gpu or not re.fullmatch(r"\w[\w.-]*", name):
            raise BackendError(f"{name!r} cannot name a profile file, GPU_MODEL.yaml; use letters, digits, '.' and '-'")
    return f"{gpu}_{model}.yaml"


def check_replaced(path: Path) -> None:
    """Raise BackendError where ``path`` is a file other than a profile, which writing one would destroy."""
    check_ours(path, BackendError, "a profile", b"", b"gpu:", b"schema:")


def write(profile: Profile, path: Path) -> None:
    """Write ``profile``, whole or not at all. ``schema`` closes the file, so that a copy of it that was cut short, at
    whatever byte, is refused. Raises BackendError naming the file when it cannot be written."""
    content = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    told = {key: value for key, value in content.items() if value not in ([], {}) or key == "step"}
    told["schema"] = told.pop("schema")
    text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=118, default_flow_style=None)
    with atomic_write(path, BackendError) as temporary:
        temporary.write_text(text, encoding="utf-8")


def find(gpu: str, folders: Iterable[Path | Traversable]) -> dict[str, Profile]:
    """Return every profile of ``gpu`` in ``folders``, by model; a later folder replaces an earlier one's. Raises
    BackendError as ``within``."""
    found: dict[str, Profile] = {}
    for folder in folders:
        ours = folder == shipped()  # whose files are named GPU_MODEL.yaml, so that those of others need not be read
        profiles = within(folder, f"{gpu}_" if ours else "")
        found |= {profile.model: profile for profile in profiles if profile.gpu == gpu}
    return found


def within(folder: Path | Traversable, beginning: str = "") -> list[Profile]:
    """Return the profiles in ``folder``: every YAML file there that is not hidden and whose name has ``beginning``.

    Raises BackendError when one of them cannot be read as a profile, or two are of one GPU and model.
    """
    try:
        files = sorted(folder.iterdir(), key=lambda each: each.name)
    except OSError as error:
        raise BackendError(f"{folder}: cannot be read ({error.strerror}); name a folder of profiles") from None
    found: dict[tuple[str, str], tuple[str, Profile]] = {}
    for file in files:
        if (
            file.name.startswith(".")
            or not file.name.startswith(beginning)
            or not file.name.lower().endswith((".yaml", ".yml"))
        ):
            continue
        try:
            profile = read(file)
        except BackendError as error:  # a file that was never meant to be one is read all the same
            raise BackendError(f"{error}, or take it out of backend.folder") from None
        key = profile.gpu, profile.model
        if key in found:
            said = f"{found[key][0]} and {file.name} are both profiles of {profile.model} on {profile.gpu}"
            raise BackendError(f"{folder}: {said}, expected one; take one out, or correct its gpu or model")
        found[key] = file.name, profile
    return [profile for _, profile in found.values()]


def shipped() -> Traversable:
    """The folder of profiles that travel with the package."""
    return resources.files("backends") / "profiles"
