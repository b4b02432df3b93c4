"""Delays and outages of the vector index and of the store."""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import All, Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.index import VectorIndex
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.cache.store import ArtifactStore
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import HIT, LOOKUPS, MISS, MISSING, NO_DATABASE, STALE
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.frontend.match_predictor import OneClassSvm
from mezzotint.sim.metrics.recorder import TRAININGS
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import engine, simulated

Windows = Sequence[tuple[float, float]]


class ExactIndex:
    """An index that finds every item it holds."""

    def __init__(self) -> None:
        self.entries: set[int] = set()

    def add(self, entry: int, row: int) -> None:
        self.entries.add(entry)

    def remove(self, entry: int) -> None:
        self.entries.remove(entry)

    def best(self, row: int) -> tuple[frozenset[int], float]:
        return frozenset(self.entries), 1.0

    def __len__(self) -> int:
        return len(self.entries)


def seen_from(asked: list[float], batch: int, period_s: float, change_s: float, outages: Windows) -> list[float]:
    """Return when each change becomes visible, worked out batch by batch for one server."""
    seen: list[float] = []
    free_s = -inf
    while len(seen) < len(asked):
        waiting = asked[len(seen) :]
        full_s = waiting[batch - 1] if len(waiting) >= batch else inf
        begin_s = max(free_s, min(full_s, waiting[0] + period_s))
        if begin_s == inf:
            return seen + [inf] * len(waiting)
        count = min(batch, sum(at <= begin_s for at in waiting))
        for from_s, until_s in outages:
            if from_s <= begin_s < until_s or begin_s < from_s < begin_s + count * change_s:
                begin_s = until_s
        free_s = begin_s + count * change_s
        seen += [free_s] * count
    return seen


outages = st.lists(st.integers(0, 60), max_size=6, unique=True).map(
    lambda edges: [(a + 0.25, b + 0.25) for a, b in zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False)]
)


@settings(max_examples=200)
@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["add", "remove", "best", "best"])), max_size=60),
    batch=st.integers(1, 7),
    period_s=st.none() | st.integers(0, 9).map(lambda s: s + 0.5),
    change_s=st.sampled_from([0.0, sqrt(2) / 9, sqrt(2)]),
    outages=outages,
)
def test_index_change_is_visible_when_its_batch_is_done(
    steps: list[tuple[int, str]], batch: int, period_s: float | None, change_s: float, outages: Windows
) -> None:
    """A search at any time finds what a replay of the batches up to then would hold."""
    index = VectorIndex(batch, period_s, 10_000 * change_s, outages)
    index.open(ExactIndex)
    index.start_serving()
    now_s, entry, live, changes, looks = 0.0, 0, [], [], []
    for gap, what in steps:
        now_s += gap
        if what == "add":
            index.add(None, entry, entry, now_s)
            changes.append((now_s, entry, True))
            live.append(entry)
            entry += 1
        elif what == "remove" and live:
            gone = live.pop(0)
            index.remove(None, gone, gone, now_s)
            changes.append((now_s, gone, False))
        elif what == "best":
            found = index.find(None, 0, now_s)
            looks.append((now_s, len(changes), found[0] if found else frozenset()))
    seen = seen_from([at for at, _, _ in changes], batch, inf if period_s is None else period_s, change_s, outages)
    for at_s, asked, found in looks:
        held: set[int] = set()
        for (_, which, insert), from_s in zip(changes[:asked], seen[:asked], strict=True):
            if from_s <= at_s:
                held = held | {which} if insert else held - {which}
        assert found == held


def frontend(capacity: int | None = None, **parts: object) -> CachedFrontEnd:
    return CachedFrontEnd(
        ArtifactCache(capacity, TextToText(), Fifo()), Thresholds({25: 0.9}), **({"admission": All()} | parts)
    )  # type: ignore[arg-type]


def served(prompts: list[int], front: CachedFrontEnd, gap_s: float = 1.0, **parts: object) -> Engine:
    """One request every ``gap_s`` seconds for one of several unrelated prompts; an image takes no time."""
    vectors = np.eye(max(prompts) + 1, dtype=np.float32)[prompts]
    count = len(prompts) - int(parts.get("preload", 0))  # type: ignore[call-overload]
    run = engine(gap_s * np.arange(count), [0.0] * len(prompts), frontend=front, embeddings=lambda: vectors, **parts)
    run.run()
    return run


def test_image_is_found_only_after_its_index_batch() -> None:
    run = served([0, 0, 0, 0, 0], frontend(index=VectorIndex(per_10k_s=25_000)))
    assert list(run.record.request_columns["source"]) == [MISSING, MISSING, MISSING, 0, 0]
    run = served([0, 0, 0, 0, 0], frontend(index=VectorIndex(batch=3)))
    assert list(run.record.request_columns["source"]) == [MISSING, MISSING, MISSING, 0, 0]
    run = served([0, 0, 0, 0, 0], frontend(index=VectorIndex(batch=3, period_s=1.5)))
    assert list(run.record.request_columns["source"]) == [MISSING, MISSING, 0, 0, 0]


def test_preloaded_images_are_indexed_at_the_start() -> None:
    run = served([0, 1, 1, 0], frontend(index=VectorIndex(batch=100, per_10k_s=1e6)), preload=2)
    assert list(run.record.request_columns["lookup"]) == [HIT, HIT]


def test_deleted_image_is_found_until_the_index_updates_and_costs_search_and_fetch() -> None:
    """The cache holds one image: the second evicts the first, which the index learns 1.5 s later."""
    slow = VectorIndex(batch=100, period_s=1.5)
    run = served([0, 1, 0, 0], frontend(1, index=slow, search_s=0.1, fetch_s=0.2, admission=Misses()), preload=1)
    assert [LOOKUPS[code] for code in run.record.request_columns["lookup"]] == ["miss", "stale", "hit"]
    assert list(run.record.request_columns["search_s"]) == pytest.approx([0.1, 0.3, 0.1])
    assert list(run.record.request_columns["skipped"]) == [0, 0, 25]
    assert run.record.request_columns["finish_s"][1] == pytest.approx(1.0 + 0.3)
    instant = served([0, 1, 0, 0], frontend(1, search_s=0.1, fetch_s=0.2, admission=Misses()), preload=1)
    assert [LOOKUPS[code] for code in instant.record.request_columns["lookup"]] == ["miss", "miss", "hit"]


def test_index_outage_costs_the_timeout_and_delays_insertions() -> None:
    """An image made during the outage is found after it; every request in the outage is generated in full."""
    front = frontend(index=VectorIndex(outages=[(0.5, 3.5)], timeout_s=0.25), search_s=0.1)
    run = served([0, 0, 1, 1, 1, 0], front)
    assert [LOOKUPS[code] for code in run.record.request_columns["lookup"]] == [
        "miss",
        *["no database"] * 3,
        "hit",
        "hit",
    ]
    assert list(run.record.request_columns["search_s"]) == pytest.approx([0.1, 0.25, 0.25, 0.25, 0.1, 0.1])
    assert list(run.record.request_columns["source"]) == [MISSING] * 4 + [2, 0]


def test_store_outage_costs_the_timeout_only_on_a_match() -> None:
    front = frontend(store=ArtifactStore([(0.5, 3.5)], timeout_s=0.25), search_s=0.1)
    run = served([0, 0, 1, 1, 1, 0], front)
    assert [LOOKUPS[code] for code in run.record.request_columns["lookup"]] == [
        "miss", "no store", "miss", "no store", "hit", "hit",
    ]  # fmt: skip
    assert list(run.record.request_columns["search_s"]) == pytest.approx([0.1, 0.35, 0.1, 0.35, 0.1, 0.1])


def test_index_outage_loses_no_request_and_shows_in_the_time_series() -> None:
    """NIRVANA through an outage of its index: full generations meanwhile, hits before and after."""
    from_s, until_s = 1800.0, 3600.0
    run = simulated(
        "system=nirvana-no-predictor", "trace.requests=1200", "preload=300", "arrivals.rate_rpm=10",
        f"index.outages=[[{from_s},{until_s}]]", "index.timeout_s=2",
    )  # fmt: skip
    rows, series, summary = run.requests.to_pandas(), run.cluster.to_pandas(), run.summary
    assert summary["requests"] == {"arrived": 900, "completed": 900, "discarded": 0, "failed": 0}
    during = rows.arrival_s.between(from_s, until_s, inclusive="left")
    assert (rows.lookup[during] == "no database").all()
    assert (rows.skipped[during] == 0).all()
    assert (rows.search_s[during] == 2).all()
    np.testing.assert_allclose(rows.denoise_s[during], 91.5)
    assert not (rows.lookup[~during] == "no database").any()
    for part in (rows.arrival_s < from_s, rows.arrival_s >= until_s):
        assert (rows.lookup[part] == "hit").mean() > 0.1
    assert summary["cache"]["fallbacks"] == {"database": during.sum(), "store": 0}
    up = ~series.time_s.between(from_s, until_s, inclusive="left")
    assert (series.database_up == up).all()
    assert series.store_up.all()
    assert (series.hits.diff()[(~up) & (~up).shift(fill_value=False)] == 0).all()
    assert series.hits.iloc[-1] == summary["cache"]["hits"] == (rows.lookup == "hit").sum()
    assert series.fallbacks.iloc[-1] == during.sum()
    assert series.lookups.iloc[-1] == 900
    assert series.hits.iloc[-1] > series.hits[~up].max()


def test_index_update_due_after_the_last_request_does_not_prolong_the_run() -> None:
    overrides = ("system=nirvana", "trace.requests=100", "index.batch=1000")
    slow, instant = (simulated(*overrides, f"index.period_s={s}") for s in (1e6, 0))
    assert slow.cluster["time_s"].to_numpy().max() < 1e5
    assert slow.summary["cache"]["hits"] == 0 < instant.summary["cache"]["hits"]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    batch=st.integers(1, 20),
    period_s=st.none() | st.floats(0, 20),
    per_10k_s=st.sampled_from([0.0, 5000.0]),
    windows=outages,
    ks=st.sampled_from([(), (5, 10, 15, 20, 25)]),
    predicting=st.booleans(),
)
def test_request_latency_follows_its_plan_and_repeats_by_seed(
    seed: int,
    batch: int,
    period_s: float | None,
    per_10k_s: float,
    windows: Windows,
    ks: tuple[int, ...],
    predicting: bool,
) -> None:
    """NIRVANA, 4.1, with any failures: the front end's time, l_r on a hit, and C (N - K) / N."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(80, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def run() -> Engine:
        front = CachedFrontEnd(
            ArtifactCache(60, TextToText(), Fifo(), ks),
            Thresholds({5: 0.9, 25: 0.99}),
            Misses(),
            search_s=0.1,
            fetch_s=0.2,
            index=VectorIndex(batch, period_s, per_10k_s, windows, timeout_s=0.5),
            store=ArtifactStore([(start + 5, stop + 5) for start, stop in windows], timeout_s=0.7),
            **({"match_predictor": OneClassSvm(nu=0.5)} if predicting else {}),
        )
        made = engine(np.arange(80), [0.4] * 80, 80, frontend=front, embeddings=lambda: vectors)
        made.run()
        return made

    records = run().record, run().record
    first, second = (record.request_columns for record in records)
    for name in ("finish_s", "lookup", "source", "search_s", "evictions"):
        np.testing.assert_array_equal(first[name], second[name])
    trained = [record.logs[TRAININGS].at_s if predicting else None for record in records]
    assert trained[0] == trained[1]
    assert first["lookup"].all()
    took_s = first["finish_s"] - np.arange(80)
    hit = first["lookup"] == HIT
    expected = first["search_s"] + np.where(hit, 0.2, 0.0) + 0.4 * (50 - first["k"]) / 50
    np.testing.assert_allclose(took_s, expected, atol=1e-9)
    cost = {MISS: 0.1, HIT: 0.1, 3: 0.1, STALE: 0.3, 5: 0.0, 6: 0.0, NO_DATABASE: 0.5, 8: 0.8}
    np.testing.assert_allclose(first["search_s"], [cost[code] for code in first["lookup"]])
    np.testing.assert_array_equal(first["source"] != MISSING, hit)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("index.batch=0", r"index\.batch: found 0, expected int at least 1"),
        ("index.period_s=-1", r"index\.period_s: found -1, expected float at least 0"),
        ("index.outages=[[5,2]]", r"index\.outages: found \[\[5\.0, 2\.0\]\], expected windows"),
        ("index.outages=[[1,5],[4,8]]", r"index\.outages: .*each to end before the next begins"),
        ("store.outages=[[-1,5]]", r"store\.outages: "),
        ("store.timeout_s=inf", r"store\.timeout_s: found inf"),
        ("store.outages=7", r"store\.outages: found 7, expected"),
    ],
)
def test_invalid_service_setting_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated("system=nirvana", "trace.requests=20", override)
