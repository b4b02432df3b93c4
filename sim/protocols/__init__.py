"""The seam: what every part of a system promises, and what it finds when it is bound. A new behaviour is one class with
the abstract methods of one of these protocols, and one YAML file that names it; the other methods may be left out."""

from sim.core.worker import Worker
from sim.protocols.addons import ControlNetPlacement, Loads, LoraFetch, LoraLoading
from sim.protocols.cache import Admission, Change, Delay, Eviction, Item, MatchPredictor, Selector, Shape, Watcher
from sim.protocols.cluster import Cluster
from sim.protocols.run import Log, RequestColumn, Run
from sim.protocols.serving import (
    Allocation,
    Controller,
    Discipline,
    Executor,
    FeatureCache,
    FrontEnd,
    Priced,
    Router,
    Scheduler,
    StepCosts,
    Stepper,
    Steps,
    StepsUntil,
)

__all__ = [
    "Admission",
    "Allocation",
    "Change",
    "Cluster",
    "ControlNetPlacement",
    "Controller",
    "StepCosts",
    "Delay",
    "Discipline",
    "FrontEnd",
    "Eviction",
    "Executor",
    "RequestColumn",
    "FeatureCache",
    "LoraFetch",
    "Item",
    "Loads",
    "Log",
    "LoraLoading",
    "StepsUntil",
    "MatchPredictor",
    "Priced",
    "Router",
    "Run",
    "Scheduler",
    "Selector",
    "Shape",
    "Stepper",
    "Steps",
    "Watcher",
    "Worker",
]
