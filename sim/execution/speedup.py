"""Speedup of the denoising steps on a group of GPUs over one GPU."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge

from conf.ranges import Positive
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.protocols import Worker

Speedup = dict[Annotated[int, Ge(2)], Positive]
"""GPUs of a group -> speedup of its steps over one GPU."""


def speedup_of(worker: Worker, request: Request, speedup: Mapping[int, float], key: str) -> float:
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
