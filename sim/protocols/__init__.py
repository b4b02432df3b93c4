"""The protocols: the parts of a system, and the run that they are given.

A policy is one class with the abstract methods of one of these protocols, and one YAML file that names it
(``_target_: my_module.MyClass``) beside the arguments of its constructor. Methods with a body may be left out, and
inheriting from the protocol is optional. Every part is bound to the run once, before the clock starts. A class of your
own is made known with ``mezzotint run --plugin my_module --config-dir my_yaml``.

- FrontEnd (``frontend=``): which model serves a request, and from which step.
- Scheduler (``scheduler=``): which request runs next, and where.
- Router, Discipline (``router=``, ``discipline=``): to which worker's queue, and in which order it is served.
- Executor (``executor=``): how a worker runs requests.
- GroupPolicy, Estimates (``group_policy=``, ``estimates=``): the GPUs of each stage, chosen anew at step boundaries.
- Steps, FeatureCache (``batching=``, ``feature_cache=``): the stage costs of continuous batching.
- Admission, Eviction, Selector, MatchPredictor (``admission=``, ...): what is stored, evicted and reused.
- Client (``client=``): when a request is sent, how long its answer is waited for, and whether it is sent again.
- Controller, Allocation (``controller=``, ``allocation=``): the roles of GPUs.
- ControlNetPlacement, LoraLoading, LoraFetch (``controlnet_placement=``, ...): add-ons.
"""

from mezzotint.backends.base import FREE, Asset, Cost, Work, WorkFailed
from mezzotint.sim.core.progress import StageCost
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols.addons import ControlNetPlacement, Loads, LoraFetch, LoraLoading
from mezzotint.sim.protocols.cache import (
    Admission,
    Change,
    Delay,
    Eviction,
    Item,
    MatchPredictor,
    Partition,
    Selector,
    Watcher,
)
from mezzotint.sim.protocols.client import Cancellation, Client, Sender
from mezzotint.sim.protocols.cluster import Cluster
from mezzotint.sim.protocols.control import Allocation, Controller, Placement
from mezzotint.sim.protocols.execution import Executor, FeatureCache, StepCosts, Steps
from mezzotint.sim.protocols.frontend import CascadeFrontEnd, FrontEnd
from mezzotint.sim.protocols.groups import (
    NEVER,
    NOBODY,
    CostOf,
    Estimates,
    GroupPolicy,
    Launch,
    Rank,
    StageView,
    Stand,
)
from mezzotint.sim.protocols.run import AttemptLog, Log, RequestColumn, Run
from mezzotint.sim.protocols.scheduling import BatchQueues, Discipline, Router, Scheduler, Stepper, StepsUntil

__all__ = [
    "FREE",
    "NEVER",
    "NOBODY",
    "Admission",
    "Allocation",
    "Asset",
    "AttemptLog",
    "BatchQueues",
    "Cancellation",
    "CascadeFrontEnd",
    "Change",
    "Client",
    "Cluster",
    "ControlNetPlacement",
    "Controller",
    "Cost",
    "CostOf",
    "Delay",
    "Discipline",
    "Estimates",
    "Eviction",
    "Executor",
    "FeatureCache",
    "FrontEnd",
    "GroupPolicy",
    "Item",
    "Launch",
    "Loads",
    "Log",
    "LoraFetch",
    "LoraLoading",
    "MatchPredictor",
    "Partition",
    "Placement",
    "Rank",
    "Request",
    "RequestColumn",
    "Router",
    "Run",
    "Scheduler",
    "Selector",
    "Sender",
    "StageCost",
    "StageView",
    "Stand",
    "StepCosts",
    "Stepper",
    "Steps",
    "StepsUntil",
    "Watcher",
    "Work",
    "WorkFailed",
    "Worker",
]
