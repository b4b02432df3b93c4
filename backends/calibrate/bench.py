"""Measurement of each cell on a live model."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.journal import CellMeasurement
from mezzotint.backends.calibrate.machine import Machine
from mezzotint.backends.calibrate.plan import Cell, Plan
from mezzotint.backends.diffusers_ import LiveModel, build, stages
from mezzotint.backends.diffusers_.addons.controlnet import (
    Control,
    ControlNet,
    RemoteControlNets,
    StepParts,
    control,
    inline,
    open_controlnet,
    random_controlnet,
)
from mezzotint.backends.diffusers_.addons.lora import Loras, read_lora, write_random_lora
from mezzotint.backends.diffusers_.device import Stopwatch, free_memory
from mezzotint.backends.diffusers_.families.base import Conditioning, Predict

PROMPT = "an engraving of a lighthouse above a rough sea at dusk, fine hatching, high contrast"
ENERGY_WINDOW_S = 1.5
"""Minimum time between two energy readings: the counters of NVIDIA's drivers move every 20 to 100 ms."""
T = TypeVar("T")
_CPU_OOM = ("DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory")


def ran_out_of_memory(error: Exception) -> bool:
    """Return True if ``error`` reports too little memory, on a GPU or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _CPU_OOM)


@dataclass(slots=True)
class Bench:
    """Measures cells on a live model: ``model``, or one built once from ``plan``.

    Measuring a LoRA leaves the denoiser's weights as they were to rounding; nothing else changes the model.
    """

    plan: Plan
    machine: Machine
    model: LiveModel | None = None
    _controlnets: list[ControlNet] = field(default_factory=list)

    def __call__(self, cell: Cell) -> CellMeasurement:
        """Measure one cell. Raises RuntimeError or ValueError, also for too little memory."""
        model = self.open()
        counts = model.device.type == "cuda"
        if counts:
            torch.cuda.reset_peak_memory_stats(model.device)
        measured = self._measure(cell, model)
        nvml = self.machine.nvml
        peak = int(torch.cuda.max_memory_allocated(model.device)) if counts else None
        return measured.model_copy(update={"peak_bytes": peak, "clock_mhz": nvml.clock_mhz() if nvml else None})

    def open(self, from_disk: bool = False) -> LiveModel:
        """Return the model, built now if it was not; ``from_disk`` saves what was drawn and reads it back.

        Raises:
            BackendError: it cannot be built, or does not fit.
        """
        if self.model is None:
            try:
                self.model = _from_disk(self.plan) if from_disk else build(self.plan.spec, self.plan.device)
            except (RuntimeError, MemoryError) as error:
                if not ran_out_of_memory(error):
                    raise
                said = f"{self.plan.model} did not fit on {self.plan.device} ({' '.join(str(error).split())[:200]})"
                raise BackendError(f"{said}; use a smaller variant, dtype bfloat16 or float16, or scale tiny") from None
        return self.model

    def _measure(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        match cell.operation:
            case "draw" | "load":
                facts = {"bytes": model.nbytes, "vae_bits": 8 * model.pipe.vae.dtype.itemsize}
                return CellMeasurement(seconds={"seconds": [model.load_s]}, facts=facts)
            case "text_encode":
                return self._repeated(lambda: model.encode([PROMPT] * cell.batch).encode_s)
            case "vae_decode":
                latents = model.noise(cell.width, cell.height, range(cell.batch), self.plan.steps_timed)
                return self._repeated(lambda: model.decode(latents)[1])
            case "vae_encode":
                images = self._pictures(cell)
                return self._repeated(lambda: model.encode_images(images, cell.width, cell.height)[1])
            case "step":
                return self._step(cell, model)
            case "controlnet_step":
                return self._controlnet_step(cell, model)
            case "controlnet":
                return self._controlnet(model)
            case "apart":
                return self._remote_controlnets(cell, model)
            case "lora":
                return self._lora(cell, model)
            case "patched":
                return self._patched(cell, model)

    def _repeated(self, once: Callable[[], float]) -> CellMeasurement:
        for _ in range(self.plan.warmup):
            once()
        return CellMeasurement(seconds={"seconds": [once() for _ in range(self.plan.repeats)]})

    def _step(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        prompts = self._conditioning(cell, model)
        self._warm(cell, model, prompts)
        watch, before = Stopwatch(model.device), self._energy_j()
        rounds = [self._round(cell, model, prompts) for _ in range(self.plan.repeats)]
        steps, elapsed = len(rounds) * (self.plan.steps_timed + 1), watch.lap()
        while before is not None and elapsed < ENERGY_WINDOW_S:
            self._round(cell, model, prompts)
            steps, elapsed = steps + self.plan.steps_timed + 1, elapsed + watch.lap()
        after = self._energy_j()
        drawn = after - before if after is not None and before is not None and after > before else None
        return CellMeasurement(
            seconds={"seconds": np.concatenate(rounds).tolist()},
            energy_j=None if drawn is None else drawn / steps,
            power_w=None if drawn is None else drawn / elapsed,
        )

    def _patched(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        untimed, timed = max(self.plan.warmup, 1), self.plan.steps_timed
        works = stages.in_flight(model, cell.mix, untimed + timed, PROMPT)
        taken = [stages.run_patched_step(model, works, cell.side) for _ in range(untimed + timed)]
        return CellMeasurement(seconds={"seconds": taken[untimed:]})

    def _controlnet_step(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        """Alternate rounds with and without the nets, so that a drift of the clocks affects both alike."""
        prompts = self._conditioning(cell, model)
        source = inline(self._controls(cell, model, prompts))
        self._warm(cell, model, prompts)
        self._warm(cell, model, prompts, source)
        plain, with_nets = [], []
        for _ in range(self.plan.repeats):
            plain.append(self._round(cell, model, prompts))
            with_nets.append(self._round(cell, model, prompts, source))
        seconds = {
            "seconds": (np.mean(with_nets, axis=1) - np.mean(plain, axis=1)).tolist(),
            "without": np.concatenate(plain).tolist(),
            "with": np.concatenate(with_nets).tolist(),
        }
        return CellMeasurement(seconds=seconds)

    def _remote_controlnets(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        """Time the parts of a step, which take turns on the device."""
        prompts = self._conditioning(cell, model)
        remote = RemoteControlNets(self._controls(cell, model, prompts))
        self._warm(cell, model, prompts, remote)
        parts: list[StepParts] = []
        for _ in range(self.plan.repeats):
            remote.parts.clear()
            self._round(cell, model, prompts, remote)
            parts += remote.parts[1:]
        seconds = {
            "encoder": [step.encoder_s for step in parts],
            "controlnet": [sum(step.controlnet_s) / cell.nets for step in parts],
            "receive": [step.receive_s / cell.nets for step in parts],
            "decoder": [step.decoder_s for step in parts],
        }
        return CellMeasurement(seconds=seconds)

    def _controls(self, cell: Cell, model: LiveModel, prompts: Conditioning) -> list[Control]:
        while len(self._controlnets) < cell.nets:
            self._controlnets.append(random_controlnet(model, seed=len(self._controlnets)))
        nets, pictures = self._controlnets[: cell.nets], self._pictures(cell)
        return [control(model, net, pictures, cell.width, cell.height, prompts.guided) for net in nets]

    def _controlnet(self, model: LiveModel) -> CellMeasurement:
        """Save a ControlNet and time reading it back; its files are in the system's cache by then."""
        with tempfile.TemporaryDirectory(prefix="mezzotint-") as name:
            folder = Path(name)
            drawn = random_controlnet(model, seed=0)
            size = drawn.nbytes
            _ensure_disk_space(folder, "a ControlNet", size)
            drawn.net.save_pretrained(name)
            seconds = self._turns(lambda: open_controlnet(model, folder).load_s)
        return CellMeasurement(seconds={"load": seconds}, facts={"bytes": size})

    def _turns(self, once: Callable[[], T]) -> list[T]:
        """Repeat ``once``, after one discarded call if there is a warm-up."""
        return [once() for _ in range(self.plan.repeats + (self.plan.warmup > 0))][-self.plan.repeats :]

    def _lora(self, cell: Cell, model: LiveModel) -> CellMeasurement:
        with tempfile.TemporaryDirectory(prefix="mezzotint-") as folder:
            file = Path(folder) / "lora.safetensors"
            write_random_lora(model, file, rank=cell.rank, seed=0)
            size = file.stat().st_size
            rounds = self._turns(lambda: _lora_round(model, file))
        seconds = {name: [taken[name] for taken in rounds] for name in rounds[0]}
        return CellMeasurement(seconds=seconds, facts={"bytes": size, "rank": cell.rank})

    def _conditioning(self, cell: Cell, model: LiveModel) -> Conditioning:
        """Encode one prompt and repeat it: text encoding of a large batch would add to peak memory."""
        return model.encode([PROMPT]).select([0] * cell.batch)

    def _pictures(self, cell: Cell) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [rng.integers(0, 256, (cell.height, cell.width, 3), dtype=np.uint8) for _ in range(cell.batch)]

    def _warm(self, cell: Cell, model: LiveModel, prompts: Conditioning, predict: Predict | None = None) -> None:
        if self.plan.warmup:
            start = model.noise(cell.width, cell.height, range(cell.batch), self.plan.warmup)
            model.denoise(prompts, start, self.plan.warmup, predict=predict)

    def _round(self, cell: Cell, model: LiveModel, prompts: Conditioning, predict: Predict | None = None) -> np.ndarray:
        """Return the seconds of ``steps_timed`` steps; the one before them, which sets up the run, is dropped."""
        steps = self.plan.steps_timed + 1
        start = model.noise(cell.width, cell.height, range(cell.batch), steps)
        return model.denoise(prompts, start, steps, predict=predict).step_s[1:]

    def _energy_j(self) -> float | None:
        if self.machine.nvml is None or self.plan.energy == "off":
            return None
        return self.machine.nvml.energy_j()


def _lora_round(model: LiveModel, file: Path) -> dict[str, float]:
    weights, loras = read_lora(file, "calibrated"), Loras(model)
    try:
        taken = {"read": weights.read_s, "attach": loras.attach(weights)}
        taken |= {"fuse": loras.fuse(), "unfuse": loras.unfuse()}
        loras.clear()
        taken["patch"] = loras.patch([weights])
    finally:
        loras.clear()
    return taken | {"merge": loras.merge([weights]), "restore": loras.restore()}


def _from_disk(plan: Plan) -> LiveModel:
    """Save the model that ``plan`` draws and read it back; the files are in the system's cache by then."""
    with tempfile.TemporaryDirectory(prefix="mezzotint-") as folder:
        drawn: LiveModel | None = build(plan.spec, plan.device)
        assert drawn is not None
        _ensure_disk_space(Path(folder), plan.model, drawn.nbytes)
        drawn.save(Path(folder))
        drawn = None  # or both copies would be on the device at once
        free_memory(torch.device(plan.device))
        return build(replace(plan.spec, weights=folder), plan.device)


def _ensure_disk_space(folder: Path, what: str, nbytes: int) -> None:
    """Raise BackendError if the disk is too small for weights that are to be read back."""
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        said = f"{folder}: {free / 2**30:.1f} GiB are free and the weights of {what} take {nbytes / 2**30:.1f} GiB"
        raise BackendError(f"{said}; set TMPDIR to a larger disk, or leave --load-from-disk and --controlnets out")
