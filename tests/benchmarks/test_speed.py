"""Benchmarks per CPU-second of one core. `make bench` runs them at full size; the suite checks that they run.

Where memory is asked for, one more round, which is not timed, notes the peak of allocated memory.

The budgets are those of the design, in requests per CPU-second. Vanilla with 16 workers: 100,000. A cache with cached
similarity, up to 1.5 million items: 50,000. The first exact search of a 10k cache (512 dimensions): 5,000. An
approximate search of a 100k cache: 4,000.
"""

import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Backend, Cost, Work
from mezzotint.backends.profiled import Profiled
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.core.model import Model
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Run
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.sim.scheduling import latency_predictor
from mezzotint.sim.scheduling.disciplines.slack import Slack
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.approximate import Approximate
from mezzotint.traces.similarity.cached import CachedIndex
from mezzotint.traces.similarity.exact import Exact
from mezzotint.traces.similarity.neighbours import Neighbours
from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import SimilaritySource, TextToText
from mezzotint.traces.sources.synthetic import Synthetic
from tests.benchmarks import yardstick
from tests.benchmarks.families import neighbours
from tests.sim.lab import configured, engine
from tests.sim.scheduling.group_policies.lab import assembled, poisson, profile

FLOOR: float = min(configured()["similarity_map"]["at"])
"""The lowest cosine of the built-in encoder at which NIRVANA reuses an artifact."""

FULL = os.environ.get("MEZZOTINT_BENCH") == "full"
SCALE = 1 if FULL else 500
ROUNDS = 2 if FULL else 1
SHORT = 5 if FULL else 1
"""Rounds of benchmarks of a second or two: on a shared machine some rounds are slowed."""

Benchmark = Any


def some(*values: Any) -> tuple[Any, ...]:
    """Return ``values``, or in the suite the first alone: the others run the same code."""
    return values if FULL else values[:1]


@pytest.fixture(autouse=True)
def machine(benchmark: Benchmark) -> Iterator[None]:
    """Note the yardstick before and after a benchmark; ``timed`` measures it closer to the timed call."""
    before = _yardstick()
    yield
    benchmark.extra_info.setdefault("yardstick", (before + _yardstick()) / 2)


def _yardstick() -> float:
    return yardstick.customers_per_cpu_s(yardstick.CUSTOMERS // SCALE)


def timed(
    benchmark: Benchmark, requests: int, make: Callable[[], Engine], budget: int | None = None, rounds: int = ROUNDS
) -> Engine:
    """Time ``run`` alone, in CPU-seconds; note the number of requests and the budget."""
    benchmark.extra_info |= {"requests": requests, "budget": budget}
    made: list[Engine] = []
    before = 0.0

    def setup() -> tuple[tuple[Engine], dict[str, Any]]:
        nonlocal before
        made[:] = [make()]
        before = _yardstick()
        return (made[0],), {}

    benchmark.pedantic(Engine.run, setup=setup, rounds=rounds)
    benchmark.extra_info["yardstick"] = (before + _yardstick()) / 2
    return made[0]


def weighed(benchmark: Benchmark, call: Callable[[], Any]) -> None:
    """Note the peak MB that ``call`` allocates."""
    tracemalloc.start()
    call()
    benchmark.extra_info["peak_mb"] = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("requests", some(20_000, 200_000, 2_000_000))
def test_speed_of_vanilla_fcfs_16_workers(benchmark: Benchmark, requests: int) -> None:
    count = requests // SCALE
    settings = check(configured(f"trace.requests={count}", "arrivals.rate_rpm=10"))
    run = timed(benchmark, count, lambda: assemble(settings).engine, 100_000)
    assert run.arrived == count


def test_speed_of_vanilla_with_40_000_waiting(benchmark: Benchmark) -> None:
    """With a queue that never falls below 40,000: the cost per request must not grow with it."""
    count, waiting = 200_000 // SCALE, 40_000 // SCALE
    rng = np.random.default_rng(0)
    times = np.concatenate((np.zeros(waiting), np.cumsum(rng.exponential(1 / 16, count - waiting))))
    run = timed(benchmark, count, lambda: engine(times, np.ones(count), 16), 100_000)
    assert not FULL or max(run.record.gauges["queued"].values) > 0.8 * waiting


class Filled:
    """A front end whose cache was filled before the clock starts, so that filling is not timed."""

    def __init__(self, frontend: CachedFrontEnd) -> None:
        self.admit, self.completed, self.insert = frontend.admit, frontend.completed, frontend.insert

    def bind(self, run: Run) -> None:
        pass


def filled(engine: Engine) -> Engine:
    """Fill the caches of ``engine`` and return it."""
    frontend = engine.frontend
    assert isinstance(frontend, CachedFrontEnd)
    frontend.bind(engine)
    engine.frontend = Filled(frontend)
    return engine


@pytest.mark.parametrize("search", ["exact", "cached"])
@pytest.mark.parametrize("system", ["nirvana", "nirvana-no-predictor", "modm-fixed"])
def test_speed_of_a_10k_cache(benchmark: Benchmark, system: str, search: str) -> None:
    """10,000 entries from the start, as many evictions as insertions: searched exactly, and with cached similarity.

    NIRVANA's cache holds 50,000 states, in the end of some 37,000 prompts, since it keeps the best of each. Its exact
    search is therefore not one of 10,000 entries and has no budget.
    """
    count, preload = 50_000 // SCALE, 10_000 // SCALE
    items = preload if system == "modm-fixed" else preload * 5
    overrides = (f"trace.requests={count + preload}", f"preload={preload}", "arrivals.rate_rpm=10", f"system={system}")
    at_once = ["search.exact_runs=0"] if search == "cached" else []
    settings = check(configured(*overrides, f"search={search}", *at_once, f"cache.capacity={items}"))
    assembled = assemble(settings)
    first = assembled.engine
    vectors = first.similarity.embeddings()
    assert isinstance(first.frontend, CachedFrontEnd)
    first.frontend.bind(first)  # finds the neighbours, once

    def make() -> Engine:
        made = assemble(settings).engine
        made.similarity.embeddings = lambda: vectors
        return filled(made)

    budgets = {
        ("modm-fixed", "exact"): 5_000,
        ("modm-fixed", "cached"): 50_000,
        ("nirvana-no-predictor", "cached"): 50_000,  # nirvana trains its predictor
    }
    budget = budgets.get((system, search))
    run = timed(benchmark, count, make, budget, ROUNDS if search == "exact" else SHORT)
    weighed(benchmark, lambda: make().run())
    assert run.arrived == count
    assert len(assembled.trace) == count + preload


@pytest.mark.parametrize("system", some("nirvana", "modm-throughput"))
def test_declared_hits(benchmark: Benchmark, system: str) -> None:
    count = 200_000 // SCALE
    hits = system.partition("-")[0]
    settings = check(configured(f"trace.requests={count}", "arrivals.rate_rpm=10", f"system={system}", f"hits={hits}"))
    run = timed(benchmark, count, lambda: assemble(settings).engine, 150_000, SHORT)
    assert run.hits > count / 2


class Known:
    """A search with given neighbours."""

    def __init__(self, known: Neighbours) -> None:
        self.known = known

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        return lambda: CachedIndex(self.known, lambda: Exact().open(source, rows, floor, content)())


def with_known_neighbours(settings: Any, rows: int) -> Callable[[], Engine]:
    """Return what makes the engine of ``settings``, filled, with neighbours drawn from a law (families.py)."""
    search = Known(neighbours(rows, FLOOR, np.random.default_rng(0)))

    def make() -> Engine:
        made = assemble(settings).engine
        made.similarity.search = search
        made.similarity.embeddings = lambda: np.zeros((rows, 1), np.float32)
        return filled(made)

    return make


@pytest.mark.parametrize("items", [15_000, 150_000, 1_500_000] if FULL else [1_500_000])
@pytest.mark.parametrize("policy", some("fifo", "lru", "lfu", "lcbfu"))
def test_speed_of_a_million_requests_through_a_full_cache(benchmark: Benchmark, policy: str, items: int) -> None:
    """NIRVANA's largest cache (7.3) and smaller ones, full from the start, 5 items per prompt; 16 workers."""
    count, preload = 1_000_000 // SCALE, items // 5 // SCALE
    overrides = (f"trace.requests={count + preload}", f"preload={preload}", "arrivals.rate_rpm=10")
    system = ("system=nirvana-no-predictor", f"cache.capacity={preload * 5}")
    chosen = (*system, f"eviction={policy}")
    settings = check(configured(*overrides, *chosen))
    run = timed(benchmark, count, with_known_neighbours(settings, count + preload), 50_000, rounds=1)
    assert run.arrived == count
    assert run.record.request_columns["evictions"].sum() > count / 10


@pytest.mark.parametrize("system", some("modm-throughput", "modm-quality"))
def test_speed_of_modm_with_its_monitor(benchmark: Benchmark, system: str) -> None:
    """A million requests with 100,000 cached images, full from the start; the monitor splits 16 workers every 3
    minutes."""
    count, preload = 1_000_000 // SCALE, 100_000 // SCALE
    overrides = (f"trace.requests={count + preload}", f"preload={preload}", "arrivals.rate_rpm=18")
    settings = check(configured(*overrides, f"system={system}", f"cache.capacity={preload}"))
    make = with_known_neighbours(settings, count + preload)
    run = timed(benchmark, count, make, 50_000, rounds=1)
    weighed(benchmark, lambda: make().run())
    assert run.arrived == count
    assert 0.05 < run.hits / run.lookups < 0.99
    assert sum(what == "split" for _, what, _ in run.record.decisions) > count / 18 / 3 / 2


@pytest.mark.parametrize(("how", "window"), [("exact", 10_000), ("exact", 100_000), ("approximate", 100_000)])
def test_speed_of_search_alone(benchmark: Benchmark, how: str, window: int) -> None:
    """A sliding window over the prompts of the built-in trace, 512 dimensions: find, evict, insert.

    Recall at 1 is the share of the queries with a match above the floor for which that match is found.
    """
    if how == "approximate":
        pytest.importorskip("faiss")
    window, count = window // SCALE, 10_000 // SCALE
    settings = check(configured(f"trace.requests={window + count}", "system=nirvana"))
    rows = window + count
    source = TextToText()
    source.bind(assemble(settings).engine.similarity.embeddings(), np.random.default_rng(0))
    budget = {("exact", 10_000): 5_000, ("approximate", 100_000): 4_000}.get((how, window * SCALE))
    benchmark.extra_info |= {"requests": count, "budget": budget}
    made = (Approximate() if how == "approximate" else Exact()).open(source, rows, FLOOR, None)

    def setup() -> tuple[tuple[Index], dict[str, Any]]:
        index = made()
        for row in range(window):
            index.add(row, row)
        return (index,), {}

    def slide(index: Index) -> list[Found | None]:
        found = []
        for row in range(window, rows):
            found.append(index.best(row))
            index.remove(row - window)
            index.add(row, row)
        return found

    found = benchmark.pedantic(slide, setup=setup, rounds=SHORT if budget else ROUNDS)
    weighed(benchmark, lambda: slide(*setup()[0]))
    if how == "approximate":
        made = Exact().open(source, rows, FLOOR, None)
        wanted = slide(*setup()[0])
        matched = [best == near for best, near in zip(wanted, found, strict=True) if best is not None]
        benchmark.extra_info["recall"] = sum(matched) / max(1, len(matched))


def test_speed_of_synthesis(benchmark: Benchmark) -> None:
    """A million requests with all their columns, in under a minute."""
    rows = 1_000_000 // SCALE
    benchmark.extra_info |= {"requests": rows, "budget": 20_000}

    def make() -> None:
        Synthetic(requests=rows).load(np.random.default_rng(0))

    make()  # word lists are made once
    benchmark.pedantic(make, rounds=1)
    weighed(benchmark, make)


def test_speed_of_a_closed_loop(benchmark: Benchmark) -> None:
    count = 200_000 // SCALE
    schedule = Schedule(np.zeros(min(64, count)))
    timed(benchmark, count, lambda: engine(schedule, np.ones(count), 16))


class ThreeSizes(Backend):
    """A step of n images of one size takes 0.08 s and 0.02 s for each of them; sizes step one after another."""

    live, by_row, quality_basis = False, False, None

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.03)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        sizes: dict[str, int] = {}
        for work in works:
            sizes[work.shape] = sizes.get(work.shape, 0) + 1
        return Cost(sum(0.08 + 0.02 * n for n in sizes.values()) * count)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(0.14)

    def load(self, asset: object) -> Cost:
        return Cost(0.0)

    def assumptions(self) -> list[Assumption]:
        return []


@pytest.mark.parametrize("waiting", [0, 40_000])
@pytest.mark.parametrize("sizes", [1, 3])
def test_speed_of_continuous_batching_at_batch_16(benchmark: Benchmark, sizes: int, waiting: int) -> None:
    """Requests of 50 steps, up to 16 at once on each of 4 GPUs, near saturation; also behind a long queue."""
    waiting //= SCALE
    count = 20_000 // SCALE + waiting
    rng = np.random.default_rng(0)
    gap_s = 0.24 if sizes == 1 else 0.37
    times = np.concatenate((np.zeros(waiting), np.cumsum(rng.exponential(gap_s, count - waiting))))
    side = rng.choice([512, 768, 1024][:sizes], count).astype(np.int32)
    shapes = (side, side, np.full(count, 50, np.int32))
    run = timed(
        benchmark,
        count,
        lambda: engine(
            times,
            np.ones(count),
            4,
            backend=ThreeSizes(),
            executor=ContinuousBatching(16),
            shapes=shapes,
            use_model_shape=False,
        ),
        5_000,
        SHORT,
    )
    assert run.arrived == count
    assert not FULL or run.record.usage_log.spans()["batch"].max() == 16


@pytest.mark.parametrize("waiting", [0, 40_000])
def test_speed_of_slack_and_patches_at_batch_16(benchmark: Benchmark, waiting: int) -> None:
    """PatchedServe's scheduler with patched batches, 50 steps and three sizes, near saturation: once discarding late
    requests, once with a long queue in which no request is late for days."""
    waiting //= SCALE
    count = 20_000 // SCALE + waiting
    rng = np.random.default_rng(0)
    times = np.concatenate((np.zeros(waiting), np.cumsum(rng.exponential(0.4, count - waiting))))
    side = rng.choice([512, 768, 1024], count).astype(np.int32)

    def make() -> Engine:
        executor = ContinuousBatching(16, PatchedSteps())
        return engine(
            times, np.full(count, 4.0), 4, backend=Profiled("h100"), executor=executor, use_model_shape=False,
            models={"large": Model("sdxl", 50, 1024, 1024)}, deadline=1e6 if waiting else 5.0,
            scheduler=PerWorkerQueues(LeastOutstanding("pixels"), Slack(executor, latency_predictor.Known())),
            shapes=(side, side, np.full(count, 50, np.int32)),
        )  # fmt: skip

    run = timed(benchmark, count, make, 5_000, SHORT)
    assert run.arrived == count
    assert run.record.usage_log.spans()["batch"].max() <= 16


GROUP_POLICIES = {
    "lanes": ["system=fixed-groups"],
    "rssp-shared": ["system=rssp-shared"],
    "edf": ["system=edf-best-fit"],
    "edf-greedy": ["system=edf-best-fit", "group_policy=edf-greedy"],
    "edf-every-5-steps": ["system=edf-best-fit", "group_policy.steps=5"],
    "edf-moves-of-50-ms": ["system=edf-best-fit", "executor.migration_s=0.05"],
    "preempt-class": ["system=preempt-class"],
    "preempt-class-pause": ["system=preempt-class", "group_policy.give_way=pause"],
    "rounds": ["system=rounds"],
    "tetriserve": ["system=tetriserve"],
    "tridentserve": ["system=tridentserve"],
    "super-p95": ["system=super-p95"],
    "tail-gate": ["system=tail-gate"],
}


@pytest.mark.parametrize("policy", GROUP_POLICIES)
def test_speed_of_groups(benchmark: Benchmark, policy: str, tmp_path: Path) -> None:
    """Requests of 50 steps and three sizes on 8 GPUs, of which the steps on one GPU each would keep 70 % busy.

    The deadline of a size is 1.5 times (S), 0.8 times (M) or 0.6 times (L) its seconds on one GPU, as GF-DiT's uniform
    workload has it.
    """
    rows = poisson(4_000 if FULL else 40, 6.9)
    folder, limits = profile(tmp_path / "profile"), {"S": 11.625, "M": 24.2, "L": 46.71}
    run = timed(
        benchmark,
        len(rows),
        lambda: assembled(rows, folder, *GROUP_POLICIES[policy], deadline_s=limits)[-1].engine,
        10_000,
    )
    assert run.arrived == len(rows)
