"""The engine: order of events, and its errors."""

from collections.abc import Sequence
from typing import Any

import pytest

from mezzotint.backends.base import Cost, Work, WorkFailed
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.request import DISCARDED, Request
from mezzotint.sim.core.streams import stream
from mezzotint.sim.engine import Engine
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.fcfs import Fcfs
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import FixedTimes, engine


class Failing(FixedTimes):
    """Fails for the rows in ``bad``."""

    def __init__(self, full_s: list[float], bad: set[int]) -> None:
        super().__init__(full_s)
        self.bad = bad

    def begin(self, works: Sequence[Work]) -> Cost:
        if any(work.row in self.bad for work in works):
            raise WorkFailed("out of memory")
        return super().begin(works)


def test_failed_work_ends_its_request_and_frees_the_worker() -> None:
    """Even if thousands fail in a row."""
    rows = 3000
    run = engine([0.0] * rows, [1.0] * rows, backend=Failing([1.0] * rows, set(range(1, rows - 1))))
    run.run()
    assert list(run.record.request_columns["outcome"]).count(3) == rows - 2
    assert run.record.request_columns["finish_s"][rows - 1] == 2.0
    assert run.record.request_columns.reasons[1] == "out of memory"
    assert run.cluster.busy(0.0) == 0


@pytest.mark.invariant(3)
def test_scheduler_that_keeps_requests_is_reported() -> None:
    class Hoarder(Scheduler):
        def bind(self, run: Run) -> None: ...

        def offer(self, request: Request, now_s: float) -> None: ...

        def next(self, worker: Worker, now_s: float) -> None: ...

        def __len__(self) -> int:
            return 3

    with pytest.raises(SimulationError, match="of 3 requests 3 arrived and 0 ended; 3 still wait"):
        engine([0.0, 1.0, 2.0], [1.0] * 3, scheduler=Hoarder()).run()


@pytest.mark.invariant(3)
def test_request_that_ends_twice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Engine.end

    def twice(run: Engine, request: Request, *_: object) -> None:
        end(run, request)
        end(run, request)

    monkeypatch.setattr(Engine, "end", twice)
    with pytest.raises(SimulationError, match="ended twice"):
        engine([0.0], [1.0]).run()


def test_random_stream_depends_on_its_name_and_seed_alone() -> None:
    assert stream(1, "arrivals").random() == stream(1, "arrivals").random()
    draws = {stream(seed, name).random() for seed in (0, 1) for name in ("arrivals", "trace", "similarity space")}
    assert len(draws) == 6


def test_arrival_times_are_kept_exactly() -> None:
    times = [0.1, 0.1 + 0.2, 1 / 3, 1e9 + 0.1, 1e9 + 0.3]
    run = engine(sorted(times), [0.1] * 5)
    run.run()
    assert list(run.record.request_columns["arrival_s"]) == sorted(times)


@pytest.mark.invariant(4)
def test_littles_law_is_checked_in_every_run() -> None:
    """A discarded request runs nowhere, so that no other invariant notices a later end in its record."""

    class Discards(Fcfs):
        def offer(self, request: Request, now_s: float) -> Worker | None:
            if request.row == 1:
                run.end(request, DISCARDED, "too many")
                return None
            return super().offer(request, now_s)

    def delay(run: Any, now_s: float) -> None:
        run.record.request_columns["finish_s"][1] += 3.0

    run = engine([0.0, 1.0], [5.0, 5.0], scheduler=Discards(), controllers=[Acts((2.0, delay))])
    with pytest.raises(SimulationError, match="Little's law fails"):
        run.run()


@pytest.mark.invariant(2)
def test_sample_precedes_the_arrivals_of_its_instant() -> None:
    """The sample at 60 s does not yet count the request that arrives at 60 s."""
    run = engine([0.0, 60.0, 61.0], [1.0] * 3, sample_s=60.0)
    run.run()
    assert list(run.record.sampled_s)[:2] == [0.0, 60.0]
    assert list(run.record.gauges["arrived"].values)[:2] == [0, 1]


@pytest.mark.parametrize("span_s", [1e3, 1e9, 8e9])
def test_long_pause_adds_one_row_to_the_time_series(span_s: float) -> None:
    run = engine([0.0, span_s], [1.0, 1.0], sample_s=1e-3)
    run.run()
    assert len(run.record.sampled_s) < 3000
    assert run.arrived == 2
