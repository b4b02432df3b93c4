"""The denoise loop: any steps of a run, with latents captured on the way."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from mezzotint.backends.diffusers_.addons.remote_controlnets import RemoteControlNets
from mezzotint.backends.diffusers_.addons.residuals import ResidualSource, StepInput
from mezzotint.backends.diffusers_.conditioning import Conditioning
from mezzotint.backends.diffusers_.device.stopwatch import Stopwatch
from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.solvers import prepared

if TYPE_CHECKING:
    from mezzotint.backends.diffusers_.model import LiveModel


class DenoiseResult(NamedTuple):
    """Result of a run of steps.

    Attributes:
        latents: (n, c, h, w) after the last step that ran.
        captured: K -> latents after K steps of the full run.
        step_s: seconds of each step that ran, in order.
    """

    latents: torch.Tensor
    captured: dict[int, torch.Tensor]
    step_s: np.ndarray


class Place(NamedTuple):
    """``rows`` consecutive rows of a batch that have run ``done`` of ``steps`` steps."""

    steps: int
    done: int
    rows: int


def run_places(
    model: "LiveModel",
    conditioning: Conditioning,
    latents: torch.Tensor,
    places: Sequence[Place],
    count: int,
    residuals: ResidualSource | RemoteControlNets | None = None,
    on_step: Callable[[int, torch.Tensor], None] | None = None,
) -> tuple[torch.Tensor, np.ndarray]:
    """Run ``count`` steps of a batch whose rows may be at different steps of different schedules.

    The denoiser runs once per step on all rows, each at its own timestep, as in ORCA's iteration-level scheduling.
    Each place has its own solver.

    Args:
        conditioning, latents: see Running.
        on_step: called after each step with (steps run here so far, latents), outside the timed part.

    Returns:
        The latents after the last step, and the seconds of each step.

    Raises:
        LiveError: a place has fewer steps left.
    """
    family, pipe = model.family, model.pipe

    def predict(steps: Sequence[StepInput]) -> list[torch.Tensor]:
        if isinstance(residuals, RemoteControlNets):
            return [residuals.predict(pipe, step) for step in steps]
        return [family.predict(pipe, step, None if residuals is None else residuals(step)) for step in steps]

    run = Running(model, conditioning, latents, places)
    seconds = run_sizes([run], count, predict, None if on_step is None else lambda ran: on_step(ran, run.state))
    return run.state, seconds


def run_sizes(
    runs: Sequence["Running"],
    count: int,
    predict: Callable[[Sequence[StepInput]], Sequence[torch.Tensor]],
    on_step: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Run ``count`` steps of images of several sizes together; return the seconds of each step.

    Args:
        predict: the step of each size, rows doubled under classifier-free guidance -> the denoiser's output for each.
        on_step: called after each step with the steps run here so far, outside the timed part.

    Raises:
        LiveError: a place has fewer steps left.
    """
    for place in (place for run in runs for place in run.places):
        if not 0 <= place.done < place.done + count <= place.steps:
            raise LiveError(f"cannot run steps {place.done} to {place.done + count} of {place.steps}")
    seconds = np.empty(count)
    watch = Stopwatch(runs[0].state.device)
    for ran in range(count):
        with torch.no_grad():
            for run, predicted in zip(runs, predict([run.step_input(ran) for run in runs]), strict=True):
                run.step(predicted)
        seconds[ran] = watch.lap()
        if on_step is not None:
            on_step(ran + 1)
        watch.lap()
    return seconds


class Running:
    """Images of one size during denoising, with a solver for each place.

    Args:
        conditioning: one row per latent.
        latents: (n, c, h, w), place after place; ``state`` holds the present ones.
    """

    def __init__(
        self, model: "LiveModel", conditioning: Conditioning, latents: torch.Tensor, places: Sequence[Place]
    ) -> None:
        family, pipe = model.family, model.pipe
        self._conditioning, self.places = conditioning, places
        self.state = latents.to(device=model.device, dtype=family.latent_dtype(pipe))
        tokens = family.tokens(pipe, self.state)
        self._sizes = [place.rows for place in places]
        self._solvers = [
            prepared(pipe.scheduler, place.steps, place.done, tokens, family.sigmas(place.steps), model.device)
            for place in places
        ]
        self._inputs = family.inputs(pipe, conditioning.stacked(), self.state, conditioning.guidance)
        self._times: list[torch.Tensor] = []

    def step_input(self, ran: int) -> StepInput:
        """Return the denoiser's input after ``ran`` steps."""
        self._times = [s.timesteps[place.done + ran] for s, place in zip(self._solvers, self.places, strict=True)]
        x = torch.cat(
            [
                solver.scale_model_input(rows, t) if hasattr(solver, "scale_model_input") else rows
                for solver, rows, t in zip(self._solvers, self.state.split(self._sizes), self._times, strict=True)
            ]
        )
        times = self._times
        t = times[0] if len(times) == 1 else torch.cat([t.expand(n) for t, n in zip(times, self._sizes, strict=True)])
        if self._conditioning.guided:
            x, t = torch.cat([x, x]), t if t.ndim == 0 else torch.cat([t, t])
        return StepInput(x, t, self._inputs)

    def step(self, predicted: torch.Tensor) -> None:
        """Advance by the denoiser's output."""
        if self._conditioning.guided:
            without, towards = predicted.chunk(2)
            predicted = without + self._conditioning.guidance * (towards - without)
        sizes, state = self._sizes, self.state
        stepped = zip(self._solvers, predicted.split(sizes), self._times, state.split(sizes), strict=True)
        self.state = torch.cat([solver.step(*at, return_dict=False)[0].to(state.dtype) for solver, *at in stepped])
