"""The GPUs of a run: the pools of its configuration, the costs of work on each kind, and the role of each GPU."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mezzotint.backends.base import Backend, BackendError
from mezzotint.backends.profile import shipped, within
from mezzotint.backends.scaling import parse
from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model, reference
from mezzotint.sim.protocols import Allocation
from mezzotint.sim.protocols.cluster import SERVER
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.choices import gpus
from mezzotint.sim.run.config.plugins import TARGET
from mezzotint.sim.run.config.settings import ClusterSettings, PooledSettings


@dataclass(frozen=True, slots=True)
class Pool:
    """``count`` GPUs of one kind; ``role`` is None if the allocation decides."""

    gpu: Gpu
    count: int
    role: str | None = None


def pools(cluster: ClusterSettings | PooledSettings) -> list[Pool]:
    """Return the pools of ``cluster``. Raises ConfigError for an unknown kind, or two kinds of one name."""
    if isinstance(cluster, ClusterSettings):
        return [Pool(build(cluster.gpu, "cluster.gpu", Gpu), cluster.count)]
    read: list[Pool] = []
    by_name: dict[str, Gpu] = {}
    for index, pool in enumerate(cluster.pools):
        key = f"cluster.pools.{index}.gpu"
        settings = _settings(pool.gpu, key) if isinstance(pool.gpu, str) else pool.gpu
        gpu: Gpu = build({TARGET: "mezzotint.sim.core.gpu.Gpu", **settings}, key, Gpu)
        if gpu != by_name.setdefault(gpu.name, gpu):
            raise ConfigError(
                f"{key}: found other settings of {gpu.name} than in a pool before; give GPUs of one name the same"
            )
        read.append(Pool(gpu, pool.count, pool.role))
    return read


def _settings(kind: str, key: str) -> dict[str, Any]:
    """Return the settings of a ``kind`` of conf/data/gpus.yaml, whatever its case. Raises ConfigError for another."""
    if (row := gpus().get(kind.lower())) is None:
        hint = suggest(kind, gpus(), "mezzotint list cluster")
        raise ConfigError(f"{key}: found {kind!r}; {hint} Or give the settings of a kind (mezzotint.sim.core.gpu.Gpu)")
    settings: dict[str, Any] = row["cluster"]["gpu"]
    return settings


def kinds(node: Mapping[str, Any], cluster: ClusterSettings | PooledSettings) -> list[Kind]:
    """Return the kind of each GPU of ``cluster``, with the backend that ``node`` describes.

    Raises:
        ConfigError: several kinds, and the backend cannot be of each, or names one.
    """
    of_pools = pools(cluster)
    if isinstance(assume := node.get("assume"), str):  # a value of another type is refused where it is built
        folder = node.get("folder")
        own = [shipped(), *([Path(folder)] if isinstance(folder, str) else [])]
        check_assumed(assume, {*gpus(), *(pool.gpu.name for pool in of_pools)}, own)
    if isinstance(cluster, ClusterSettings):
        return [Kind(of_pools[0].gpu, build(node, "backend", Backend))] * cluster.count
    if "gpu" not in node:
        raise ConfigError(
            f"cluster.pools: {node.get(TARGET)} has no setting gpu, so that it cannot cost work on a kind of GPU; "
            "choose backend=profiled, or a cluster= without pools"
        )
    if node["gpu"] is not None:
        raise ConfigError(f"backend.gpu: found {node['gpu']!r} beside cluster.pools, each with its own kind; remove it")
    names = dict.fromkeys(pool.gpu.name for pool in of_pools)
    backends = {name: build({**node, "gpu": name}, "backend", Backend) for name in names}
    return [Kind(pool.gpu, backends[pool.gpu.name]) for pool in of_pools for _ in range(pool.count)]


def check_assumed(assume: str, known: Collection[str], folders: Sequence[Path | Traversable]) -> None:
    """Raise ConfigError if ``assume`` cannot be read, or names a kind of GPU that nobody knows.

    Args:
        known: kinds that seconds may be scaled to, and from.
        folders: folders with profiles of further kinds that they may be scaled from.
    """
    try:
        scalings = parse(assume)
    except BackendError as error:
        raise ConfigError(str(error)) from None
    for scaling in scalings:
        if scaling.gpu not in known:
            raise ConfigError(
                f"assume: {scaling}: {scaling.gpu} is no kind of GPU; {suggest(scaling.gpu, sorted(known))}"
            )
        if scaling.like in known:
            continue
        try:
            profiled = {profile.gpu for folder in folders for profile in within(folder)}
        except BackendError as error:
            raise ConfigError(str(error)) from None
        if scaling.like not in profiled:
            hint = suggest(scaling.like, sorted({*known, *profiled}))
            raise ConfigError(f"assume: {scaling}: {scaling.like} is no kind of GPU; {hint}")


def roles(
    allocation: Allocation,
    cluster: ClusterSettings | PooledSettings,
    of_gpus: Sequence[Kind],
    models: Mapping[str, Model],
) -> list[str]:
    """Return the role of each GPU: its pool's, else the one that ``allocation`` gives it.

    The allocation decides over the GPUs of each kind without a role, as over a cluster of that kind.

    Raises:
        ConfigError: a role without a model, or with one that has no profile on the kind.
        SimulationError: the allocation returned what are no roles.
    """
    if isinstance(cluster, ClusterSettings):
        return _allocate(allocation, cluster.count, models, of_gpus[0].backend)
    given = [pool.role for pool in cluster.pools for _ in range(pool.count)]
    undecided = Counter(kind.gpu.name for kind, role in zip(of_gpus, given, strict=True) if role is None)
    backends = {kind.gpu.name: kind.backend for kind in of_gpus}
    decided = {}
    for name, count in undecided.items():
        try:
            decided[name] = iter(_allocate(allocation, count, models, backends[name]))
        except (ConfigError, BackendError) as error:
            raise ConfigError(f"cluster.pools: the {count} of kind {name} that have no role: {error}") from None
    names = [kind.gpu.name for kind in of_gpus]
    chosen = [next(decided[name]) if role is None else role for name, role in zip(names, given, strict=True)]
    for name, role in dict.fromkeys(zip(names, chosen, strict=True)):
        if role == SERVER:
            continue
        if role not in models:
            raise ConfigError(
                f"cluster.pools: found the role {role!r}, expected one of {', '.join(models)}; choose another models="
            )
        try:
            backends[name].require(models[role].name)
        except BackendError as error:
            raise ConfigError(f"cluster.pools: the role {role!r} on the kind {name}: {error}") from None
    if set(chosen) <= {SERVER}:
        raise ConfigError(f"cluster.pools: every GPU has the role {SERVER!r}; leave some for a model")
    return chosen


def check_reference(of_gpus: Sequence[Kind], models: Mapping[str, Model]) -> None:
    """Raise ConfigError if the first of several kinds cannot serve the reference model of latency limits."""
    if len({kind.gpu.name for kind in of_gpus}) > 1:
        gpu, backend = of_gpus[0]
        try:
            backend.require(reference(models).name)
        except BackendError as error:
            raise ConfigError(
                f"cluster.pools: latencies and savings are relative to {reference(models).name} on the first pool's "
                f"kind, {gpu.name}, and it has {error}"
            ) from None


def _allocate(allocation: Allocation, gpus: int, models: Mapping[str, Model], backend: Backend) -> list[str]:
    """Return the roles that ``allocation`` gives to GPUs of one kind. Raises SimulationError if they are no roles."""
    roles, known = allocation.roles(gpus, MappingProxyType(models), backend), {*models, SERVER}
    if len(roles) != gpus or not known.issuperset(roles) or set(roles) <= {SERVER}:
        raise SimulationError(
            f"{class_name(allocation)} gave the roles {roles} to {gpus} GPUs; expected one of "
            f"{', '.join(sorted(known))} for each, and a model on one"
        )
    return roles
