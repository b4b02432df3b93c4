"""The seam: what every part of a system promises, and what it finds when it is bound. A new behaviour is one class with
the abstract methods of one of these protocols, and one YAML file that names it; the other methods may be left out."""

from sim.parts.addons import ControlNets, Fetch, Loads, Loras
from sim.parts.cluster import Cluster
from sim.parts.reuse import Admission, Change, Delay, Eviction, Item, Predictor, Selector, Shape, Watcher
from sim.parts.run import Fact, Log, Run
from sim.parts.serving import (
    Allocation,
    Controller,
    Course,
    Discipline,
    Door,
    Executor,
    FeatureCache,
    Patience,
    Priced,
    Router,
    Scheduler,
    Stepper,
    Steps,
)
from sim.worker import Worker

__all__ = [
    "Admission",
    "Allocation",
    "Change",
    "Cluster",
    "ControlNets",
    "Controller",
    "Course",
    "Delay",
    "Discipline",
    "Door",
    "Eviction",
    "Executor",
    "Fact",
    "FeatureCache",
    "Fetch",
    "Item",
    "Loads",
    "Log",
    "Loras",
    "Patience",
    "Predictor",
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
