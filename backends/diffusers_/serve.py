"""The live backend: the work of a simulated worker is really done, and its seconds become the worker's."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.utils import logging as transformers_log

from backends.base import Asked, BackendError, Cost, Work, WorkFailed
from backends.diffusers_.build import build
from backends.diffusers_.errors import LiveError
from backends.diffusers_.memory import usable_device
from backends.diffusers_.model import LiveModel
from backends.diffusers_.spec import ModelSpec
from backends.quality import Metric
from conf.assumption import Assumption

WARM_UP_STEPS = 2


@dataclass(slots=True)
class Live:
    """Real pipelines behind the backend protocol, in virtual time.

    One device stands for a cluster of any size: when a simulated worker starts, its pipeline runs, the elapsed
    seconds (synchronised on a GPU) become its service time, and the clock of the simulation goes on from there.
    All models of the run stay on the device while there is room; moving one out for another in between costs no
    virtual time, since on the cluster each would have a GPU. A worker that changes models is another matter: then
    the model is freed and loaded for real (``load_s``).

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

    models: dict[str, dict[str, Any]]
    device: str = "auto"
    dtype: str | None = None
    store: str | None = None
    quality: Metric | None = None
    reference: str | None = None
    images: str | None = None
    threads: int = 1
    live: bool = field(init=False, default=True)
    quality_basis: str | None = field(init=False, default=None)
    _place: torch.device = field(init=False, repr=False)
    _asked: Asked = field(init=False, repr=False)
    _built: dict[str, LiveModel] = field(init=False, default_factory=dict, repr=False)
    _warm: set[tuple[str, int, int]] = field(init=False, default_factory=set, repr=False)

    def __post_init__(self) -> None:
        transformers_log.set_verbosity_error()  # every prompt of over 77 tokens would be announced
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._place = usable_device(device)
        if self.threads < 1:
            raise LiveError(f"backend.threads: found {self.threads}, expected 1 or more")
        if self._place.type == "cpu":
            torch.set_num_threads(self.threads)
        if (self.quality is None) != (self.reference is None):
            raise LiveError("backend.quality and backend.reference belong together; set both or neither")
        if self.quality is not None and self.quality.name == "psnr":
            raise LiveError("backend.quality: PSNR is in decibels and no factor; use Ssim, MsSsim or ClipScore")
        if self.quality is not None:
            self.quality_basis = f"{self.quality.name} against the full run of {self.reference}, same seed"
        for folder in (self.store, self.images):
            if folder is not None:
                _make(Path(folder))

    @property
    def place(self) -> str:
        """The device, as torch spells it."""
        return str(self._place)

    def open(self, asked: Asked) -> None:
        """See Backend.open."""
        self._asked = asked

    def require(self, model: str) -> None:
        """See Backend.require. The model is built here, so that what cannot be is known before the run."""
        self.model(model)

    def whole(self, work: Work) -> Cost:
        """See Backend.whole. Raises WorkFailed when the device runs out of memory."""
        try:
            return self._whole(work)
        except torch.cuda.OutOfMemoryError as full:
            self._collect()
            raise WorkFailed(f"{self._place} ran out of memory: {full}") from None

    def load_s(self, model: str) -> float:
        """See Backend.load_s: free the model, load it again, and say how long that took."""
        self._built.pop(model, None)
        self._collect()
        return self.model(model).load_s

    def assumptions(self) -> list[Assumption]:
        """See Backend.assumptions."""
        gpu = self._place.type == "cuda"
        device = torch.cuda.get_device_name(self._place) if gpu else f"CPU, {self.threads} thread(s)"
        said = [Assumption("service times", f"measured on {device}", "live backend, virtual time")]
        said += [
            Assumption(
                f"weights of {name}",
                "random" if model.spec.weights == "random" else model.spec.weights,
                "latency does not depend on weight values; images from random weights mean nothing"
                if self._spec(name).weights == "random"
                else "read",
            )
            for name, model in sorted(self._built.items())
        ]
        return said

    def _whole(self, work: Work) -> Cost:
        model = self.model(work.model)
        self._warm_up(work)
        image, latents, denoise_s, other_s = self._run(model, work)
        if self.images is not None and work.row >= 0:
            Image.fromarray(image).save(Path(self.images) / f"{work.row}.png")
        quality = self._quality(work, image) if work.skipped else None
        return Cost(denoise_s, other_s, artifact=image if work.capture is None else latents, quality=quality)

    def _run(self, model: LiveModel, work: Work) -> tuple[np.ndarray, dict[int, torch.Tensor], float, float]:
        """The image uint8 (h, w, 3), the latents asked for, seconds of denoising, seconds of all else."""
        seeds = [self._asked.seed(work.row)]
        conditioning = model.encode([self._asked.prompt(work.row)])
        other_s = conditioning.encode_s
        if work.skipped == 0:
            start = model.noise(work.width, work.height, seeds, work.steps)
        elif work.artifact is None:
            raise BackendError(f"row {work.row} starts from step {work.skipped} of an artifact that was not made")
        elif work.refine:
            encoded = model.encode_images([work.artifact], work.width, work.height)
            other_s += encoded.encode_s
            start = model.noise_to_step(encoded.latents, work.skipped, work.steps, seeds)
        else:
            start = work.artifact.to(model.device)
        names = {step: name for name, step in (work.capture or {}).items()}
        result = model.denoise(conditioning, start, work.steps, work.skipped, capture=names)
        decoded = model.decode(result.latents)
        kept = {names[step]: latents.cpu() for step, latents in result.captured.items()}
        return decoded.images[0], kept, float(result.step_s.sum()), other_s + decoded.decode_s

    def _quality(self, work: Work, image: np.ndarray) -> float | None:
        if self.quality is None or self.reference is None:
            return None
        full = Work(self.reference, work.width, work.height, work.steps, row=work.row)
        wanted, _, _, _ = self._run(self.model(self.reference), full)
        made, prompts = image[None], [self._asked.prompt(work.row)]
        if self.quality.full_reference:
            return float(self.quality.score(made, references=wanted[None])[0])
        return float(
            self.quality.score(made, prompts=prompts)[0] / self.quality.score(wanted[None], prompts=prompts)[0]
        )

    def _warm_up(self, work: Work) -> None:
        """The first run of a shape compiles and allocates; a server has long done that."""
        key = (work.model, work.width, work.height)
        if key in self._warm:
            return
        self._warm.add(key)
        model = self.model(work.model)
        conditioning = model.encode([""])
        noise = model.noise(work.width, work.height, [0], work.steps)
        latents = model.denoise(conditioning, noise, work.steps, last_step=min(WARM_UP_STEPS, work.steps)).latents
        model.encode_images(list(model.decode(latents).images), work.width, work.height)

    def _spec(self, name: str) -> ModelSpec:
        if name not in self.models:
            raise LiveError(
                f"backend.models: no live model is called {name}; it knows {', '.join(sorted(self.models))}"
            )
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
        """The model called ``name``, built if it is not there. Raises LiveError where it cannot be."""
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
            self._warm.clear()
            self._collect()
            built = build(spec, self._place)
        self._built[name] = built
        return built

    def _stored(self, name: str, spec: ModelSpec) -> ModelSpec:
        if self.store is None or spec.weights != "random":
            return spec
        folder = Path(self.store) / name
        if not (folder / "model_index.json").is_file():
            build(spec, self._place).save(folder)
            self._collect()
        return ModelSpec(
            spec.family, spec.variant, str(folder), spec.scale, spec.dtype, spec.scheduler, spec.seed, spec.allow_hub
        )

    def _collect(self) -> None:
        gc.collect()
        if self._place.type == "cuda":
            torch.cuda.empty_cache()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LiveError(f"{folder}: cannot be made a folder ({error.strerror}); name another") from None
