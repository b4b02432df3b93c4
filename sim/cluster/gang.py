"""How much faster a gang of GPUs steps than one."""

from collections.abc import Mapping

from sim.errors import ConfigError
from sim.parts import Run, Worker
from sim.request import Request


def check(speedup: Mapping[int, float], key: str) -> None:
    """Raise ConfigError, naming ``key``, unless it is GPUs, two or more -> a positive factor."""
    if not all(gpus > 1 and factor > 0 for gpus, factor in speedup.items()):
        raise ConfigError(f"{key}: found {speedup}, expected GPUs (2 or more) -> times faster")


def times_faster(run: Run, worker: Worker, request: Request, speedup: Mapping[int, float], key: str) -> float:
    """How many times faster than on one GPU the denoiser steps on those of ``worker`` that step it.

    ``speedup`` goes before what the backend's profile measured. Raises ConfigError, naming ``key``, where neither
    says.
    """
    gpus = worker.denoisers
    if gpus == 1:
        return 1.0
    if gpus in speedup:
        return speedup[gpus]
    assert request.model is not None
    measured = run.backend.times_faster(request.model, request.width, request.height, gpus)
    if measured is None:
        raise ConfigError(
            f"{key}: a request runs on {gpus} GPUs and nothing says how much faster that is; give a figure, "
            f"{key}={{{gpus}: ...}}"
        )
    return measured
