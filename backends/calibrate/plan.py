"""Plan of a calibration: the model, the device, and the cells in order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from mezzotint.backends.patched import Size

if TYPE_CHECKING:
    from mezzotint.backends.diffusers_ import ModelSpec

Shape = tuple[int, int, int]
"""Width and height in pixels, and images per batch."""


Operation = Literal[
    "draw", "load", "text_encode", "step", "vae_decode", "vae_encode", "controlnet_step", "controlnet", "apart", "lora",
    "patched",
]  # fmt: skip


class Cell(BaseModel):
    """One operation to measure; fields that it does not depend on stay 0 (the size of a text encoding).

    ``draw`` makes random weights, ``load`` reads weights from a folder, ``controlnet`` reads a ControlNet. ``apart`` is
    the parts of a step with ControlNets on other GPUs. ``patched`` is a step of the images of ``mix``, cut into patches
    of ``side`` pixels.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation: Operation
    width: int = 0
    height: int = 0
    batch: int = 0
    nets: int = 0
    rank: int = 0
    side: int = 0
    mix: tuple[Size, ...] = ()

    def __str__(self) -> str:
        size = f" {self.width}x{self.height}" if self.width else ""
        batch = f" batch {self.batch}" if self.batch else f" {len(self.mix)} images" if self.mix else ""
        extra = f" {self.nets} nets" if self.nets else f" rank {self.rank}" if self.rank else ""
        return f"{self.operation.replace('_', ' ')}{size}{batch}{extra}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of a calibration.

    Attributes:
        spec: the model.
        gpu, model: names of the profile in the simulator (``cluster=``, ``models=``).
        shapes: (width, height, batch) of the denoiser and the VAE; the text encoder runs at their batches.
        device: where it runs, ``cpu``, ``cuda`` or ``cuda:1``.
        warmup: calls (denoising steps, encodings) run untimed before each cell.
        repeats, steps_timed: times that each cell is measured; of the denoiser each is ``steps_timed`` steps after one
            that is dropped.
        controlnets: numbers of inline ControlNets, if the model has one; 0 is the plain step.
        controlnet_batches: batches to run them at; None for all.
        apart: True to measure a step with ControlNets on other GPUs, if the denoiser allows that.
        lora_rank: rank of the LoRA to measure; None for none.
        patches: side of a patch in pixels and images of the largest batch of patches to measure; None for none.
        load_from_disk: save random weights and read them back, so that loading is measured too.
        energy: ``auto`` reads the device's energy counter where it has one.
    """

    spec: "ModelSpec"
    gpu: str
    model: str
    shapes: tuple[Shape, ...]
    device: str = "cpu"
    warmup: int = 2
    repeats: int = 5
    steps_timed: int = 5
    controlnets: tuple[int, ...] = ()
    controlnet_batches: tuple[int, ...] | None = None
    apart: bool = False
    lora_rank: int | None = None
    patches: tuple[int, int] | None = None
    load_from_disk: bool = False
    energy: Literal["auto", "off"] = "auto"

    def cells(self, has_controlnets: bool, has_halves: bool = False) -> list[Cell]:
        """Return the cells to measure, the most valuable first, so that an interrupted session keeps those."""
        by_work = sorted(set(self.shapes), key=lambda shape: (shape[0] * shape[1] * shape[2], shape))
        with_nets = [s for s in by_work if self.controlnet_batches is None or s[2] in self.controlnet_batches]

        def at(operation: Operation, shapes: Iterable[Shape], nets: int = 0) -> list[Cell]:
            return [Cell(operation=operation, width=w, height=h, batch=b, nets=nets) for w, h, b in shapes]

        read = self.load_from_disk or self.spec.weights != "random"
        cells = [Cell(operation="load" if read else "draw")]
        cells += [Cell(operation="text_encode", batch=b) for b in sorted({batch for _, _, batch in self.shapes})]
        cells += at("step", by_work) + at("vae_decode", by_work) + at("vae_encode", by_work)
        if has_controlnets:
            for nets in sorted({n for n in self.controlnets if n}):
                cells += at("controlnet_step", with_nets, nets=nets)
            apart = self.apart and has_halves
            if any(self.controlnets) or apart:
                cells.append(Cell(operation="controlnet"))
            if apart:
                cells += at("apart", dict.fromkeys((w, h, 1) for w, h, _ in by_work), nets=1)
        if self.lora_rank is not None:
            cells.append(Cell(operation="lora", rank=self.lora_rank))
        if self.patches is not None:
            side, max_images = self.patches
            sizes = list(dict.fromkeys((w, h) for w, h, _ in by_work))
            cells += [Cell(operation="patched", side=side, mix=mix) for mix in draw_mixes(sizes, max_images)]
        return cells


def draw_mixes(sizes: Sequence[Size], max_images: int, count: int = 24) -> list[tuple[Size, ...]]:
    """Return ``count`` different batches of images of ``sizes`` to measure in patches, each sorted.

    The first are each size alone, and as many of each size as fit (PatchedServe, Figure 14). The rest are drawn, of 1
    to ``max_images`` images; there are fewer where no more are found. PatchedServe trains its latency predictor on 300
    such batches (6.1.2).
    """
    rng = np.random.default_rng(0)
    ordered = sorted(sizes)
    alike = [tuple(sorted(ordered * each)) for each in range(1, max_images // len(ordered) + 1)]
    mixes = dict.fromkeys([*((size,) for size in ordered), *alike])
    for _ in range(10 * count):
        if len(mixes) >= count:
            break
        picked = rng.integers(len(ordered), size=int(rng.integers(1, max_images + 1)))
        mixes[tuple(sorted(ordered[at] for at in picked))] = None
    return list(mixes)


def grid(sizes: Iterable[tuple[int, int]], batches: Iterable[int]) -> tuple[Shape, ...]:
    """Return every size, (width, height) in pixels, at every batch."""
    counts = list(batches)
    return tuple((width, height, batch) for width, height in sizes for batch in counts)
