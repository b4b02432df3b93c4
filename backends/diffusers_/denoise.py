"""The denoise loop: any part of a run, from any step, with latents captured on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from backends.diffusers_.conditioning import Conditioning
from backends.diffusers_.errors import LiveError
from backends.diffusers_.residuals import ResidualSource, StepInput
from backends.diffusers_.solvers import prepared
from backends.diffusers_.stopwatch import Stopwatch

if TYPE_CHECKING:
    from backends.diffusers_.model import LiveModel


@dataclass(frozen=True, slots=True)
class DenoiseResult:
    """What a run of steps gives.

    Attributes:
        latents: (n, c, h, w) after the last step that ran.
        captured: K to latents after K steps of the full run, for each K asked for.
        step_s: seconds of each step that ran, in order.
    """

    latents: torch.Tensor
    captured: dict[int, torch.Tensor]
    step_s: np.ndarray


def run_steps(
    model: LiveModel,
    conditioning: Conditioning,
    latents: torch.Tensor,
    steps: int,
    first_step: int = 0,
    last_step: int | None = None,
    capture: Iterable[int] = (),
    residuals: ResidualSource | None = None,
    on_step: Callable[[int, torch.Tensor], None] | None = None,
) -> DenoiseResult:
    """Run steps ``first_step`` to ``last_step`` (excluded) of a schedule of ``steps``.

    A run cut at K and resumed from its captured latent is bit-equal to one that was not cut. The model and
    its scheduler are left as they were, so runs may be interleaved.

    Args:
        model: the model; nothing of it but the denoiser runs.
        conditioning: one row per latent.
        latents: (n, c, h, w), the state after ``first_step`` steps: noise for 0.
        steps: steps of a full run, T.
        first_step: steps already done, K; the run is T - K steps long.
        last_step: step to stop before; None runs to the end.
        capture: every K in ``first_step``..``last_step`` after which the latents are kept.
        residuals: gives a ControlNet's residuals for each step, wherever it runs.
        on_step: called after each step with (steps done so far, latents), outside the timed part. A LoRA
            patched there takes effect from the next step on.

    Raises:
        LiveError: steps out of order, a capture outside them, or another number of rows than latents.
    """
    stop = steps if last_step is None else last_step
    wanted = set(capture)
    if not 0 <= first_step < stop <= steps or any(not first_step <= k <= stop for k in wanted):
        raise LiveError(
            f"cannot run steps {first_step} to {stop} of {steps} and capture after {sorted(wanted)}; "
            "need 0 <= first < last <= steps and captures in between"
        )
    if conditioning.batch != latents.shape[0]:
        raise LiveError(f"{conditioning.batch} prompts for {latents.shape[0]} latents; give one prompt per latent")
    family, pipe, guided = model.family, model.pipe, conditioning.guided
    state = latents.to(device=model.device, dtype=family.latent_dtype(pipe))
    tokens = family.tokens(pipe, state)
    solver = prepared(pipe.scheduler, steps, first_step, tokens, family.sigmas(steps), model.device)
    inputs = family.inputs(pipe, conditioning.stacked(), state, conditioning.guidance)
    captured = {first_step: state.clone()} if first_step in wanted else {}
    seconds = np.empty(stop - first_step)
    watch = Stopwatch(model.device)
    for step in range(first_step, stop):
        with torch.no_grad():
            t = solver.timesteps[step]
            x = torch.cat([state, state]) if guided else state
            if hasattr(solver, "scale_model_input"):
                x = solver.scale_model_input(x, t)
            near = StepInput(step, x, t, inputs)
            predicted = family.predict(pipe, near, None if residuals is None else residuals(near))
            if guided:
                without, towards = predicted.chunk(2)
                predicted = without + conditioning.guidance * (towards - without)
            state = solver.step(predicted, t, state, return_dict=False)[0].to(state.dtype)
        seconds[step - first_step] = watch.lap()
        if step + 1 in wanted:
            captured[step + 1] = state.clone()
        if on_step is not None:
            on_step(step + 1, state)
        watch.lap()
    return DenoiseResult(state, captured, seconds)
