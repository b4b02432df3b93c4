"""The live backend: the work of a simulated worker is really done, and its seconds become the worker's."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image
from transformers.utils import logging as transformers_log

from backends.base import (
    Asset,
    Backend,
    Cost,
    Provenance,
    RemoteControlNetCosts,
    RequestInputs,
    Work,
    WorkFailed,
    check_done,
)
from backends.diffusers_ import stages
from backends.diffusers_.addons.library import AddOns
from backends.diffusers_.addons.remote_controlnets import Parts
from backends.diffusers_.device.memory import free_memory, usable_device
from backends.diffusers_.errors import LiveError
from backends.diffusers_.model import LiveModel
from backends.diffusers_.networks.build import build
from backends.diffusers_.networks.spec import ModelSpec
from backends.diffusers_.stages import grouped
from backends.patched import Size
from backends.quality import Metric
from conf.assumption import Assumption
from conf.ranges import Count

WARM_UP_STEPS = 2


@dataclass(slots=True)
class Live(Backend):
    """Real pipelines behind the backend protocol, in virtual time.

    One device stands for a cluster of any size: when a simulated worker starts, its pipeline runs, and the elapsed
    seconds (synchronised on a GPU; processor time of this process on a CPU) become its service time. All models stay on
    the device while there is room; moving one out for another costs no virtual time, since on the cluster each would
    have a GPU. Where a worker changes models, the model is freed and loaded for real (``load``).

    Args:
        models: name, as the models group spells it, -> arguments of ModelSpec.
        device: ``cpu``, ``cuda`` or ``cuda:i``; ``auto`` takes a GPU where there is one.
        dtype: of every model that does not name its own.
        store: a folder where random weights are kept, so that loading reads a disk; null draws them anew.
        quality: compares each image that skipped steps with the one that ``reference`` would have made in full
            from the same seed. Not timed; it takes a full run.
        reference: the name of that model.
        images: a folder that every image is written to, ``<row>.png``; null keeps none.
        threads: torch's threads on a CPU; more than one is slower beside any other busy process.

    Raises:
        LiveError: no such device, or a folder that cannot be made.
    """

    models: dict[str, Annotated[dict[str, Any], ModelSpec]]
    device: str = "auto"
    dtype: str | None = None
    store: str | Path | None = None
    quality: Metric | None = None
    reference: str | None = None
    images: str | Path | None = None
    threads: Count = 1
    live: bool = field(init=False, default=True)
    by_row: bool = field(init=False, default=True)
    quality_basis: str | None = field(init=False, default=None)
    _place: torch.device = field(init=False, repr=False)
    _asked: RequestInputs = field(init=False, repr=False)
    _built: dict[str, LiveModel] = field(init=False, default_factory=dict, repr=False)
    _named: set[str] = field(init=False, default_factory=set, repr=False)
    """The models that were built so far, whether they are still there or not."""
    _beside: dict[str, AddOns] = field(init=False, default_factory=dict, repr=False)
    _warm: set[tuple[str, int, int, int]] = field(init=False, default_factory=set, repr=False)
    _warm_patched: set[tuple[str, tuple[Size, ...], int]] = field(init=False, default_factory=set, repr=False)
    _cut: dict[str, dict[int, int]] = field(init=False, default_factory=dict, repr=False)
    _parts: dict[int, RemoteControlNetCosts] = field(init=False, default_factory=dict, repr=False)
    """By row: of the last step that it made with ControlNets apart."""

    def __post_init__(self) -> None:
        transformers_log.set_verbosity_error()  # every prompt of over 77 tokens would be announced
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._place = usable_device(device)
        if self._place.type == "cpu":
            torch.set_num_threads(self.threads)
        if (self.quality is None) != (self.reference is None):
            raise LiveError("backend.quality and backend.reference belong together; set both or neither")
        if self.quality is not None and self.quality.name == "psnr":
            raise LiveError("backend.quality: PSNR is in decibels and no factor; use Ssim, MsSsim or ClipScore")
        if self.quality is not None:
            self.quality_basis = f"{self.quality.name} against the full run of {self.reference}, same seed"
        for folder in (self.store, self.images):
            try:
                if folder is not None:
                    Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LiveError(f"{folder}: cannot be made a folder ({error.strerror}); name another") from None

    @property
    def place(self) -> str:
        """The device, as torch spells it."""
        return str(self._place)

    def open(self, asked: RequestInputs) -> None:
        self._asked = asked

    def require(self, model: str) -> None:
        """The model is built here, so that what cannot be is known before the run."""
        self.model(model)

    def begin(self, works: Sequence[Work]) -> Cost:
        """Prompts of one model are one batch, and so are artifacts of one size."""
        with self._room_for(works):
            parts = self._by_model(works)
            return Cost(sum(stages.begin(model, beside, those, self._asked) for model, beside, those in parts))

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """Works alike in model, size and add-ons are one real batch, wherever each of them stands; others take turns,
        as images of different sizes share no tensor and a LoRA is in the weights for all."""
        if count == 0:
            return Cost(0.0)
        with self._room_for(works):
            parts = self._by_model(works)
            cost = Cost(sum(stages.steps(model, beside, those, count) for model, beside, those in parts))
        for work in works:
            if work.remote_controlnets:
                self._parts[work.row] = _mean(work.state.parts)
        return cost

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """All works are one real pass, whatever their sizes and wherever each of them stands: pixel-wise operators and
        convolutions over all patches, attention over the images of a size. Of sd15 and sdxl, without add-ons."""
        names = sorted({work.model for work in works})
        if len(names) > 1:
            raise LiveError(f"patches of {', '.join(names)}: a batch has one model; give each workers of its own")
        with self._room_for(works):
            model = self.model(names[0])
            self._warm_up_patched(names[0], works, side)
            return Cost(sum(stages.patched(model, works, side) for _ in range(count)))

    def end(self, works: Sequence[Work]) -> Cost:
        """Sets ``made`` and, of what skipped steps, ``quality`` where that is measured."""
        check_done(works)
        with self._room_for(works):
            seconds = 0.0
            for model, _, those in self._by_model(works):
                images, took_s = stages.end(model, those)
                seconds += took_s
                for work, image in zip(those, images, strict=True):
                    self._parts.pop(work.row, None)
                    self._keep(work, image)
            return Cost(seconds)

    def load(self, asset: Asset) -> Cost:
        """What is there is freed and loaded again, and that is timed."""
        if asset.kind == "controlnet":
            return Cost(self.add_ons(asset.model).load_controlnet(asset.name))
        if asset.kind == "lora":
            return Cost(self.add_ons(asset.model).load_lora(asset.name))
        self._built.pop(asset.model, None)
        self._beside.pop(asset.model, None)
        free_memory(self._place)
        return Cost(self.model(asset.model).load_s)

    def read_lora(self, lora: Asset) -> Cost:
        return Cost(self.add_ons(lora.model).read_lora(lora.name))

    def create_lora(self, lora: Asset, beside: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(lora.model).create_lora(lora.name, [each.name for each in beside]))

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        """Every LoRA is timed."""
        return ()

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(loras[0].model).merge([lora.name for lora in loras]))

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(loras[0].model).restore([lora.name for lora in loras]))

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        """Raises LiveError for several GPUs, and for a work that made no step yet."""
        if gpus > 1:
            raise LiveError(f"one device steps the denoiser here, and {gpus} GPUs are asked for; add denoisers=1")
        if work.row not in self._parts:
            raise LiveError(f"row {work.row}: asked what a step takes that was not made; choose another discipline")
        return self._parts[work.row]

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        """Raises LiveError: kernels are torch's own."""
        raise LiveError(f"kernels: {', '.join(kernels)} are not made live, {model} runs torch's own; add ~kernels")

    def bytes(self, asset: Asset) -> int | None:
        if asset.kind == "controlnet":
            return self.add_ons(asset.model).controlnet(asset.name).nbytes
        if asset.kind == "lora":
            return self.add_ons(asset.model).lora_bytes(asset.name)
        return self.model(asset.model).nbytes

    def names(self) -> list[str]:
        """The models that it was asked for so far, those too that served nothing."""
        return sorted(self._named)

    def largest_batch(self, model: str) -> int:
        """Most works of one size that ``model`` was given together so far."""
        return max((batch for name, _, _, batch in self._warm if name == model), default=1)

    def largest_cut(self, model: str) -> dict[int, int]:
        """Side of a patch in pixels -> most works of ``model`` that were cut into such and stepped together so far."""
        return dict(self._cut.get(model, {}))

    def provenance(self, model: str) -> Provenance:
        return Provenance("live", self._spec(model).dtype, None, f"measured on {self._device()}")

    def _device(self) -> str:
        """The device in words."""
        if self._place.type == "cuda":
            return str(torch.cuda.get_device_name(self._place))
        return f"CPU, {self.threads} thread(s), processor time"

    def assumptions(self) -> list[Assumption]:
        said = [Assumption("service times", f"measured on {self._device()}", "live backend, virtual time")]
        random = "latency does not depend on weight values; images from random weights mean nothing"
        for name, model in sorted(self._built.items()):
            source = random if self._spec(name).weights == "random" else "read"
            said.append(Assumption(f"weights of {name}", model.spec.weights, source))
        if any(beside.used for beside in self._beside.values()):
            source = "traces name add-ons and do not bring them"
            said.append(Assumption("ControlNets and LoRAs", "random weights", source))
        return said

    @contextmanager
    def _room_for(self, works: Sequence[Work]) -> Iterator[None]:
        """Memory that runs out is the end of ``works`` and of nothing else."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as full:
            for work in works:
                work.state = None
            free_memory(self._place)
            raise WorkFailed(f"{self._place} ran out of memory: {full}") from None

    def _by_model(self, works: Sequence[Work]) -> Iterator[tuple[LiveModel, AddOns, list[Work]]]:
        """The works of each model, with the model and what stands beside it, warm."""
        for name, those in grouped(works, lambda work: work.model).items():
            for (width, height), alike in grouped(those, lambda work: (work.width, work.height)).items():
                self._warm_up(name, width, height, len(alike))
            yield self.model(name), self.add_ons(name), those

    def _keep(self, work: Work, image: np.ndarray) -> None:
        if self.images is not None and work.row >= 0:
            Image.fromarray(image).save(Path(self.images) / f"{work.row}.png")
        # Where two names stand for one step, as in a model of few, the last has it.
        names = {step: name for name, step in (work.capture or {}).items()}
        kept = {name: work.state.kept[step] for step, name in names.items()}
        work.made = image if work.capture is None else kept
        work.state = None
        work.quality = self._quality(work, image) if work.skipped else None

    def _quality(self, work: Work, image: np.ndarray) -> float | None:
        if self.quality is None or self.reference is None:
            return None
        full = [Work(self.reference, work.width, work.height, work.steps, row=work.row)]
        model, beside = self.model(self.reference), self.add_ons(self.reference)
        stages.begin(model, beside, full, self._asked)
        stages.steps(model, beside, full, work.steps)
        wanted = stages.end(model, full)[0][0][None]
        made, prompts = image[None], [self._asked.prompt(work.row)]
        if self.quality.full_reference:
            return float(self.quality.score(made, references=wanted)[0])
        return float(self.quality.score(made, prompts=prompts)[0] / self.quality.score(wanted, prompts=prompts)[0])

    def _warm_up(self, name: str, width: int, height: int, batch: int) -> None:
        """The first run of a shape compiles and allocates; a server has long done that."""
        key = (name, width, height, batch)
        if key in self._warm:
            return
        self._warm.add(key)
        model = self.model(name)
        conditioning = model.encode([""] * batch)
        noise = model.noise(width, height, [0] * batch, WARM_UP_STEPS)
        latents = model.denoise(conditioning, noise, WARM_UP_STEPS).latents
        model.encode_images(list(model.decode(latents)[0]), width, height)

    def _warm_up_patched(self, name: str, works: Sequence[Work], side: int) -> None:
        sizes = tuple(sorted((work.width, work.height) for work in works))
        most = self._cut.setdefault(name, {})
        most[side] = max(most.get(side, 0), len(works))
        if (name, sizes, side) in self._warm_patched:
            return
        self._warm_patched.add((name, sizes, side))
        model = self.model(name)
        tried = [Work(name, width, height, WARM_UP_STEPS) for width, height in sizes]
        conditioning = model.encode([""])
        for work in tried:
            noise = model.noise(work.width, work.height, [0], WARM_UP_STEPS)
            work.state = stages.InFlight(conditioning, noise)
        stages.patched(model, tried, side)

    def add_ons(self, model: str) -> AddOns:
        """Return what stood beside ``model`` so far."""
        if model not in self._beside:
            self._beside[model] = AddOns(self.model(model), None if self.store is None else Path(self.store) / model)
        return self._beside[model]

    def _spec(self, name: str) -> ModelSpec:
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise LiveError(f"backend.models: no live model is called {name}; it knows {known}")
        arguments = dict(self.models[name])
        if self.dtype is not None:
            arguments.setdefault("dtype", self.dtype)
        try:
            spec = ModelSpec(**arguments)
        except TypeError as error:
            raise LiveError(f"backend.models.{name}: {error}; it takes the settings of ModelSpec") from None
        spec.torch_dtype  # noqa: B018 - refuses an unknown dtype now
        return spec

    def model(self, name: str) -> LiveModel:
        """Return the model called ``name``, built if it is not there. Raises LiveError where it cannot be."""
        if name in self._built:
            return self._built[name]
        spec = self._stored(name, self._spec(name))
        try:
            built = build(spec, self._place)
        except LiveError:
            if not self._built:
                raise
            # Room for both there is not: on the cluster each has a GPU of its own, here they take turns.
            self._built.clear()
            self._beside.clear()
            self._warm.clear()
            free_memory(self._place)
            built = build(spec, self._place)
        self._built[name] = built
        self._named.add(name)
        return built

    def _stored(self, name: str, spec: ModelSpec) -> ModelSpec:
        if self.store is None or spec.weights != "random":
            return spec
        folder = Path(self.store) / name
        if not (folder / "model_index.json").is_file():
            build(spec, self._place).save(folder)
            free_memory(self._place)
        return replace(spec, weights=str(folder))


def _mean(parts: Parts) -> RemoteControlNetCosts:
    """Parts of a step as the simulator has them: of one ControlNet, the mean."""
    nets = len(parts.controlnet_s)
    return RemoteControlNetCosts(parts.encoder_s, sum(parts.controlnet_s) / nets, parts.receive_s / nets)
