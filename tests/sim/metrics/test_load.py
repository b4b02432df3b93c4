"""The verdict on a run's load against queueing theory."""

import heapq
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.special import stdtrit

from mezzotint.sim.cli import main
from mezzotint.sim.core.request import COMPLETED, DISCARDED, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.metrics.load import COARSE, QUANTILE, SPANS, load
from mezzotint.sim.metrics.request_columns import RequestColumns
from mezzotint.sim.protocols import Run, Worker
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.sim.scheduling.fcfs import Fcfs
from tests.sim.lab import configured, engine, simulated


def mmc(ratio: float, requests: int, servers: int, seed: int, *, constant: bool = False) -> dict[str, object]:
    """Return the verdict on M/M/c from empty, or on M/D/c, with a mean service of 1 s."""
    rng = np.random.default_rng([seed, requests, servers])
    columns = RequestColumns(requests, ["large"])
    columns["arrival_s"][:] = np.cumsum(rng.exponential(1 / (ratio * servers), requests))
    service_s = np.ones(requests) if constant else rng.exponential(1.0, requests)
    free_s = [0.0] * servers
    for row, arrival_s in enumerate(columns["arrival_s"].tolist()):
        columns["start_s"][row] = start_s = max(arrival_s, free_s[0])
        heapq.heapreplace(free_s, start_s + service_s[row])
    columns["finish_s"][:] = finish_s = columns["start_s"] + service_s
    columns["denoise_s"][:], columns["outcome"][:] = service_s, COMPLETED

    def idle_s(edges: np.ndarray) -> np.ndarray:
        busy = (np.clip(finish_s, edges[0], edge) - np.clip(columns["start_s"], edges[0], edge) for edge in edges)
        return np.asarray(servers * (edges - edges[0]) - np.array([seconds.sum() for seconds in busy]))

    return load(columns, columns["arrival_s"][0], idle_s, servers, is_closed=False)


def verdict_on(run: Engine, start_s: float = 0.0) -> dict[str, object]:
    run.run()
    columns, usage, gpus = run.record.request_columns, run.record.usage_log, run.cluster.gpus
    counts = run.cluster.gpu_counts()
    return load(
        columns,
        start_s,
        lambda edges: usage.idle_s(edges, counts, gpus),
        gpus,
        is_closed=False,
    )


@pytest.mark.parametrize(
    ("ratio", "requests", "servers", "max_wrong", "min_right"),
    [
        (0.5, 100, 8, 0.0, 0.97),
        (0.9, 3000, 8, 0.0, 0.75),
        (0.95, 1000, 1, 0.02, 0.15),
        (1.05, 1000, 8, 0.1, 0.0),
        (1.2, 300, 1, 0.08, 0.15),
        (1.2, 1000, 8, 0.0, 0.6),
        (1.5, 1000, 8, 0.0, 1.0),
    ],
)
def test_verdict_is_seldom_wrong_and_right_as_often_as_the_docs_say(
    ratio: float, requests: int, servers: int, max_wrong: float, min_right: float
) -> None:
    right, wrong = ("below", "overloaded") if ratio < 1 else ("overloaded", "below")
    found = [mmc(ratio, requests, servers, seed)["verdict"] for seed in range(60)]
    assert found.count(wrong) <= max_wrong * 60
    assert found.count(right) >= min_right * 60


def test_requests_pile_up_by_the_excess_arrivals() -> None:
    """One arrival a second on 2 GPUs of 3 s each: one request in three is left over, 1,200 an hour."""
    found = verdict_on(engine(np.arange(3000.0), [3.0] * 3000, 2))
    assert found["verdict"] == "overloaded"
    assert found["growth_per_hour"] == pytest.approx(1200, rel=0.01)
    assert found["offered_rpm"] == pytest.approx(60)
    assert found["served_rpm"] == pytest.approx(40, rel=0.01)


def test_filling_the_gpus_is_no_growth_and_too_short_to_tell() -> None:
    """Fifty requests on fifty GPUs all arrive before the first ends: many in service, none late."""
    found = verdict_on(engine(np.arange(50.0), [100.0] * 50, 50))
    assert (found["verdict"], found["growth_per_hour"]) == ("undecided", 0.0)
    assert "service times" in str(found["note"])


def test_busier_hour_on_an_idle_cluster_is_no_growth() -> None:
    """The arrival rate rises tenfold, and nobody waits: there are ten times as many in service, and none is late."""
    times = np.sqrt(np.arange(2000.0) * 2000)
    found = verdict_on(engine(times, [20.0] * 2000, 100))
    assert (found["verdict"], found["growth_per_hour"]) == ("below", 0.0)


def test_run_that_recovers_is_not_overloaded() -> None:
    """The first third comes at twice the capacity, the rest at a third of it."""
    times = np.concatenate([np.arange(600) * 0.5, 300 + np.arange(1200) * 3.0])
    assert verdict_on(engine(times, [1.0] * 1800))["verdict"] == "below"
    assert verdict_on(engine(times[:600], [1.0] * 600))["verdict"] == "overloaded"


def test_load_that_comes_late_overloads() -> None:
    times = np.concatenate([np.arange(300) * 3.0, 900 + np.arange(1800) * 0.5])
    assert verdict_on(engine(times, [1.0] * 2100))["verdict"] == "overloaded"


class SerialFrontEnd(Direct):
    """It plans one request after another, each in 2 s."""

    __slots__ = ("free_s",)
    free_s: float

    def admit(self, request: Request, now_s: float) -> float:
        super().admit(request, now_s)
        self.free_s = max(now_s, getattr(self, "free_s", 0.0)) + 2.0
        return self.free_s - now_s


@pytest.mark.parametrize(("every_s", "verdict"), [(1.0, "overloaded"), (3.0, "below")])
def test_requests_that_pile_up_in_the_front_end_overload(every_s: float, verdict: str) -> None:
    times = np.arange(600.0) * every_s
    assert verdict_on(engine(times, [0.5] * 600, frontend=SerialFrontEnd()))["verdict"] == verdict


@dataclass(slots=True)
class Finite(Fcfs):
    """It discards what finds ``places`` requests in the queue."""

    places: int = 20
    run: Run = field(init=False)

    def bind(self, run: Run) -> None:
        Fcfs.bind(self, run)
        self.run = run

    def offer(self, request: Request, now_s: float) -> Worker | None:
        worker = Fcfs.offer(self, request, now_s)
        if len(self) > self.places:
            self._waiting.pop()
            self.run.end(request, DISCARDED, "the queue is full")
        return worker


@pytest.mark.parametrize(("load", "verdict"), [(0.9, "below"), (1.06, "overloaded"), (2.0, "overloaded")])
def test_discards_that_idle_gpus_could_not_have_served_overload(load: float, verdict: str) -> None:
    """The queue never grows over 20 requests, whatever is offered."""
    times = np.cumsum(np.random.default_rng(7).exponential(1 / (2 * load), 4000))
    found = verdict_on(engine(times, [1.0] * 4000, 2, scheduler=Finite()))
    assert found["verdict"] == verdict
    assert found["served_rpm"] == pytest.approx(min(load, 1) * 120, rel=0.02)
    assert ("more than idle GPUs" in str(found["note"])) is (verdict == "overloaded")


def test_closed_loop_is_never_overloaded() -> None:
    found = simulated("arrivals=closed", "arrivals.outstanding=40", "trace.requests=400").summary["load"]
    assert found["verdict"] == "below"
    assert "closed loop" in found["note"]


def test_simultaneous_arrivals_have_no_trend() -> None:
    assert verdict_on(engine(np.zeros(5), [1.0] * 5))["verdict"] == "undecided"


def test_throughput_until_last_arrival_is_capacity_in_overload_and_excludes_the_drain() -> None:
    """MoDM's artifact: 16 MI210 at 91.5 s serve 10.49 requests/min. A stable run serves the arrival rate."""
    over = simulated("arrivals.rate_rpm=12", "trace.requests=3000").summary
    assert over["load"]["verdict"] == "overloaded"
    assert over["throughput_until_last_arrival_rpm"] == pytest.approx(16 * 60 / 91.5, rel=0.02)
    under = simulated("arrivals.rate_rpm=8", "trace.requests=3000", "warmup=200")
    assert under.summary["load"]["verdict"] == "below"
    rows = under.requests.to_pandas()
    start, last = rows.arrival_s[200], rows.arrival_s.max()
    inside = rows.finish_s.between(start, last, inclusive="right").sum()
    assert under.summary["throughput_until_last_arrival_rpm"] == pytest.approx(60 * inside / (last - start))


def test_printed_line_of_an_overloaded_run_says_so(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    for rate, overloaded in ((40, True), (4, False)):
        assert main(["run", f"arrivals.rate_rpm={rate}", "trace.requests=300", f"run.dir={tmp_path}/{rate}"]) == 0
        assert (": overloaded, " in capsys.readouterr().out) is overloaded


def test_quantile_is_students_t() -> None:
    assert float(stdtrit(SPANS // COARSE - 1, 0.99)) == QUANTILE


@pytest.mark.parametrize("words", [("system=vanilla",), ("controller=autoscale-utilisation",)])
def test_idle_seconds_are_those_neither_busy_nor_away(words: tuple[str, ...]) -> None:
    run = assemble(check(configured("trace.requests=300", "arrivals.rate_rpm=5", *words))).engine
    run.run()
    usage, counts, gpus = run.record.usage_log, run.cluster.gpu_counts(), run.cluster.gpus
    edges = np.linspace(500.0, 3000.0, 6)
    for edge, idle_s in zip(edges, usage.idle_s(edges, counts, gpus), strict=True):
        away_s = sum(max(min(end, edge) - max(start, 500.0), 0.0) for _, _, start, end in usage.rentals)
        expected = gpus * (edge - 500.0) - away_s - usage.inside(500.0, edge, counts).busy_s
        assert idle_s == pytest.approx(expected, abs=1e-6)
