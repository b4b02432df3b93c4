"""The stages of serving on a live model for several requests: begin, steps, end."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from mezzotint.backends.base import BackendError, RequestInputs, Work
from mezzotint.backends.diffusers_.addons.controlnet import RemoteControlNets, StepParts, inline
from mezzotint.backends.diffusers_.addons.library import AddOns
from mezzotint.backends.diffusers_.denoise import Place, Running, run_steps
from mezzotint.backends.diffusers_.device import Stopwatch
from mezzotint.backends.diffusers_.families.base import Conditioning, Predict, StepInput, join
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.patched import Size

Key = TypeVar("Key")


@dataclass(slots=True)
class InFlight:
    """State of a request between its stages (``Work.state``).

    Attributes:
        conditioning: its encoded prompt, one row.
        latents: (1, c, h, w) after ``Work.done`` steps.
        hints: ControlNet -> its input.
        kept: step in ``Work.capture`` -> latents in host memory.
        parts: of its last step with remote ControlNets.
    """

    conditioning: Conditioning
    latents: torch.Tensor
    hints: dict[str, torch.Tensor] = field(default_factory=dict)
    kept: dict[int, torch.Tensor] = field(default_factory=dict)
    parts: StepParts | None = None


def in_flight(model: LiveModel, sizes: Iterable[Size], steps: int, prompt: str = "") -> list[Work]:
    """Return a work of each size, of no trace, before its first step; the seed of its noise is its index."""
    conditioning = model.encode([prompt])
    works = [Work("", width, height, steps) for width, height in sizes]
    for seed, work in enumerate(works):
        work.state = InFlight(conditioning, model.noise(work.width, work.height, [seed], steps))
    return works


def group_works(works: Iterable[Work], key: Callable[[Work], Key]) -> dict[Key, list[Work]]:
    """Group works by ``key``, in order."""
    groups: dict[Key, list[Work]] = {}
    for work in works:
        groups.setdefault(key(work), []).append(work)
    return groups


def begin(model: LiveModel, add_ons: AddOns, works: Sequence[Work], asked: RequestInputs) -> float:
    """Prepare works of ``model`` for their first step; return the seconds of encoding prompts and pictures.

    Raises:
        BackendError: an artifact was not made, or latents of a skipped step are to be kept.
    """
    for work in works:
        if any(step < work.skipped for step in (work.capture or {}).values()):
            raise BackendError(f"row {work.row} starts from step {work.skipped} and is to keep {work.capture}")
    conditioning = model.encode([asked.prompt(work.row) for work in works])
    seconds = conditioning.encode_s
    for row, work in enumerate(works):
        seed = asked.seed(work.row)
        if work.skipped == 0:
            latents = model.noise(work.width, work.height, [seed], work.steps)
        elif work.artifact is None:
            raise BackendError(f"row {work.row} starts from step {work.skipped} of an artifact that was not made")
        else:
            latents = torch.empty(0) if work.refine else work.artifact.to(model.device)
        work.state = InFlight(conditioning.select([row]), latents)
        watch = Stopwatch(model.device)
        nets = work.controlnets + work.remote_controlnets
        for name in nets:
            work.state.hints[name] = add_ons.hint(name, work.width, work.height, seed)
        if nets:
            seconds += watch.lap()
    refined = [work for work in works if work.refine and work.skipped]
    for (width, height), those in group_works(refined, lambda work: (work.width, work.height)).items():
        clean, took_s = model.encode_images([work.artifact for work in those], width, height)
        seconds += took_s
        for work, latents in zip(those, clean.split(1), strict=True):
            work.state.latents = model.noise_to_step(latents, work.skipped, work.steps, [asked.seed(work.row)])
    for work in works:
        _keep(work, work.done, work.state.latents)  # with few steps, K may round down to a step already done
    return seconds


def steps(model: LiveModel, add_ons: AddOns, works: Sequence[Work], count: int) -> float:
    """Run ``count`` steps of works of ``model``; return the seconds of the denoiser and inline ControlNets.

    Works of one size and set of add-ons form a batch, whatever their steps; others take turns. Seconds of remote
    ControlNets are in ``InFlight.parts``.
    """

    def alike(work: Work) -> tuple[object, ...]:
        return work.width, work.height, work.controlnets, work.loras, work.remote_controlnets

    return sum(_together(model, add_ons, those, count) for those in group_works(works, alike).values())


def end(model: LiveModel, works: Sequence[Work]) -> tuple[list[np.ndarray], float]:
    """Decode works of ``model``; return an image uint8 (h, w, 3) for each, and the seconds of all."""
    images: dict[int, np.ndarray] = {}
    seconds = 0.0
    for those in group_works(works, lambda work: (work.width, work.height)).values():
        decoded, took_s = model.decode(_stacked(those))
        seconds += took_s
        images |= {id(work): image for work, image in zip(those, decoded, strict=True)}
    return [images[id(work)] for work in works], seconds


def _together(model: LiveModel, add_ons: AddOns, works: Sequence[Work], count: int) -> float:
    inline_nets, remote_nets = works[0].controlnets, works[0].remote_controlnets
    add_ons.patch(works[0].loras)
    batch = _gather(model, works)
    hints = [work.state.hints for work in batch.works]
    controls = add_ons.controls(remote_nets or inline_nets, hints, batch.run.guided)
    predict: Predict | None = None
    if remote_nets:
        predict, add_ons.stepped_remote = RemoteControlNets(controls), True
    elif inline_nets:
        predict = inline(controls)
        add_ons.in_line.add(len(inline_nets))
    seconds = _advance([batch], count, model.predict_each(predict))
    if isinstance(predict, RemoteControlNets):
        seconds -= sum(parts.elsewhere_s for parts in predict.parts)
        for work in works:
            work.state.parts = predict.parts[-1]
    return seconds


def run_patched_step(model: LiveModel, works: Sequence[Work], side: int) -> float:
    """Run one step of works of ``model`` in patches of ``side`` pixels; return the seconds of the denoiser.

    Raises:
        BackendError: the family has no such pass, works have add-ons, or the side does not fit.
    """
    predict, unit = model.family.predict_patched, model.pipe.vae_scale_factor
    if predict is None or any(work.controlnets or work.loras or work.remote_controlnets for work in works):
        said = f"{model.spec.family} cannot step images of several sizes in one pass here, or add-ons are asked for"
        remedy = "sd15 and sdxl can, with addons=ignore; else choose executor=continuous-batching"
        raise BackendError(f"patches: {said}; {remedy}")
    if side % unit:
        raise BackendError(f"patches of {side} px: expected a multiple of {unit}, pixels to a latent; set another side")
    batches = [_gather(model, those) for those in group_works(works, lambda work: (work.height, work.width)).values()]
    return _advance(batches, 1, lambda steps: predict(model.pipe, steps, side // unit))


class _Batch(NamedTuple):
    works: list[Work]
    run: Running


def _gather(model: LiveModel, works: Sequence[Work]) -> _Batch:
    """Return a batch of ``works``, of one size, sorted by their step."""
    at = group_works(works, lambda work: (work.steps, work.done))
    places = [Place(steps, done, len(those)) for (steps, done), those in at.items()]
    rows = [work for those in at.values() for work in those]
    conditioning = join([work.state.conditioning for work in rows])
    return _Batch(rows, Running(model.family, model.pipe, conditioning, _stacked(rows), places))


def _advance(
    batches: Sequence[_Batch], count: int, predict: Callable[[Sequence[StepInput]], Sequence[torch.Tensor]]
) -> float:
    """Run ``count`` steps of all batches together; return the seconds."""

    def after_step(_: int) -> None:
        for batch in batches:
            for work, latents in zip(batch.works, batch.run.state.split(1), strict=True):
                work.state.latents = latents
                work.done += 1
                _keep(work, work.done, latents)

    return float(run_steps([batch.run for batch in batches], count, predict, after_step).sum())


def _keep(work: Work, done: int, latents: torch.Tensor) -> None:
    """Keep the latents after ``done`` steps in host memory if ``Work.capture`` has that step."""
    if done in (work.capture or {}).values():
        work.state.kept[done] = latents.cpu().clone()


def _stacked(works: Sequence[Work]) -> torch.Tensor:
    return torch.cat([work.state.latents for work in works])
