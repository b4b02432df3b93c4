"""Small clusters to try laws on: an engine with any part replaced, and runs composed from conf/."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from backends.base import Asked, Asset, Assumption, Cost, Work
from sim.cluster.whole import WholeRequest
from sim.cluster.worker import Gpu, Worker
from sim.engine import Engine, Model
from sim.reuse.door import Direct
from sim.run import Outcome, simulate
from sim.schedule.fcfs import Fcfs
from traces.arrivals import Schedule
from traces.search import Exact


class Given:
    """A backend whose full generation of row i takes ``full_s[i]``; the steps that are left take their share."""

    live = False
    quality_basis = None

    def __init__(self, full_s: Sequence[float], load_s: float = 0.0) -> None:
        self.full_s = full_s
        self.swap_s = load_s

    def open(self, asked: Asked) -> None:
        pass

    def require(self, model: str) -> None:
        pass

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost(sum(self.full_s[work.row] * (count / work.steps) for work in works))

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0)

    def load(self, asset: Asset) -> Cost:
        return Cost(self.swap_s)

    def bytes(self, asset: Asset) -> int | None:
        return None

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        return None

    def assumptions(self) -> list[Assumption]:
        return []


def engine(times: Any, full_s: Any, count: int = 1, **parts: Any) -> Engine:
    """An engine of ``count`` whole-request workers, vanilla unless told otherwise."""
    preload = parts.get("preload", 0)
    rows = len(full_s) - preload
    schedule = times if isinstance(times, Schedule) else Schedule(np.asarray(times, float))
    models = {role: Model(role, 50, 64, 64) for role in ("large", "small")}
    settings: dict[str, Any] = {
        "schedule": schedule,
        "shapes": tuple(np.full(rows + preload, value, np.int32) for value in (64, 64, 50)),
        "models": models,
        "gpu": Gpu("test", 300.0, 60.0, "made up"),
        "workers": [Worker(i, "large", "large") for i in range(count)],
        "backend": Given([float(s) for s in full_s]),
        "door": Direct(),
        "scheduler": Fcfs(),
        "executor": WholeRequest(),
        "seed": 0,
        "search": Exact(),
        "embeddings": lambda: np.eye(rows + preload, dtype=np.float32),
    }
    return Engine(**(settings | parts))


def configured(*overrides: str) -> dict[str, Any]:
    """The resolved configuration, as the command line would compose it."""
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", overrides=["run.dir=unused", *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def simulated(*overrides: str) -> Outcome:
    """One finished simulation."""
    return simulate(configured(*overrides))
