"""Parts together: the scheduler, a group policy for each pool, and refusals of pairs that no part can see."""

from collections.abc import Collection, Mapping, Sequence

from mezzotint.backends.base import size_text
from mezzotint.sim.control.instances import RentingController
from mezzotint.sim.control.roles import HitSplitter, RoleController
from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model, in_role
from mezzotint.sim.core.server import Server, Size
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.frontend.by_base_model import ByBaseModel
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.frontend.cascade import Cascade
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Allocation, Controller, Executor, FrontEnd, Placement, Scheduler
from mezzotint.sim.protocols.cluster import SERVER
from mezzotint.sim.scheduling.batching.dynamic import DynamicBatching
from mezzotint.sim.scheduling.batching.mlperf import MlperfBatching
from mezzotint.sim.scheduling.central import CentralQueue
from mezzotint.sim.scheduling.disciplines.shortest_remaining import ShortestRemaining
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.sim.scheduling.group_policies.by_pool import ByPool
from mezzotint.sim.scheduling.hit_miss import HitMiss
from mezzotint.sim.scheduling.hit_miss_per_worker import HitMissPerWorker
from mezzotint.sim.scheduling.resident_first import ResidentFirst
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues

IGNORES_ROLES = (Fcfs, CentralQueue, DynamicBatching, MlperfBatching)
"""Schedulers that give a request to any GPU, which then loads the model of the request."""


def check_together(
    failures: Controller | None,
    controller: Controller | None,
    frontend: FrontEnd,
    scheduler: Scheduler,
    executor: Executor,
) -> None:
    """Raise ConfigError if a controller cannot work with the other parts, or would be without effect on them."""
    if isinstance(controller, RentingController) and failures is not None:
        raise ConfigError(
            "failures: found outages beside a controller that gives GPUs back, and a failed GPU is not replaced; "
            "choose failures=none or controller=none"
        )
    preempts = isinstance(getattr(scheduler, "discipline", None), ShortestRemaining)
    if preempts and isinstance(controller, RentingController | RoleController):
        does = "gives GPUs back" if isinstance(controller, RentingController) else "changes the roles of GPUs"
        raise ConfigError(
            f"discipline: found one that preempts beside a controller that {does}, and moving a preempted "
            "request is not modelled; choose another discipline= or controller=none"
        )
    if isinstance(controller, RoleController) and isinstance(scheduler, IGNORES_ROLES):
        raise ConfigError(
            f"scheduler: found {type(scheduler).__name__}, which gives a request to any GPU whatever its role, beside "
            f"the controller {type(controller).__name__}, which orders roles; choose scheduler=hit-miss-shared, "
            "hit-miss-per-worker or per-worker, or controller=none"
        )
    if isinstance(controller, HitSplitter) and not _has_hits_on_another(frontend):
        raise ConfigError(
            f"controller: found {type(controller).__name__}, which splits GPUs between misses on one model and hits on "
            f"another, beside a front end ({type(frontend).__name__}) without such hits; choose frontend=modm, or "
            "controller=none"
        )
    if isinstance(controller, HitSplitter) and not controller.leaves_one_small():
        _check_hits_run(controller, scheduler, executor)


def check_server(server: Server, failures: Controller | None, controller: Controller | None, is_live: bool) -> None:
    """Raise ConfigError for settings of ``server`` without effect, or beside a live backend."""
    if not server.is_asked:
        return
    if is_live:
        raise ConfigError(
            "server: found settings beside a live backend, which loads and compiles itself; leave them out, or add "
            "backend=profiled"
        )
    rents = controller is not None and (
        isinstance(controller, RentingController) or not is_ours(type(controller).__module__)
    )
    if server.begin == "warm" and failures is None and not rents:
        raise ConfigError(
            "server: found settings, and no server starts in this run; add server.begin=ready or cold, or "
            "failures=crashes, or leave them out"
        )
    if server.warm_up and server.compile == "off":
        raise ConfigError(
            "server.warm_up: found sizes beside server.compile=off, which compiles nothing; leave one of them out"
        )


def check_warm_up(server: Server, sizes: Collection[Size]) -> None:
    """Raise ConfigError if no request has one of the sizes that ``server`` compiles at its start."""
    if server.warm_up and set(server.warm_up).isdisjoint(sizes):
        named = ", ".join(size_text(*size) for size in sorted(sizes)[:8]) + (", ..." if len(sizes) > 8 else "")
        found = ", ".join(size_text(*size) for size in server.warm_up)
        raise ConfigError(f"server.warm_up: no request has the size {found}; name some of {named}, or add shapes=trace")


def check_placement(
    allocation: Allocation, frontend: FrontEnd, scheduler: Scheduler, executor: Executor, controller: Controller | None
) -> None:
    """Raise ConfigError if ``allocation`` is a placement of base models, and the other parts would not follow it."""
    if not isinstance(allocation, Placement):
        return
    if not isinstance(frontend, ByBaseModel):
        raise ConfigError(
            f"allocation: found a placement of base models beside the front end {type(frontend).__name__}, which tells "
            "none apart; add frontend=by-base-model, or choose allocation=uniform-large"
        )
    if isinstance(executor, Stages) and executor.group_policy is not None:
        raise ConfigError(
            "allocation: found a placement of base models beside a group policy, which gives any of its GPUs to a "
            "request; choose allocation=uniform-large, or no group_policy= with scheduler=resident-first"
        )
    if is_ours(class_name(scheduler)) and not isinstance(scheduler, ResidentFirst | PerWorkerQueues):
        raise ConfigError(
            f"allocation: found a placement of base models beside the scheduler {type(scheduler).__name__}, which "
            "gives a request to any GPU; choose scheduler=resident-first or per-worker, or allocation=uniform-large"
        )
    if controller is not None:
        raise ConfigError(
            f"controller: found {type(controller).__name__} beside a placement of base models, which stands for the "
            "whole run; choose controller=none, or allocation=uniform-large"
        )


def _has_hits_on_another(frontend: FrontEnd) -> bool:
    """Return True unless ``frontend`` is known to run its hits on the model of its misses, or to have none."""
    if isinstance(frontend, CachedFrontEnd):
        return frontend.hit_role != frontend.miss_role
    return not isinstance(frontend, ByBaseModel | Direct | Cascade)


def _check_hits_run(controller: Controller, scheduler: Scheduler, executor: Executor) -> None:
    """Raise ConfigError if hits wait for a small model, and ``controller`` may give every GPU the large one."""
    waits = f"controller: found {type(controller).__name__}, which may leave no GPU with a small model"
    if isinstance(scheduler, HitMiss) and not scheduler.large_takes_hits:
        raise ConfigError(
            f"{waits}, and hits wait for one under scheduler=hit-miss; choose scheduler=hit-miss-shared, or "
            "controller=modm-throughput"
        )
    if isinstance(executor, Stages) and executor.group_policy is not None:
        raise ConfigError(
            f"{waits}, and hits wait for one under a group policy; choose controller=modm-throughput, or no "
            "group_policy="
        )


def check_roles(
    frontend: FrontEnd,
    scheduler: Scheduler,
    controller: Controller | None,
    of_gpus: Sequence[str],
    models: Mapping[str, Model],
) -> None:
    """Raise ConfigError if a scheduler that queues by role has a queue that no GPU serves.

    Args:
        of_gpus: the role of each GPU at the start. A controller may change it.
    """
    if not isinstance(scheduler, HitMiss | HitMissPerWorker):
        return
    model = in_role(models, scheduler.miss_role).name
    if isinstance(scheduler, HitMissPerWorker) and isinstance(frontend, Direct) and models[frontend.role].name != model:
        raise ConfigError(
            f"frontend.role: found {frontend.role}, and scheduler=hit-miss-per-worker gives all but hits to the role "
            f"{scheduler.miss_role}; choose frontend=direct-large, or scheduler=fcfs"
        )
    if isinstance(scheduler, HitMissPerWorker) and isinstance(frontend, ByBaseModel):
        others = [role for role in frontend.shares if models[role].name != model]
        if others:
            raise ConfigError(
                f"frontend: found requests for the role {others[0]}, and scheduler=hit-miss-per-worker gives all but "
                f"hits to the role {scheduler.miss_role}; choose scheduler=resident-first, per-worker or fcfs"
            )
    if controller is not None:
        return
    roles = set(of_gpus) & set(models)
    has = f"found GPUs in the role {' and '.join(sorted(roles))} alone"
    if scheduler.miss_role not in roles:
        raise ConfigError(
            f"allocation: {has}, and the scheduler gives misses to the role {scheduler.miss_role}; choose "
            "allocation=last-small or fixed-split, or scheduler=fcfs"
        )
    waits_for_small = isinstance(scheduler, HitMiss) and not scheduler.large_takes_hits
    if waits_for_small and isinstance(frontend, CachedFrontEnd) and roles == {scheduler.miss_role}:
        raise ConfigError(
            f"allocation: {has}, and scheduler=hit-miss gives hits to other roles; choose allocation=last-small or "
            "fixed-split, or scheduler=hit-miss-shared"
        )


def choose_scheduler(chosen: Scheduler | None, executor: Executor) -> Scheduler:
    """Return the scheduler of a run. Raises ConfigError if none is chosen and needed, or if there are two."""
    policy = executor.group_policy if isinstance(executor, Stages) else None
    if chosen is not None and policy is not None:
        raise ConfigError(
            f"scheduler: found {type(chosen).__name__} beside the group policy {type(policy).__name__}, which gives "
            "GPUs to stages; choose scheduler=stages, or no group_policy="
        )
    if isinstance(executor, Stages) and policy is not None:
        return executor
    if chosen is None:
        raise ConfigError(
            f"scheduler: none is chosen beside {type(executor).__name__}; add scheduler=fcfs, or executor=stages with "
            "a group_policy="
        )
    return chosen


def split_by_pool(
    executor: Stages, models: Mapping[str, Model], of_gpus: Sequence[str], controller: Controller | None, kinds: int
) -> None:
    """Give each model its group policy where GPUs have several roles or a controller orders new ones; each kind, too.

    Raises ConfigError for a group policy that counts on the GPUs that it began with.
    """
    policy = executor.group_policy
    if policy is None:
        return
    orders_roles = controller is not None and not isinstance(controller, RentingController)
    served = {in_role(models, role).name for role in of_gpus if role != SERVER}
    by_role = len(served) > 1 or (orders_roles and len(models) > 1)
    # Of controllers from elsewhere it is not known what they order; the cluster refuses what they do.
    orders = controller is not None and is_ours(class_name(controller))
    if not policy.follows_gpus and (orders or kinds > 1):
        key, remedy = "cluster.pools", "one kind of GPU"
        found = f"{kinds} kinds of GPUs"
        if orders:
            key, remedy, found = "controller", "controller=none", type(controller).__name__
        raise ConfigError(
            f"{key}: found {found} beside the group policy {type(policy).__name__}, which counts on the GPUs that it "
            f"began with, all alike; choose {remedy}, or group_policy=edf-best-fit, fixed-degree, rounds or tetriserve"
        )
    if policy.follows_gpus and (by_role or kinds > 1):
        executor.group_policy = ByPool(policy, by_role)
