"""Solvers that can be resumed from step K, and their setup for a run.

A single-step solver needs only the latent and the step number, so a run cut at K and resumed is bit-equal to
one that was not cut. A multistep solver also needs its earlier outputs, a stochastic one its random state.
"""

from typing import Any

import diffusers
import numpy as np
import torch

from mezzotint.backends.diffusers_.errors import LiveError

_RESUMABLE = ("DDIMScheduler", "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler")


def ensure_resumable(scheduler: Any) -> None:
    """Raise LiveError for a solver that keeps history or draws noise at every step; it says which to use."""
    name = type(scheduler).__name__
    if name in _RESUMABLE and not scheduler.config.get("stochastic_sampling", False):
        return
    flow = "FlowMatch" in name or scheduler.config.get("prediction_type") in ("flow_prediction", "flow")
    instead = _RESUMABLE[2:] if flow else _RESUMABLE[:2]
    said = f"solver {name} keeps the outputs of earlier steps, or draws noise at every step"
    raise LiveError(f"{said}: no run can be resumed from step K; use scheduler {' or '.join(instead)}")


def swapped(scheduler: Any, name: str) -> Any:
    """Return diffusers' solver ``name`` with the noise schedule of ``scheduler``. Raises LiveError."""
    replacement = getattr(diffusers, name, None) if name.endswith("Scheduler") else None
    if replacement is None:
        raise LiveError(f"diffusers has no scheduler {name!r}; use one of {', '.join(_RESUMABLE)}")
    settings = dict(scheduler.config)
    if name == "FlowMatchEulerDiscreteScheduler" and "flow_shift" in settings:
        settings["shift"] = settings["flow_shift"]
    return replacement.from_config(settings)


def prepared(
    scheduler: Any, steps: int, begin: int, tokens: int, sigmas: np.ndarray | None, device: torch.device
) -> Any:
    """Return a new solver like ``scheduler``, ready to run from step ``begin``.

    Args:
        steps: steps of a full run, T.
        begin: steps already done, K.
        tokens: image tokens of the transformer, which shift the schedule of FLUX and some SD3 models.
        sigmas: (T,) noise levels before the shift where the family sets them itself, else None.
    """
    fresh = type(scheduler).from_config(scheduler.config)
    config = fresh.config
    settings: dict[str, Any] = {} if sigmas is None else {"sigmas": sigmas}
    if config.get("use_dynamic_shifting", False):
        slope = (config.max_shift - config.base_shift) / (config.max_image_seq_len - config.base_image_seq_len)
        settings["mu"] = config.base_shift + slope * (tokens - config.base_image_seq_len)
    fresh.set_timesteps(steps, device=device, **settings)
    if hasattr(fresh, "set_begin_index"):
        fresh.set_begin_index(begin)
    return fresh
