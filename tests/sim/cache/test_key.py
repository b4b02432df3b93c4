"""Cache keys, lifetimes and resizing, against a list that is scanned from end to end."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import All
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo, Lfu, Lru, Optimum
from mezzotint.sim.cache.eviction.random import Random
from mezzotint.sim.cache.key import KeyPart
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Eviction
from mezzotint.traces.similarity.approximate import Approximate
from mezzotint.traces.similarity.cached import CachedSearch
from mezzotint.traces.similarity.exact import Exact
from mezzotint.traces.similarity.search import Search
from mezzotint.traces.similarity.similarities import DECIMALS, TextToText
from tests.sim.lab import engine, simulated

COLUMNS: dict[str, KeyPart] = {"seed": "seed", "user_id": "tenant", "base_model": "model"}
SEARCHES: dict[str, Callable[[], Search]] = {
    "exact": Exact,
    "cached": CachedSearch,
    "cut": lambda: CachedSearch(10**6, 3),
}
EVICTIONS: dict[str, Callable[[], Eviction]] = {"fifo": Fifo, "lru": Lru, "lfu": Lfu, "random": Random}
FLOOR = 0.7


def vectors(seed: int, rows: int, dim: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    raw = rng.integers(-2, 3, (rows, dim)) + 0.01
    unit: np.ndarray = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    return unit


def images(capacity: int | None = None, eviction: Eviction | None = None, **cache: Any) -> ArtifactCache:
    return ArtifactCache(capacity, TextToText(), eviction or Fifo(), **cache)


def served(embeddings: np.ndarray, cache: ArtifactCache, floor: float = FLOOR, **parts: Any) -> Engine:
    """Requests arrive one second apart and take no time; every image is stored, and reused as it is."""
    rows = len(embeddings)
    frontend = CachedFrontEnd(cache, Thresholds({25: floor}), All(), **parts.pop("frontend", {}))
    run = engine(np.arange(rows), [0.0] * rows, frontend=frontend, embeddings=lambda: embeddings, **parts)
    run.run()
    return run


def sources(run: Engine) -> list[int]:
    return list(run.record.request_columns["source"])


def scanned(embeddings: np.ndarray, keys: np.ndarray, lifetime_s: float, capacity: float = np.inf) -> list[int]:
    """Return the source of every request: the most similar of the last ``capacity`` rows of its key that are younger
    than ``lifetime_s``, the oldest of ties."""
    exact = embeddings.astype(np.float64)
    found = []
    for row in range(len(exact)):
        held = [r for r in range(row) if row - r < lifetime_s and r >= row - capacity and (keys[r] == keys[row]).all()]
        products = np.round(exact[held] @ exact[row], DECIMALS)
        hit = len(held) and products.max() >= FLOOR
        found.append(held[int(products.argmax())] if hit else MISSING)
    return found


@pytest.mark.parametrize("search", SEARCHES)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 150),
    values=st.sampled_from([1, 2, 5, 100, 1000]),
    key=st.sets(st.sampled_from(sorted(COLUMNS))),
    lifetime_s=st.sampled_from([None, 0, 1, 7.5, 40, 1e6]),
    capacity=st.none() | st.integers(1, 60),
)
def test_every_hit_is_that_of_a_linear_scan_with_the_key_compared(
    seed: int, rows: int, values: int, key: set[str], lifetime_s: float | None, capacity: int | None, search: str
) -> None:
    embeddings, rng = vectors(seed, rows), np.random.default_rng(seed)
    columns = {name: rng.integers(0, values, rows).astype(np.int32) for name in sorted(COLUMNS)}
    cache = images(capacity, key=tuple(COLUMNS[name] for name in key), lifetime_s=lifetime_s)
    run = served(embeddings, cache, search=SEARCHES[search](), column_codes=columns.__getitem__)
    keys = np.stack([np.zeros(rows, np.int32), *(columns[name] for name in key)], axis=1)
    limits = (np.inf if limit is None else limit for limit in (lifetime_s, capacity))
    assert sources(run) == scanned(embeddings, keys, *limits)


def test_small_partitions_become_indexes_as_they_grow() -> None:
    """With 70 keys partitions are scanned, and one of them outgrows that; each search finds the same."""
    embeddings = vectors(3, 600, dim=24)
    keys = np.where(np.arange(600) % 2, 0, np.arange(600) // 2 % 70).astype(np.int32)
    expected = scanned(embeddings, keys[:, None], np.inf)
    for search in (Exact(), CachedSearch(), CachedSearch(10**6, 2), Approximate(axes=24)):
        run = served(embeddings, images(key=("seed",)), search=search, column_codes=lambda _: keys)
        assert sources(run) == expected


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("evict_by", ["items", "prompt"])
def test_cache_holds_its_capacity_of_artifacts_that_have_not_expired(eviction: str, evict_by: str) -> None:
    """What expired makes room: of 12 items at most, 4 entries of one state live for 5 s and more are evicted."""
    for lifetime_s, held in ((5.0, 5), (50.0, 12), (None, 12)):
        cache = images(12, EVICTIONS[eviction](), evict_by=evict_by, lifetime_s=lifetime_s)
        run = served(vectors(1, 200), cache)
        assert (cache.items, len(cache)) == (held, held)
        evicted = int(np.sum(run.record.request_columns["evictions"]))
        assert (evicted == 0) == (lifetime_s == 5.0)
        ages = run.record.request_columns["source_age_s"]
        assert np.nanmax(ages) < (lifetime_s or np.inf)


def test_lifetime_of_zero_leaves_no_hit_and_none_is_for_ever() -> None:
    embeddings = vectors(2, 100)
    assert set(sources(served(embeddings, images(lifetime_s=0.0)))) == {MISSING}
    forever = served(embeddings, images(lifetime_s=None))
    assert sources(forever) == sources(served(embeddings, images(lifetime_s=1e6)))
    assert set(sources(forever)) != {MISSING}


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_another_part_of_the_key_adds_no_hit(seed: int) -> None:
    """On a cache that never evicts."""
    embeddings, rng = vectors(seed, 80), np.random.default_rng(seed)
    columns = {name: rng.integers(0, 3, 80).astype(np.int32) for name in COLUMNS}
    before = np.ones(80, bool)
    for parts in range(len(COLUMNS) + 1):
        key = tuple(COLUMNS.values())[:parts]
        hits = np.array(sources(served(embeddings, images(key=key), column_codes=columns.__getitem__))) != MISSING
        assert not (hits & ~before).any()
        before = hits


def test_optimum_keeps_what_the_key_lets_a_later_request_use() -> None:
    """Rows 0 and 1 are equally similar to row 3, and only row 0 has its seed."""
    embeddings = np.eye(2, dtype=np.float32)[[0, 0, 1, 0]]
    seeds = np.array([7, 8, 9, 7], np.int32)
    run = served(embeddings, images(2, Optimum(), key=("seed",)), column_codes=lambda _: seeds)
    assert sources(run)[3] == 0


def test_optimum_keeps_what_is_used_before_it_expires() -> None:
    """Row 3 evicts row 0, which is used sooner than row 2, but too late."""
    embeddings = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0, 2]]
    assert sources(served(embeddings, images(2, Optimum(), lifetime_s=4.0)))[4:] == [MISSING, 2]
    assert sources(served(embeddings, images(2, Optimum())))[4:] == [0, MISSING]


def test_optimum_with_a_lifetime_needs_known_arrivals() -> None:
    closed = ["trace.requests=30", "arrivals=closed", "arrivals.outstanding=2", "cache.capacity=20", "eviction=optimum"]
    with pytest.raises(
        ConfigError, match=r"eviction: found the offline optimum beside cache\.lifetime_s=60 in a closed"
    ):
        simulated("system=nirvana-no-predictor", "cache.lifetime_s=60", *closed)


def test_request_without_a_value_matches_others_without_one_only() -> None:
    same, seeds = np.ones((5, 1), np.float32), np.array([-1, 7, -1, 7, 0], np.int32)
    run = served(same, images(key=("seed",)), column_codes=lambda _: seeds)
    assert sources(run) == [MISSING, MISSING, 0, 1, MISSING]


def sized(*widths: int) -> dict[str, Any]:
    same = np.full(len(widths), 64, np.int32)
    return {"shapes": (np.array(widths, np.int32), same, same // 64 * 50), "use_model_shape": False}


def test_same_prompt_in_turn_at_two_sizes_misses_until_its_own_size_was_made() -> None:
    same, sizes = np.ones((6, 1), np.float32), sized(64, 128, 64, 128, 64, 256)
    assert sources(served(same, images(key=("size",)), **sizes)) == [MISSING, MISSING, 0, 1, 0, MISSING]
    assert sources(served(same, images(), **sizes)) == [MISSING, 0, 0, 0, 0, 0]


def test_image_of_another_size_costs_its_resizing() -> None:
    """Steps take no time here, a fetch .25 s, and resizing 2 s; the third request waits for the second."""
    cache = images(resize_s=2.0)
    run = served(np.ones((3, 1), np.float32), cache, frontend={"fetch_s": 0.25}, **sized(64, 128, 64))
    columns = run.record.request_columns
    assert np.allclose(columns["finish_s"] - columns["arrival_s"], [0.0, 2.25, 1.25 + 0.25])
    listed = {each.what: each.value for each in run.record.assumptions}
    assert listed["seconds to resize an image of another size"] == 2.0
    assert (listed["cache key"], listed["lifetime of an artifact [s]"]) == ("none", "for ever")


def test_keys_that_cannot_hold_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"cache\.key: found \[seed, size\] without steps, and the cache stores latents"
    ):
        images(latents_at=(5, 25), key=("seed", "size"))
    with pytest.raises(ConfigError, match=r"cache\.resize_s: found 2 beside a key with size"):
        images(key=("size",), resize_s=2.0)
    with pytest.raises(ConfigError, match=r"cache\.key: found tenant, and no request .* in its column user_id"):
        served(vectors(1, 3), images(key=("tenant",)), column_codes=lambda _: np.full(3, -1, np.int32))
