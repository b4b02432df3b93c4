"""The denoise loop: any part of a run, from any step, with latents captured on the way."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from backends.diffusers_.addons.remote_controlnets import RemoteControlNets
from backends.diffusers_.addons.residuals import ResidualSource, StepInput
from backends.diffusers_.conditioning import Conditioning
from backends.diffusers_.device.stopwatch import Stopwatch
from backends.diffusers_.errors import LiveError
from backends.diffusers_.solvers import prepared

if TYPE_CHECKING:
    from backends.diffusers_.model import LiveModel


class DenoiseResult(NamedTuple):
    """What a run of steps gives.

    Attributes:
        latents: (n, c, h, w) after the last step that ran.
        captured: K to latents after K steps of the full run, for each K asked for.
        step_s: seconds of each step that ran, in order.
    """

    latents: torch.Tensor
    captured: dict[int, torch.Tensor]
    step_s: np.ndarray


class Place(NamedTuple):
    """Where some rows of a batch stand: ``rows`` of them, one after another, after ``done`` of ``steps`` steps."""

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
    """Run ``count`` steps of a batch whose rows stand at several places of several schedules.

    The denoiser runs once a step on all rows, each at its own timestep, as a server that lets requests join and
    leave between steps does (Orca's iteration-level scheduling); each place has a solver of its own.

    Args:
        conditioning, latents: see Running.
        on_step: called after each step with (steps run here so far, latents), outside the timed part.

    Returns:
        The latents after the last step, and the seconds of each step.

    Raises:
        LiveError: a place that has not so many steps left.
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
        LiveError: a place that has not so many steps left.
    """
    for place in (place for run in runs for place in run.places):
        if not 0 <= place.done < place.done + count <= place.steps:
            raise LiveError(f"cannot run steps {place.done} to {place.done + count} of {place.steps}")
    seconds = np.empty(count)
    watch = Stopwatch(runs[0].state.device)
    for ran in range(count):
        with torch.no_grad():
            for run, predicted in zip(runs, predict([run.ask(ran) for run in runs]), strict=True):
                run.step(predicted)
        seconds[ran] = watch.lap()
        if on_step is not None:
            on_step(ran + 1)
        watch.lap()
    return seconds


class Running:
    """Images of one size on their way, a solver for each place.

    Args:
        conditioning: one row per latent.
        latents: (n, c, h, w), place after place; ``state`` is what they have become.
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

    def ask(self, ran: int) -> StepInput:
        """Return what the denoiser is asked for after ``ran`` steps."""
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
        """Go on by what the denoiser answered."""
        if self._conditioning.guided:
            without, towards = predicted.chunk(2)
            predicted = without + self._conditioning.guidance * (towards - without)
        sizes, state = self._sizes, self.state
        stepped = zip(self._solvers, predicted.split(sizes), self._times, state.split(sizes), strict=True)
        self.state = torch.cat([solver.step(*at, return_dict=False)[0].to(state.dtype) for solver, *at in stepped])
