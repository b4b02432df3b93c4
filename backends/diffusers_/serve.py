"""The live backend: run the work of simulated workers on the device at hand and take its seconds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image
from transformers.utils import logging as transformers_log

from mezzotint.backends.base import (
    Asset,
    Backend,
    BackendError,
    Cost,
    Provenance,
    RemoteControlNetCosts,
    RequestInputs,
    Work,
    WorkFailed,
    check_done,
    size_text,
)
from mezzotint.backends.diffusers_ import stages
from mezzotint.backends.diffusers_.addons.controlnet import StepParts
from mezzotint.backends.diffusers_.addons.library import AddOns
from mezzotint.backends.diffusers_.device import free_memory, usable_device
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import ModelSpec
from mezzotint.backends.diffusers_.networks.build import build
from mezzotint.backends.diffusers_.stages import group_works
from mezzotint.backends.patched import Size
from mezzotint.backends.quality import Metric
from mezzotint.files.names import inside
from mezzotint.settings.assumption import Assumption
from mezzotint.settings.ranges import Count

WARM_UP_STEPS = 2


@dataclass(slots=True)
class Live(Backend):
    """Real pipelines behind the backend protocol, in virtual time.

    One device stands for a cluster of any size. When a simulated worker starts, its pipeline runs, and the elapsed
    seconds become its service time: synchronised on a GPU, processor time of this process on a CPU. Models stay on the
    device while memory allows. Evicting one costs no virtual time, since on the cluster each has its own GPU. A worker
    that changes models frees and loads the model for real (``load``).

    Args:
        models: name in ``models=`` -> arguments of ModelSpec.
        device: ``cpu``, ``cuda`` or ``cuda:i``; ``auto`` takes a GPU where there is one.
        dtype: of every model that does not name its own.
        store: a folder for random weights, so that loading reads a disk; null draws them anew.
        quality: the metric that compares an image with skipped steps to the full run of ``reference`` from the same
            seed. The full run is not timed.
        reference: the name of that model.
        images: a folder for all images, ``<row>.png``; null keeps none.
        threads: torch's threads on a CPU; more than one is slower beside any other busy process.

    Raises:
        BackendError: there is no such device, or a folder cannot be made.
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
    """Models built so far, evicted ones included."""
    _addons_of: dict[str, AddOns] = field(init=False, default_factory=dict, repr=False)
    _warm: set[tuple[str, int, int, int]] = field(init=False, default_factory=set, repr=False)
    _warm_patched: set[tuple[str, tuple[Size, ...], int]] = field(init=False, default_factory=set, repr=False)
    _largest_cut: dict[str, dict[int, int]] = field(init=False, default_factory=dict, repr=False)
    _parts: dict[int, RemoteControlNetCosts] = field(init=False, default_factory=dict, repr=False)
    """Row -> parts of its last step with remote ControlNets."""

    def __post_init__(self) -> None:
        transformers_log.set_verbosity_error()  # every prompt of over 77 tokens would be announced
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._place = usable_device(device)
        if self._place.type == "cpu":
            torch.set_num_threads(self.threads)
        if (self.quality is None) != (self.reference is None):
            raise BackendError("backend.quality and backend.reference belong together; set both or neither")
        if self.quality is not None and self.quality.name == "psnr":
            raise BackendError("backend.quality: PSNR is in decibels and no factor; use Ssim, MsSsim or ClipScore")
        if self.quality is not None:
            self.quality_basis = f"{self.quality.name} against the full run of {self.reference}, same seed"
        for folder in (self.store, self.images):
            try:
                if folder is not None:
                    Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BackendError(f"{folder}: cannot be made a folder ({error.strerror}); name another") from None

    @property
    def place(self) -> str:
        """Name of the device in torch."""
        return str(self._place)

    def open(self, asked: RequestInputs) -> None:
        self._asked = asked

    def require(self, model: str) -> None:
        """Build ``model``, so that errors come before the run."""
        self.model(model)

    def begin(self, works: Sequence[Work]) -> Cost:
        """Encode one batch of prompts per model, and one of artifacts per size. Raises BackendError for a video."""
        for work in works:
            if work.frames > 1:
                size = size_text(work.width, work.height, work.frames)
                raise BackendError(
                    f"row {work.row} asks {work.model} for a video, {size}, and live pipelines make images; take a "
                    "trace without frames, or add backend=profiled"
                )
        with self._failing_alone(works):
            parts = self._by_model(works)
            return Cost(sum(stages.begin(model, beside, those, self._asked) for model, beside, those in parts))

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        """Run works of one model, size and set of add-ons as one real batch, whatever their steps.

        Other works take turns: images of different sizes share no tensor, and a LoRA in the weights affects all.
        """
        if count == 0:
            return Cost(0.0)
        with self._failing_alone(works):
            parts = self._by_model(works)
            cost = Cost(sum(stages.steps(model, beside, those, count) for model, beside, those in parts))
        for work in works:
            if work.remote_controlnets:
                self._parts[work.row] = _mean(work.state.parts)
        return cost

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        """Run all works in one real pass, whatever their sizes and steps; sd15 and sdxl only, without add-ons.

        Pixel-wise operators and convolutions run over all patches, attention over the images of one size.
        """
        names = sorted({work.model for work in works})
        if len(names) > 1:
            raise BackendError(f"patches of {', '.join(names)}: a batch has one model; give each workers of its own")
        with self._failing_alone(works):
            model = self.model(names[0])
            self._warm_up_patched(names[0], works, side)
            return Cost(sum(stages.run_patched_step(model, works, side) for _ in range(count)))

    def end(self, works: Sequence[Work]) -> Cost:
        """Decode, and set ``made`` and, for works with skipped steps, ``quality`` if it is measured."""
        check_done(works)
        with self._failing_alone(works):
            seconds = 0.0
            for model, _, those in self._by_model(works):
                images, took_s = stages.end(model, those)
                seconds += took_s
                for work, image in zip(those, images, strict=True):
                    self._keep(work, image)
            return Cost(seconds)

    def load(self, asset: Asset) -> Cost:
        """Free ``asset`` if it is there, and time loading it."""
        if asset.kind == "controlnet":
            return Cost(self.add_ons(asset.model).load_controlnet(asset.name))
        if asset.kind == "lora":
            return Cost(self.add_ons(asset.model).load_lora(asset.name))
        self._built.pop(asset.model, None)
        self._addons_of.pop(asset.model, None)
        free_memory(self._place)
        return Cost(self.model(asset.model).load_s)

    def read_lora(self, lora: Asset) -> Cost:
        return Cost(self.add_ons(lora.model).read_lora(lora.name))

    def create_lora(self, lora: Asset, beside: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(lora.model).create_lora(lora.name, [other.name for other in beside]))

    def lora_spread(self, lora: Asset) -> Sequence[float]:
        return ()  # every LoRA is timed

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(loras[0].model).merge([lora.name for lora in loras]))

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        return Cost(self.add_ons(loras[0].model).restore([lora.name for lora in loras]))

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        """Raises BackendError for several GPUs, and for a work that ran no step yet."""
        if gpus > 1:
            raise BackendError(
                f"one device steps the denoiser here, and {gpus} GPUs are asked for; add group_policy.degree=1"
            )
        if work.row not in self._parts:
            raise BackendError(f"row {work.row}: asked what a step takes that was not made; choose another discipline")
        return self._parts[work.row]

    def faster(self, model: str, kernels: Sequence[str]) -> float:
        """Raises BackendError: kernels are torch's own."""
        raise BackendError(f"kernels: {', '.join(kernels)} are not made live, {model} runs torch's own; add ~kernels")

    def bytes(self, asset: Asset) -> int | None:
        if asset.kind == "controlnet":
            return self.add_ons(asset.model).controlnet(asset.name).nbytes
        if asset.kind == "lora":
            return self.add_ons(asset.model).lora_bytes(asset.name)
        return self.model(asset.model).nbytes

    def names(self) -> list[str]:
        """Return the models requested so far, also those that served nothing."""
        return sorted(self._named)

    def largest_batch(self, model: str) -> int:
        """Return the largest batch of one size that ``model`` ran so far."""
        return max((batch for name, _, _, batch in self._warm if name == model), default=1)

    def largest_cut(self, model: str) -> dict[int, int]:
        """Return side of a patch in pixels -> largest batch of such patches that ``model`` ran so far, in images."""
        return dict(self._largest_cut.get(model, {}))

    def provenance(self, model: str) -> Provenance:
        return Provenance("live", self._spec(model).dtype, None, f"measured on {self._device()}")

    def _device(self) -> str:
        """Return the device in words."""
        if self._place.type == "cuda":
            return str(torch.cuda.get_device_name(self._place))
        return f"CPU, {self.threads} thread(s), processor time"

    def assumptions(self) -> list[Assumption]:
        said = [Assumption("service times", f"measured on {self._device()}", "live backend, virtual time")]
        random = "latency does not depend on weight values; images from random weights mean nothing"
        for name, model in sorted(self._built.items()):
            source = random if self._spec(name).weights == "random" else "read"
            said.append(Assumption(f"weights of {name}", model.spec.weights, source))
        if any(beside.used for beside in self._addons_of.values()):
            source = "traces name add-ons and do not bring them"
            said.append(Assumption("ControlNets and LoRAs", "random weights", source))
        return said

    @contextmanager
    def _failing_alone(self, works: Sequence[Work]) -> Iterator[None]:
        """Raise WorkFailed for ``works`` if memory runs out, and free it for others."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as full:
            for work in works:
                work.state = None
            free_memory(self._place)
            raise WorkFailed(f"{self._place} ran out of memory: {full}") from None

    def _by_model(self, works: Sequence[Work]) -> Iterator[tuple[LiveModel, AddOns, list[Work]]]:
        """Yield the works of each model with the model, warmed up, and its add-ons."""
        for name, those in group_works(works, lambda work: work.model).items():
            for (width, height), alike in group_works(those, lambda work: (work.width, work.height)).items():
                self._warm_up(name, width, height, len(alike))
            yield self.model(name), self.add_ons(name), those

    def _keep(self, work: Work, image: np.ndarray) -> None:
        if self.images is not None and work.row >= 0:
            Image.fromarray(image).save(Path(self.images) / f"{work.row}.png")
        # Two names may share a step in a model of few steps: the last wins.
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
        """Run a shape untimed once: its first run compiles and allocates, which a server did long ago."""
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
        largest = self._largest_cut.setdefault(name, {})
        largest[side] = max(largest.get(side, 0), len(works))
        if (name, sizes, side) in self._warm_patched:
            return
        self._warm_patched.add((name, sizes, side))
        model = self.model(name)
        stages.run_patched_step(model, stages.in_flight(model, sizes, WARM_UP_STEPS), side)

    def add_ons(self, model: str) -> AddOns:
        """Return the add-ons of ``model``."""
        if model not in self._addons_of:
            self._addons_of[model] = AddOns(self.model(model), None if self.store is None else Path(self.store) / model)
        return self._addons_of[model]

    def _spec(self, name: str) -> ModelSpec:
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise BackendError(f"backend.models: no live model is called {name}; it knows {known}")
        arguments = dict(self.models[name])
        if self.dtype is not None:
            arguments.setdefault("dtype", self.dtype)
        try:
            spec = ModelSpec(**arguments)
        except TypeError as error:
            raise BackendError(f"backend.models.{name}: {error}; it takes the settings of ModelSpec") from None
        spec.torch_dtype  # noqa: B018 - refuses an unknown dtype now
        return spec

    def model(self, name: str) -> LiveModel:
        """Return the model called ``name``, built if needed. Raises BackendError if it cannot be built."""
        if name in self._built:
            return self._built[name]
        spec = self._stored(name, self._spec(name))
        try:
            built = build(spec, self._place)
        except BackendError:
            if not self._built:
                raise
            # On the cluster each model has its own GPU; on one device they take turns.
            self._built.clear()
            self._addons_of.clear()
            self._warm.clear()
            free_memory(self._place)
            built = build(spec, self._place)
        self._built[name] = built
        self._named.add(name)
        return built

    def _stored(self, name: str, spec: ModelSpec) -> ModelSpec:
        if self.store is None or spec.weights != "random":
            return spec
        folder = inside(Path(self.store), name, BackendError)
        if not (folder / "model_index.json").is_file():
            build(spec, self._place).save(folder)
            free_memory(self._place)
        return replace(spec, weights=str(folder))


def _mean(parts: StepParts) -> RemoteControlNetCosts:
    """Return the parts of a step with the mean over its ControlNets."""
    nets = len(parts.controlnet_s)
    return RemoteControlNetCosts(parts.encoder_s, sum(parts.controlnet_s) / nets, parts.receive_s / nets)
