"""Laws of controllers and other actors, and of declared columns, gauges and logs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import Request
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.metrics.time_series import series
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import engine, simulated


class EventRecorder(Direct):
    """Records in ``what`` when an artifact enters and when a request arrives."""

    what: list[str]

    def admit(self, request: Request, now_s: float) -> float:
        self.what.append(f"arrival at {now_s:g}")
        return super().admit(request, now_s)

    def completed(self, request: Request) -> bool:
        self.what.append(f"completion at {self.run.clock.now:g}")
        return True

    def insert(self, request: Request, now_s: float) -> None:
        self.what.append(f"insertion at {now_s:g}")

    def bind(self, run: Any) -> None:
        super().bind(run)
        self.run = run


def test_actors_act_after_insertions_and_before_arrivals() -> None:
    """For every way to sleep: by a timeout, until a time, or woken by an event."""
    frontend = EventRecorder()
    frontend.what = what = []

    class Three(Acts):
        def bind(self, run: Any) -> None:
            self.run, self.bell = run, run.clock.event()
            for actor in (self.timeout(), self.until(), self.woken()):
                run.process(actor)

        def timeout(self) -> Any:
            yield self.run.clock.timeout(5.0)
            what.append("timeout")
            self.bell.succeed()

        def until(self) -> Any:
            yield self.run.clock.sleep_until(5.0)
            what.append("until")

        def woken(self) -> Any:
            yield self.bell
            what.append("woken")

    engine([0.0, 5.0], [5.0, 5.0], frontend=frontend, controllers=[Three()]).run()
    at = what.index("completion at 5")
    assert what[at + 1] == "insertion at 5"
    assert set(what[at + 2 : at + 5]) == {"timeout", "until", "woken"}
    assert what[at + 5] == "arrival at 5"


def test_actor_sees_the_state_of_the_run() -> None:
    seen: list[Any] = []

    def look(run: Any, now_s: float) -> None:
        seen.append((run.arrived, run.in_system, run.waiting, run.lookups, run.hits, len(run.cluster.workers)))

    run = engine([0.0, 1.0, 2.0, 3.0], [10.0] * 4, 2, controllers=[Acts((2.0, look), (2.5, look), (15.0, look))])
    run.run()
    assert seen == [(2, 2, 0, 0, 0, 2), (3, 3, 1, 0, 0, 2), (4, 2, 0, 0, 0, 2)]


def test_endless_process_does_not_prolong_the_run() -> None:
    ticks: list[float] = []

    class Clockwork(Acts):
        def follow(self) -> Any:
            while True:
                yield self.run.clock.timeout(1.0)
                ticks.append(self.run.clock.now)

    run = engine([0.0], [5.0], controllers=[Clockwork()])
    run.run()
    assert ticks == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert run.clock.now == 5.0


class Odd(Exception):
    """An exception that cannot be rebuilt from its ``args``."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def test_actor_exception_ends_the_run_with_an_error_that_names_the_actor() -> None:
    mine = Odd(1, 2)

    def fail(run: Any, now_s: float) -> None:
        raise mine

    with pytest.raises(SimulationError, match=r"Acts raised Odd: 1 and 2 .* line \d+") as caught:
        engine([0.0], [5.0], controllers=[Acts((1.0, fail))]).run()
    assert caught.value.__cause__ is mine


# -- the timetable -----------------------------------------------------------------------------------------------

MODM = ("system=modm-fixed", "trace.requests=600", "arrivals.rate_rpm=14", "cluster.count=8", "allocation.large=4")
PLAN = "controller.at={600: {large: 6, small: 2}, 1500: {large: 2, small: 6}}"


def test_timetable_changes_the_split_at_its_times() -> None:
    fixed, moved = simulated(*MODM), simulated(*MODM, "controller=timetable", PLAN, "backend.unpublished_load_s=20")
    assert fixed.summary["gpu"]["switches"] == 0
    gpu = moved.summary["gpu"]
    assert (gpu["switches"], gpu["switch_s"]) == (6, pytest.approx(120.0))
    rows = moved.requests.to_pandas()
    assert moved.summary["requests"]["completed"] == 600
    assert not rows.finish_s.equals(fixed.requests.to_pandas().finish_s)

    def serving(from_s: float, until_s: float) -> dict[str, int]:
        """Return workers by model, of requests that started well after a split."""
        inside = rows[(rows.start_s > from_s) & (rows.start_s < until_s)]
        return inside.groupby("model", observed=True).worker.nunique().to_dict()  # type: ignore[no-any-return]

    assert serving(0, 600) == {"sd3.5-large": 4, "sdxl": 4}
    assert serving(800, 1500) == {"sd3.5-large": 6, "sdxl": 2}
    assert serving(1700, 1e9) == {"sd3.5-large": 2, "sdxl": 6}


@pytest.mark.parametrize(
    "at",
    [
        "{60: {large: 4, small: 3}}",
        "{60: {large: 9, small: -1}}",
        "{-60: {large: 4, small: 4}}",
        "{60: {}}",
        "{60: {large: 4, medium: 4}}",
    ],
)
def test_timetable_with_wrong_gpu_counts_is_refused(at: str) -> None:
    with pytest.raises(ConfigError):
        simulated(*MODM, "controller=timetable", f"controller.at={at}")


# -- declared columns, gauges and logs ---------------------------------------------------------------------------


class Declares(Acts):
    """A controller that declares a column of each kind."""

    def bind(self, run: Any) -> None:
        self.run = run
        self.mine = run.add_column("rank", int)
        self.share, self.odd = run.add_column("share"), run.add_column("odd", bool)
        run.add_column("kept", public=False)
        run.gauge("load", lambda now_s: now_s / 2)
        self.log = run.log("looks")

    def arrived(self, request: Request, now_s: float) -> None:
        self.mine[request.row] = request.row * 10
        self.odd[request.row] = request.row % 2 == 1
        self.log.add(now_s, 0.5)


def test_declared_columns_gauges_and_logs_appear_once() -> None:
    run = engine([0.0, 60.0, 120.0], [1.0] * 3, controllers=[Declares()])
    run.run()

    table = next(run.record.request_columns.tables(pa.chunked_array([["a", "b", "c"]]), np.full(3, np.nan)))
    assert table.column_names.count("rank") == table.column_names.count("share") == 1
    assert table.column("rank").to_pylist() == [0, 10, 20]
    assert table.column("share").to_pylist() == [None] * 3
    assert table.column("odd").to_pylist() == [False, True, False]
    assert "kept" not in table.column_names
    gauges = series(run.record)
    assert gauges.column_names.count("load") == 1
    assert gauges.column("load").to_pylist() == [t / 2 for t in gauges.column("time_s").to_pylist()]
    assert run.record.logs["looks"].inside(0.0, 60.0) == (2, 1.0)


@pytest.mark.parametrize(
    "taken", ["outcome", "request_id", "reason", "source_id", "quality_factor", "quality", "twice"]
)
def test_duplicate_column_is_refused(taken: str) -> None:
    run = engine([0.0], [1.0])
    run.add_column("twice")
    with pytest.raises(SimulationError, match=f"declares the column '{taken}'"):
        run.add_column(taken)


@pytest.mark.parametrize("taken", ["time_s", "ended", "lookups", "hits", "fallbacks", "busy", "queued", "twice"])
def test_duplicate_gauge_is_refused(taken: str) -> None:
    run = engine([0.0], [1.0])
    run.open()
    run.gauge("twice", lambda now_s: 0)
    with pytest.raises(SimulationError, match=f"declares the gauge '{taken}'"):
        run.gauge(taken, lambda now_s: 0)


def test_duplicate_log_is_refused() -> None:
    run = engine([0.0], [1.0])
    run.log("looks")
    with pytest.raises(SimulationError, match="declares the log 'looks'"):
        run.log("looks")
