"""Attempts: a record of every run of a stage on some GPUs, the table of attempts.parquet."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.progress import BatchShare


@dataclass(slots=True)
class ComponentUse:
    """Use of GPUs by the attempts of a component.

    Attributes:
        gpus: the GPUs that ran it.
        gpu_s: GPU-seconds that they ran it.
        request_s: the seconds of each request that ran it, on each of its GPUs.
        waited_s: seconds from the end of the request's attempt before, or its arrival, to its attempts, with loads and
            hand-overs; over all requests.
        rows: the requests.
        joins: True if requests joined and left its batches.
    """

    gpus: set[int] = field(default_factory=set)
    gpu_s: float = 0.0
    request_s: float = 0.0
    waited_s: float = 0.0
    rows: set[int] = field(default_factory=set)
    joins: bool = False

    @property
    def wait_s(self) -> float:
        """Mean seconds that a request waited for it."""
        return self.waited_s / len(self.rows)


@dataclass(slots=True)
class AttemptLog:
    """Every attempt of a run in the order of its end, column by column.

    Attributes:
        row: trace row of the request.
        stage: number of the stage in the request's plan; MISSING for a move, for a GPU that serves ControlNets,
            and for work that was lost with a GPU.
        component, model: names of what ran.
        gpus: the GPUs, by number.
        from_s, until_s: instants of begin and end.
        steps: steps run.
        estimate_s: seconds that the scheduler believed it to take.
        energy_j: joules of all its GPUs, of a batch the request's share; NaN where the power is not known.
        batch: requests that ran it together, at most.
        shares: place in the log -> the share of an attempt in a batch that requests join and leave.
        is_exclusive: True if a GPU serves one attempt at a time, or one batch: its requests begin and end together, or
            have their shares in ``shares``. False where nobody says which requests ran together.
    """

    row: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    component: list[str] = field(default_factory=list)
    model: list[str] = field(default_factory=list)
    gpus: list[tuple[int, ...]] = field(default_factory=list)
    from_s: list[float] = field(default_factory=list)
    until_s: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    estimate_s: list[float] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    shares: dict[int, BatchShare] = field(default_factory=dict)
    is_exclusive: bool = False
    _kept: dict[int, int] = field(default_factory=dict)
    """Trace row -> attempts in the log when its last try but the present one ended."""

    def __len__(self) -> int:
        return len(self.row)

    def add(
        self,
        row: int,
        stage: int,
        component: str,
        model: str,
        gpus: tuple[int, ...],
        from_s: float,
        until_s: float,
        steps: int = 0,
        estimate_s: float = np.nan,
        energy_j: float = np.nan,
        batch: int = 1,
        share: BatchShare | None = None,
    ) -> None:
        """Add an attempt that ended; ``share`` of a batch that requests join and leave."""
        if share is not None:
            self.shares[len(self)] = share
        self.row.append(row)
        self.stage.append(stage)
        self.component.append(component)
        self.model.append(model)
        self.gpus.append(gpus)
        self.from_s.append(from_s)
        self.until_s.append(until_s)
        self.steps.append(steps)
        self.estimate_s.append(estimate_s)
        self.energy_j.append(energy_j)
        self.batch.append(batch)

    def keep(self, row: int) -> None:
        """End a try of ``row``, which is to have another: a GPU that fails then does not lose its attempts so far."""
        self._kept[row] = len(self)

    def lose(self, row: int, arrival_s: float) -> None:
        """Take the attempts of the present try of ``row``, which arrived at ``arrival_s``, out of its stages: their
        work is lost."""
        for at in reversed(range(self._kept.get(row, 0), len(self))):
            # Attempts are in the order of their ends, so none before this one is of the request.
            if self.until_s[at] < arrival_s:
                return
            if self.row[at] == row:
                self.stage[at] = MISSING

    def renumber(self, row_of: NDArray[np.int64]) -> None:
        """Give every attempt of a row the number that ``row_of`` has for it."""
        self.row = [int(row_of[row]) for row in self.row]
        self._kept = {int(row_of[row]): count for row, count in self._kept.items()}

    def of_last_try(self) -> NDArray[np.bool_]:
        """Return True for each attempt of the last try of its request."""
        return np.arange(len(self)) >= np.array([self._kept.get(row, 0) for row in self.row], np.int64)

    def by_component(
        self, arrival_s: NDArray[np.float64], first: int, counted: NDArray[np.bool_]
    ) -> dict[str, "ComponentUse"]:
        """Return the use of each component in the attempts that are ``counted``; those of no stage do not count.

        Args:
            arrival_s: arrival of each request, from trace row ``first`` on.
        """
        row, from_s = np.asarray(self.row, np.int64), np.asarray(self.from_s)
        stages = np.flatnonzero(np.asarray(self.stage) != MISSING)
        # By request, then by time: each wait begins where the request's attempt before ended.
        order = stages[np.lexsort((from_s[stages], row[stages]))]
        before_s = np.append(0.0, np.asarray(self.until_s)[order[:-1]])
        begins = np.append(True, row[order[1:]] != row[order[:-1]])
        wait_s = np.zeros(len(row))
        wait_s[order] = from_s[order] - np.where(begins, arrival_s[row[order] - first], before_s)
        found: dict[str, ComponentUse] = {}
        for at in stages[counted[stages]].tolist():
            use = found.setdefault(self.component[at], ComponentUse())
            use.gpus.update(self.gpus[at])
            request_s = (self.until_s[at] - self.from_s[at]) * len(self.gpus[at])
            use.request_s += request_s
            if at in self.shares:
                use.joins = True
                use.gpu_s += self.shares[at].gpu_s
            else:
                use.gpu_s += request_s / self.batch[at]
            use.waited_s += float(wait_s[at])
            use.rows.add(self.row[at])
        return found

    def table(self, request_ids: pa.ChunkedArray) -> pa.Table:
        """Return the table of attempts.parquet, one row an attempt, in the order of their ends.

        Args:
            request_ids: of the whole trace.
        """
        stage = np.asarray(self.stage, np.int32)
        means = {}
        if self.shares:
            batch_mean = np.asarray(self.batch, np.float64)
            batch_mean[list(self.shares)] = [share.batch_mean for share in self.shares.values()]
            means["batch_mean"] = pa.array(batch_mean)
        return pa.table(
            {
                "request_id": request_ids.take(pa.array(self.row, pa.int64())),
                "stage": pa.array(stage, mask=stage == MISSING),
                "component": pa.array(self.component, pa.string()).dictionary_encode(),
                "model": pa.array(self.model, pa.string()).dictionary_encode(),
                "degree": pa.array([len(gpus) for gpus in self.gpus], pa.int32()),
                "gpus": pa.array([list(gpus) for gpus in self.gpus], pa.list_(pa.int32())),
                "start_s": pa.array(self.from_s, pa.float64()),
                "finish_s": pa.array(self.until_s, pa.float64()),
                "steps": pa.array(self.steps, pa.int32()),
                "batch": pa.array(np.asarray(self.batch, np.int32), mask=np.full(len(self), not self.is_exclusive)),
                **means,
                "estimate_s": pa.array(self.estimate_s, pa.float64(), from_pandas=True),
                "energy_j": pa.array(self.energy_j, pa.float64(), from_pandas=True),
            }
        )
