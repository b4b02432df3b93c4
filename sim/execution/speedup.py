"""How much faster a group of GPUs steps than one."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge

from conf.ranges import Positive
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.protocols import Run, Worker

Speedup = dict[Annotated[int, Ge(2)], Positive]
"""GPUs of a group -> how many times faster than on one its steps are."""


def speedup_of(run: Run, worker: Worker, request: Request, speedup: Mapping[int, float], key: str) -> float:
    """How many times faster than on one GPU the denoiser steps on ``worker``; ``speedup`` goes before the profile.

    Raises ConfigError, naming ``key``, where neither says.
    """
    gpus = worker.denoisers
    if gpus == 1:
        return 1.0
    if gpus in speedup:
        return speedup[gpus]
    assert request.model is not None
    measured = run.backend.speedup_of(request.model, request.width, request.height, gpus)
    if measured is None:
        raise ConfigError(
            f"{key}: a request runs on {gpus} GPUs and nothing says how much faster that is; give a figure, "
            f"{key}={{{gpus}: ...}}"
        )
    return measured
