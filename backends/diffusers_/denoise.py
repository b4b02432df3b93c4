"""The denoise loop: any steps of a run, with a solver that can be resumed from step K.

A single-step solver needs only the latent and the step number, so a run cut at K and resumed is bit-equal to
one that was not cut. A multistep solver also needs its earlier outputs, a stochastic one its random state.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffusers
import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.device import Stopwatch
from mezzotint.backends.diffusers_.families.base import Conditioning, Family, StepInput

_RESUMABLE = ("DDIMScheduler", "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler")


class Place(NamedTuple):
    """``rows`` consecutive rows of a batch that have run ``done`` of ``steps`` steps."""

    steps: int
    done: int
    rows: int


class Running:
    """Images of one size during denoising, which may be at different steps of different schedules.

    Args:
        pipe: the stock pipeline of ``family``.
        conditioning: one row per latent.
        latents: (n, c, h, w), place after place; ``state`` holds the present ones.
        places: each has its own solver, and its rows their own timestep, as in ORCA's iteration-level scheduling.
    """

    def __init__(
        self, family: Family, pipe: Any, conditioning: Conditioning, latents: torch.Tensor, places: Sequence[Place]
    ) -> None:
        self._guidance, self.places = conditioning.guidance, places
        self.guided = conditioning.guided
        self.state = latents.to(device=pipe.device, dtype=family.latent_dtype(pipe))
        self._sizes = [place.rows for place in places]
        self._solvers = [prepare_solver(family, pipe, self.state, place.steps, place.done) for place in places]
        self._inputs = family.inputs(pipe, conditioning.stack(), self.state, conditioning.guidance)
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
        if self.guided:
            x, t = torch.cat([x, x]), t if t.ndim == 0 else torch.cat([t, t])
        return StepInput(x, t, self._inputs)

    def step(self, predicted: torch.Tensor) -> None:
        """Advance by the denoiser's output."""
        if self.guided:
            without, towards = predicted.chunk(2)
            predicted = without + self._guidance * (towards - without)
        sizes, state = self._sizes, self.state
        stepped = zip(self._solvers, predicted.split(sizes), self._times, state.split(sizes), strict=True)
        self.state = torch.cat([solver.step(*at, return_dict=False)[0].to(state.dtype) for solver, *at in stepped])


def run_steps(
    runs: Sequence[Running],
    count: int,
    predict: Callable[[Sequence[StepInput]], Sequence[torch.Tensor]],
    on_step: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Run ``count`` steps of images of one or several sizes together; return the seconds of each step.

    Args:
        predict: the step of each size, rows doubled under classifier-free guidance -> the denoiser's output for each.
        on_step: called after each step with the steps run here so far, outside the timed part.

    Raises:
        BackendError: a place has fewer steps left.
    """
    for place in (place for run in runs for place in run.places):
        if not 0 <= place.done < place.done + count <= place.steps:
            raise BackendError(f"cannot run steps {place.done} to {place.done + count} of {place.steps}")
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


def ensure_resumable(scheduler: Any) -> None:
    """Raise BackendError for a solver that keeps history or draws noise at every step; it says which to use."""
    name = type(scheduler).__name__
    if name in _RESUMABLE and not scheduler.config.get("stochastic_sampling", False):
        return
    flow = "FlowMatch" in name or scheduler.config.get("prediction_type") in ("flow_prediction", "flow")
    instead = _RESUMABLE[2:] if flow else _RESUMABLE[:2]
    said = f"solver {name} keeps the outputs of earlier steps, or draws noise at every step"
    raise BackendError(f"{said}: no run can be resumed from step K; use scheduler {' or '.join(instead)}")


def swap_solver(scheduler: Any, name: str) -> Any:
    """Return diffusers' solver ``name`` with the noise schedule of ``scheduler``. Raises BackendError."""
    replacement = getattr(diffusers, name, None) if name.endswith("Scheduler") else None
    if replacement is None:
        raise BackendError(f"diffusers has no scheduler {name!r}; use one of {', '.join(_RESUMABLE)}")
    settings = dict(scheduler.config)
    if name == "FlowMatchEulerDiscreteScheduler" and "flow_shift" in settings:
        settings["shift"] = settings["flow_shift"]
    return replacement.from_config(settings)


def prepare_solver(family: Family, pipe: Any, latents: torch.Tensor, steps: int, done: int) -> Any:
    """Return a new solver like the pipeline's for ``latents`` that have run ``done`` of ``steps`` steps."""
    solver = type(pipe.scheduler).from_config(pipe.scheduler.config)
    config, sigmas = solver.config, family.sigmas(steps)
    settings: dict[str, Any] = {} if sigmas is None else {"sigmas": sigmas}
    if config.get("use_dynamic_shifting", False):
        # FLUX and some SD3 models shift the schedule by the number of image tokens.
        slope = (config.max_shift - config.base_shift) / (config.max_image_seq_len - config.base_image_seq_len)
        settings["mu"] = config.base_shift + slope * (family.tokens(pipe, latents) - config.base_image_seq_len)
    solver.set_timesteps(steps, device=latents.device, **settings)
    if hasattr(solver, "set_begin_index"):
        solver.set_begin_index(done)
    return solver
