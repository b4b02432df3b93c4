"""Controller with hindsight: it follows the best splits for the load that a finished run recorded."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from mezzotint.backends.base import Asset
from mezzotint.settings.ranges import Amount, Count, SomeSeconds
from mezzotint.sim.control.monitor import WindowCounts
from mezzotint.sim.control.optimal_split import Fleet, Split, SplitPlan, Weights, best_plan
from mezzotint.sim.control.roles import gpus_in_role, role_gauge
from mezzotint.sim.control.split import Demand
from mezzotint.sim.control.timetable import Timetable
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.plan import HIT, LOOKUPS
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.core.workload import capacity_rpm
from mezzotint.sim.metrics.run_files import read_columns
from mezzotint.sim.protocols import Controller, Run


@dataclass(slots=True)
class Hindsight(Controller):
    """Split the cluster in the best way for a load known beforehand (mezzotint.sim.control.optimal_split): a yardstick.

    A finished run of the same trace and arrivals gives the load of each window: requests, hits, and the steps that hits
    had left. Under other splits this run may have a few other hits.

    Args:
        folder: run directory of that run.
        mode: ``quality`` counts the GPU time that small models hold, and large ones take hits; ``throughput`` does not.
        period_s: length of a window.
        waiting, small: weights of the objective (optimal_split.Weights); in throughput mode ``small`` is 0.
        max_kept: ways that the search keeps for each split.
        batch: batch size whose throughput counts as a GPU's.
        miss_role: role that takes misses.
    """

    folder: str
    mode: Literal["quality", "throughput"] = "quality"
    period_s: SomeSeconds = 180.0
    waiting: Amount = 10.0
    small: Amount = 1.0
    max_kept: Count = 200
    batch: Count = 1
    miss_role: str = "large"
    plan: SplitPlan = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        in_role(run.models, self.miss_role)
        ladder = [role for role in run.models if role != self.miss_role]
        if not ladder:
            raise ConfigError("controller: GPUs are split between two models or more; choose another models=")
        cluster, remedy = run.cluster, "choose controller=modm-throughput or modm-quality"
        check_one_kind(cluster.kinds, "controller=modm-hindsight", "its plan is of a cluster of", remedy)
        start = Split(
            gpus_in_role(cluster, self.miss_role), int(np.argmax([gpus_in_role(cluster, role) for role in ladder]))
        )
        load = recorded_demand(Path(self.folder), self.period_s)
        fleet = self._fleet(run, ladder)
        self.plan = best_plan(fleet, Weights(self.waiting, self._small), start, load, self.max_kept)
        for role in run.models:
            run.gauge(f"gpus_{role}", role_gauge(cluster, role))
        truncated = f"the cheapest of {self.max_kept} ways kept for each split"
        found = "no plan is cheaper" if self.plan.exact else truncated
        run.assume(
            "splits planned in hindsight, their cost [GPU-min]",
            [len(load), round(self.plan.cost, 3)],
            f"sim.control.optimal_split, weights: waiting {self.waiting:g}, small {self._small:g}, loading 1; {found}",
        )
        splits = {
            number * self.period_s: {self.miss_role: split.large, ladder[split.rung]: cluster.gpus - split.large}
            for number, split in enumerate(self.plan.splits)
        }
        Timetable(splits).bind(run)

    @property
    def _small(self) -> float:
        return self.small if self.mode == "quality" else 0.0

    def _fleet(self, run: Run, ladder: list[str]) -> Fleet:
        def rpm(role: str) -> float:
            return capacity_rpm(run.backend, run.model(role), self.batch)

        def load_s(role: str) -> float:
            name = run.model(role).name
            return run.backend.load(Asset("model", name, name)).seconds

        gpus, quality = run.cluster.gpus, self.mode == "quality"
        return Fleet(
            gpus,
            rpm(self.miss_role),
            tuple(map(rpm, ladder)),
            load_s(self.miss_role),
            tuple(map(load_s, ladder)),
            self.period_s,
            gpus if quality else max(1, gpus - 1),
            quality,
        )


def recorded_demand(folder: Path, period_s: float) -> list[Demand]:
    """Return the load of each window of the run in ``folder``, from 0 s to its last arrival. Raises ConfigError if
    there is none."""
    try:
        rows = read_columns(folder / REQUESTS, ("arrival_s", "lookup", "skipped", "steps"))
    except ConfigError as error:
        raise ConfigError(f"controller.folder: {folder} holds no run of the same trace; {error}") from None
    arrival_s, skipped, steps = (rows[name].to_numpy() for name in ("arrival_s", "skipped", "steps"))
    hit = (rows["lookup"] == LOOKUPS[HIT]).to_numpy()
    left = np.where(hit, 1 - skipped / steps, 0.0)
    window = arrival_s // period_s
    ends = np.searchsorted(window, np.arange(window[-1] + 1), side="right").tolist()  # rows are in the order of arrival
    spans = [slice(first, end) for first, end in pairwise([0, *ends])]
    return [
        WindowCounts(span.stop - span.start, int(hit[span].sum()), float(left[span].sum())).demand(period_s)
        for span in spans
    ]
