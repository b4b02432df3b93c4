"""Speedup of the denoising steps on a group of GPUs over one GPU."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from annotated_types import Ge

from mezzotint.backends.base import Cost, Work
from mezzotint.settings.ranges import Positive
from mezzotint.sim.addons.assets import on_all_gpus
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Worker

Speedup = dict[Annotated[int, Ge(2)], Positive]
"""GPUs of a group -> speedup of its steps over one GPU."""


def speedup_of(worker: Worker, request: Request | Work, speedup: Mapping[int, float], key: str) -> float:
    """Return the speedup of a step on ``worker`` over one GPU: from ``speedup`` if it is there, else from the profile.

    Raises ConfigError, naming ``key``, if neither has it.
    """
    gpus = worker.denoisers
    if gpus == 1:
        return 1.0
    if gpus in speedup:
        return speedup[gpus]
    assert request.model is not None
    measured = worker.backend.speedup_of(request.model, request.width, request.height, gpus, request.frames)
    if measured is None:
        raise ConfigError(
            f"{key}: a request runs on {gpus} GPUs and nothing says how much faster that is (neither this key nor the "
            f"backend's profile); add {key}={{{gpus}: ...}}"
        )
    return measured


def step_on_group(
    worker: Worker, active: Sequence[Request | Work], one_gpu: Cost, speedup: Mapping[int, float]
) -> Cost:
    """Return the cost on ``worker`` of a step of ``active`` that costs ``one_gpu`` on one GPU, with all GPUs' joules.

    A batch is sped up as its request with the smallest speedup. Raises ConfigError as `speedup_of` does.
    """
    if len(worker.gpus) == 1:
        return one_gpu
    smallest = min(speedup_of(worker, request, speedup, "batching.speedup") for request in active)
    return on_all_gpus(worker, one_gpu.over(smallest))
