"""The account of stages: what launches did, as busy time of GPUs, attempts, and shares of requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan

from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.progress import Attempt, BatchRun, Progress
from mezzotint.sim.metrics.recorder import BATCH_MEAN, STEP_SHARE
from mezzotint.sim.protocols import AttemptLog, RequestColumn, Run, StageCost, Worker

MOVE = "move"
"""Component of a move of a latent between groups, in attempts.parquet."""

_OF_PROGRESS = "pauses", "paused_s", "moves", "degree_changes"
_OF_ATTEMPTS = "gpu_s", "estimate_s", STEP_SHARE, "component_loads"
"""Columns that attempts and loads add to; they are set back with the request."""


@dataclass(slots=True)
class Account:
    """Records the attempts of stages, and the moves between them. A request's shares add up over its attempts.

    Attributes:
        batch_runs: the runs of requests in batches that they join and leave, as far as they are recorded.
    """

    run: Run
    batch_runs: dict[Progress, BatchRun] = field(init=False, default_factory=dict, repr=False)
    _log: AttemptLog = field(init=False, repr=False)
    _columns: dict[str, RequestColumn] = field(init=False, default_factory=dict, repr=False)
    _earlier: dict[int, list[float]] = field(init=False, default_factory=dict, repr=False)
    """Trace row -> the columns of ``_OF_ATTEMPTS`` at the end of its last try but the present one (Plan.then)."""

    def __post_init__(self) -> None:
        run, columns = self.run, self._columns
        self._log = run.attempts()
        self._log.is_exclusive = True
        columns["pauses"] = run.add_column("pauses", int, default=0, total="stages.pauses")
        columns["paused_s"] = run.add_column("paused_s", default=0.0)
        for name in ("moves", "degree_changes", "component_loads"):
            columns[name] = run.add_column(name, int, default=0, total=f"stages.{name}")
        for name in ("gpu_s", "estimate_s"):
            columns[name] = run.add_column(name, default=0.0, total=f"stages.{name}")
        columns[BATCH_MEAN] = run.add_column(BATCH_MEAN, default=1.0)
        columns[STEP_SHARE] = run.add_column(STEP_SHARE, default=0.0, public=False)

    def attempt(self, batch: Sequence[Progress], attempt: Attempt, joins: bool = False) -> None:
        """Record ``attempt`` of the requests of ``batch``, which ended.

        If it ``joins`` the runs of a batch that requests join and leave, it is added to each request's run.
        """
        first, group, cost, columns = batch[0], attempt.group, attempt.cost, self._columns
        stage, model, ran, requests = first.stages[attempt.index], first.request.model or "", attempt.steps, len(batch)
        # As the costs add up, not as instants differ: a sum does not depend on when it begins
        # (test_whole_requests_on_one_gpu_each_run_as_sequential).
        if requests == 1:
            steps = attempt.done, ran, stage.steps
            seconds, steps_s = cost.seconds(*steps), cost.steps_s(*steps) + attempt.wait_s
            estimate_s = seconds if attempt.estimate is None else attempt.estimate.seconds(*steps)
            seconds += attempt.wait_s
            row = first.request.row
        else:
            seconds, steps_s = cost.batch_s(batch, ran), cost.step_s * ran
            estimate_s = (attempt.estimate or cost).batch_s(batch, ran)
            row = MISSING
        # The busy time once, for all: the row is no single request's.
        joules = self.run.cluster.record_busy(
            group, attempt.from_s, attempt.until_s, "serve", _joules(cost, seconds), requests, row, model
        )
        joules, gpu_s, step_share = joules / requests, seconds * len(group.gpus), steps_s * len(group.gpus)
        for progress in batch:
            request = progress.request
            row = request.row
            request.energy_j += joules
            request.denoise_s += steps_s
            request.decode_s += seconds - steps_s
            # A running mean over step seconds; ``denoise_s`` counts this attempt already.
            mean = columns[BATCH_MEAN][row]
            if requests != mean and steps_s:
                columns[BATCH_MEAN][row] = mean + (requests - mean) * steps_s / request.denoise_s
            columns["gpu_s"][row] += gpu_s / requests
            columns["estimate_s"][row] += estimate_s
            columns[STEP_SHARE][row] += step_share / requests
            if joins:
                self._join(progress, attempt, requests, estimate_s, seconds, joules)
            else:
                self._log.add(
                    row, attempt.index, progress.stages[attempt.index].component, model, group.gpus, attempt.from_s,
                    attempt.until_s, ran, estimate_s, joules, requests,
                )  # fmt: skip

    def _join(
        self, progress: Progress, attempt: Attempt, batch: int, estimate_s: float, seconds: float, joules: float
    ) -> None:
        """Add ``attempt`` to the run of its request, which goes on from the attempt before or begins."""
        run = self.batch_runs.get(progress)
        if run is None:
            run = self.batch_runs[progress] = BatchRun(attempt.group, attempt.index, attempt.from_s)
        run.until_s, run.max_batch = attempt.until_s, max(run.max_batch, batch)
        run.steps += attempt.steps
        run.seconds += seconds
        run.estimate_s += estimate_s
        run.joules += joules
        run.gpu_s += seconds * len(attempt.group.gpus) / batch
        run.batch_s += seconds * batch

    def end_run(self, progress: Progress) -> None:
        """Record the run of ``progress`` in a batch that requests join and leave."""
        run, request = self.batch_runs.pop(progress), progress.request
        self._log.add(
            request.row, run.index, progress.stages[run.index].component, request.model or "", run.group.gpus,
            run.from_s, run.until_s, run.steps, run.estimate_s, run.joules, run.max_batch, run.share,
        )  # fmt: skip

    def move(self, progress: Progress, group: Worker, from_s: float, until_s: float) -> None:
        """Record a move, on ``group`` of the old and the new GPUs."""
        progress.request.energy_j += record_apart(self.run, progress, group, MOVE, MOVE, from_s, until_s)

    def lost(self, progress: Progress, cost: StageCost | None, group: Worker, from_s: float, now_s: float) -> None:
        """Record the work for ``progress`` on ``group``, which was lost, if it began by now; a move has no ``cost``."""
        if from_s < now_s:
            joules = None if cost is None else _joules(cost, now_s - from_s)
            record_apart(self.run, progress, group, progress.stage.component, "lost", from_s, now_s, joules)

    def add(self, progress: Progress, column: str, value: float) -> None:
        """Add to a column of a request: component_loads, or gpu_s of service GPUs that worked for it."""
        self._columns[column][progress.request.row] += value

    def restart(self, progress: Progress) -> None:
        """Forget what ``progress`` has run so far: it begins its plan anew."""
        request, columns = progress.request, self._columns
        self._log.lose(request.row, request.arrival_s)
        request.forget_execution()
        # An earlier try of a cascade is not lost (test_gpu_that_fails_in_the_second_try_loses_that_try_alone).
        earlier = self._earlier.get(request.row, [0] * len(_OF_ATTEMPTS))
        for name, value in zip(_OF_ATTEMPTS, earlier, strict=True):
            columns[name][request.row] = value
        columns[BATCH_MEAN][request.row] = 1.0

    def complete(self, progress: Progress) -> None:
        """Write what is known of a request once its last stage has ended."""
        request, columns = progress.request, self._columns
        assert progress.group is not None
        request.worker, request.steps_left = progress.group.id, 0
        if progress.pauses or progress.moves:  # most requests did neither
            for name in _OF_PROGRESS:
                columns[name][request.row] += getattr(progress, name)
        if request.plan.then is not None:
            self._earlier[request.row] = [columns[name][request.row] for name in _OF_ATTEMPTS]


def record_apart(
    run: Run,
    progress: Progress,
    group: Worker,
    component: str,
    kind: str,
    from_s: float,
    until_s: float,
    joules: float | None = None,
) -> float:
    """Record work for ``progress`` that is no attempt at a stage; return its joules."""
    row, model = progress.request.row, progress.request.model or ""
    joules = run.cluster.record_busy(group, from_s, until_s, kind, joules, 1, row, model)
    run.attempts().add(row, MISSING, component, model, group.gpus, from_s, until_s, estimate_s=0.0, energy_j=joules)
    return joules


def _joules(cost: StageCost, seconds: float) -> float | None:
    """Return what the GPUs of a stage draw; None where it is not known."""
    return None if isnan(cost.watts) else cost.watts * seconds
