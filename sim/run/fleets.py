"""Fleets of several base models: the models that the trace names, and the GPUs that serve each."""

from collections.abc import Mapping, Sequence

import numpy as np

from mezzotint.backends.base import Backend, BackendError
from mezzotint.sim.cluster.residency import ModelResidency
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.frontend.by_base_model import ByBaseModel
from mezzotint.sim.metrics.fleet import FleetLog
from mezzotint.sim.protocols import Allocation, FrontEnd, Placement
from mezzotint.sim.run.config.settings import ClusterSettings, PooledSettings
from mezzotint.sim.run.gpus import roles
from mezzotint.traces.table.trace import Trace


def models_of_fleet(frontend: FrontEnd, trace: Trace, models: Mapping[str, Model]) -> Mapping[str, Model]:
    """Return ``models`` by role, and those that the base models of ``trace`` add. Raises ConfigError."""
    if not isinstance(frontend, ByBaseModel):
        return models
    codes, first, rows = np.unique(trace.codes("base_model"), return_index=True, return_inverse=True)
    unnamed = int((codes < 0).sum())  # code -1 of rows without one is the first, if it is there
    names = trace.cells("base_model").take(first[unnamed:]).to_pylist()
    return frontend.read((rows - unnamed).astype(np.int32), names, models)


def alias(backends: Sequence[Backend], models: Mapping[str, Model]) -> None:
    """Let each of ``models`` cost as its architecture, on the kinds of GPUs that have a profile of that.

    Raises ConfigError if none of ``backends`` can.
    """
    for model in models.values():
        if model.architecture is None:
            continue
        errors = []
        for backend in backends:
            try:
                backend.alias(model.name, model.architecture)
            except BackendError as error:
                errors.append(error)
        if len(errors) == len(backends):
            raise ConfigError(f"models: {model.name} with the architecture {model.architecture}: {errors[0]}")


def allocate(
    allocation: Allocation,
    frontend: FrontEnd,
    cluster: ClusterSettings | PooledSettings,
    of_gpus: Sequence[Kind],
    models: Mapping[str, Model],
    residency: ModelResidency | None,
) -> tuple[list[str], list[list[str]] | None]:
    """Return the role that each GPU starts with, and all that it serves; None if it serves any request.

    Raises:
        ConfigError: a role without a model, or a placement on GPUs of several kinds.
        SimulationError: the allocation returned what are no roles, or left a GPU or a model out.
    """
    if isinstance(allocation, Placement) and isinstance(frontend, ByBaseModel):
        placed = _place(allocation, cluster, of_gpus, models, frontend.shares, residency)
        return [served[0] for served in placed], placed
    return roles(allocation, cluster, of_gpus, models), None


def _place(
    placement: Placement,
    cluster: ClusterSettings | PooledSettings,
    of_gpus: Sequence[Kind],
    models: Mapping[str, Model],
    shares: Mapping[str, float],
    residency: ModelResidency | None,
) -> list[list[str]]:
    """Return the roles that each GPU serves, the one that it starts with first.

    Args:
        shares: role -> share of the requests, the most popular first.

    Raises:
        ConfigError: GPUs of several kinds.
        SimulationError: the placement left a GPU or a model out, or returned what are no roles.
    """
    if not isinstance(cluster, ClusterSettings):
        raise ConfigError(
            "cluster.pools: found it beside a placement of base models, which is of one kind of GPU; choose another "
            "cluster=, or allocation=uniform-large"
        )
    gpu, backend = of_gpus[0]
    if residency is not None:
        residency.check({gpu: backend}, [models[role] for role in shares])
    slots = 1 if residency is None else residency.slots(gpu, backend, [models[role] for role in shares])
    placed = placement.place(cluster.count, shares, slots)
    served = {role for on in placed for role in on}
    if len(placed) != cluster.count or not all(placed) or not shares.keys() <= served <= models.keys():
        raise SimulationError(
            f"{class_name(placement)} placed {placed} on {cluster.count} GPUs; expected for each one or more of "
            f"{', '.join(shares)}, and each of these on one"
        )
    return placed


def fleet_log(
    frontend: FrontEnd, residency: ModelResidency | None, models: Mapping[str, Model], rows: int, first: int
) -> FleetLog | None:
    """Return the log of a run of several base models, or whose GPUs keep several models; else None.

    Args:
        rows, first: number of served requests, and the trace row of the first.
    """
    if residency is None and not isinstance(frontend, ByBaseModel):
        return None
    names: dict[str, list[str]] = {role: [] for role in models}
    if isinstance(frontend, ByBaseModel):
        names = {role: frontend.base_models.get(role, []) for role in frontend.shares}
    of_model: dict[str, list[str]] = {}
    for role, base_models in names.items():
        of_model.setdefault(models[role].name, []).extend(base_models)
    return FleetLog(rows, first, of_model)
