"""Small clusters to test laws on: an engine with any part replaced, and runs composed from conf/."""

from array import array
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from mezzotint.backends.base import Asset, Backend, Cost, RequestInputs, Work
from mezzotint.files.document import parse
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.workload import SimilarityInputs, StandaloneLatency, Workload
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.run.config.choices import CONF
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.sim.run.tries import Rows
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.exact import Exact


class FixedTimes(Backend):
    """A full generation of row i takes ``full_s[i]``, and a partial one its share of that. A batch takes as long as its
    slowest member alone."""

    live = False
    by_row = True
    quality_basis: str | None = None

    def __init__(self, full_s: Sequence[float], load_s: float = 0.0) -> None:
        self.full_s = full_s
        self.swap_s = load_s

    def open(self, asked: RequestInputs) -> None:
        pass

    def require(self, model: str) -> None:
        pass

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        seconds = max(self.full_s[work.row] * (count / work.steps) for work in works)
        for work in works:
            work.done += count
        return Cost(seconds)

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
    """Build an engine of ``count`` whole-request workers, vanilla by default. ``preload``, ``use_model_shape``,
    ``shapes``, ``deadline``, ``own_deadline_s`` and ``priority`` set the workload, ``embeddings``, ``search``,
    ``similarity_map`` and ``named`` the similarity, and
    ``roles`` the roles of the GPUs."""
    preload = parts.pop("preload", 0)
    total = len(full_s)
    schedule = times if isinstance(times, Schedule) else Schedule(np.asarray(times, float))
    # A row for each try that a client may send (mezzotint.sim.run.tries).
    max_tries = parts["client"].max_tries if "client" in parts else 1
    full_s = Rows(total, preload, max_tries).of(np.asarray(full_s, float))
    total = len(full_s)
    models = parts.pop("models", {role: Model(role, 50, 64, 64) for role in ("large", "small")})
    backend = parts.pop("backend", None) or FixedTimes([float(s) for s in full_s])
    shapes = parts.pop("shapes", tuple(np.full(total, value, np.int32) for value in (64, 64, 50)))
    full = np.asarray(full_s, float)
    workload = Workload(
        schedule,
        shapes,
        StandaloneLatency(full, full),
        use_model_shape=parts.pop("use_model_shape", True),
        preload=preload,
        deadline=parts.pop("deadline", float("inf")),
        own_deadline_s=parts.pop("own_deadline_s", None),
        priority=array("i", parts.pop("priority", ())),
        addons=parts.pop("addons", None),
        column_codes=parts.pop("column_codes", None),
        column_values=parts.pop("column_values", None),
        max_tries=max_tries,
    )
    similarity = SimilarityInputs(
        parts.pop("embeddings", lambda: np.eye(total, dtype=np.float32)),
        **{"search": Exact()}
        | {name: parts.pop(name) for name in ("search", "similarity_map", "named") if name in parts},
    )
    gpu = parts.pop("gpu", Gpu("test", 300.0, 60.0, "made up"))
    roles = parts.pop("roles", ["large"] * count)
    settings: dict[str, Any] = {
        "workload": workload,
        "similarity": similarity,
        "models": models,
        "cluster": Cluster([Kind(gpu, backend)] * len(roles), roles, models),
        "backend": backend,
        "frontend": Direct(),
        "scheduler": Fcfs(),
        "executor": Sequential(),
        "seed": 0,
    }
    settings |= parts
    if getattr(settings["executor"], "group_policy", None) is not None:
        settings["scheduler"] = settings["executor"]
    return Engine(**settings)


def configured(*overrides: str) -> dict[str, Any]:
    """Return the resolved configuration, as the command line would compose it."""
    plain = OmegaConf.to_container(compose_config(["run.dir=unused", *overrides]), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def simulated(*overrides: str) -> Outcome:
    """Run one simulation to its end."""
    return simulate(configured(*overrides))


_configured = cache(configured)


def simulated_with(group: str, choice: str, *overrides: str, **settings: Any) -> Outcome:
    """Run ``overrides`` with another ``choice`` of a part, whose file names no other, and ``settings`` of it.

    What `simulated` does with GROUP=CHOICE, but all choices of the group share one composition by Hydra (.3 s).
    """
    node = parse((CONF / group / f"{choice}.yaml").read_bytes())
    assert "defaults" not in node
    return simulate(deepcopy(_configured(*overrides)) | {group: node | settings})
