"""With a threshold of 1 a cache of one K is a cache by key: libcachesim and exhaustive search are the oracles."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo, Lcbfu, Lfu, Lru, Optimum
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Eviction
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import engine


def hits(keys: np.ndarray, size: int, eviction: Eviction, ks: tuple[int, ...] = ()) -> list[bool]:
    """Return which requests hit: one outstanding at a time, stored on a miss, found only at similarity 1."""
    prompts = np.random.default_rng(0).normal(size=(int(keys.max()) + 1, 16))
    embeddings = (prompts / np.linalg.norm(prompts, axis=1, keepdims=True)).astype(np.float32)[keys]
    cache = ArtifactCache(size, TextToText(), eviction, ks)
    frontend = CachedFrontEnd(cache, Thresholds({25: 1.0}), Misses())
    run = engine(Schedule(np.zeros(1)), [1.0] * len(keys), frontend=frontend, embeddings=lambda: embeddings)
    run.run()
    return [source != MISSING for source in run.record.request_columns["source"]]


@pytest.mark.parametrize("size", [1, 10, 45, 120])
@pytest.mark.parametrize(("peer", "ours"), [("FIFO", Fifo), ("LRU", Lru), ("LFU", lambda: Lfu(ageing=False))])
def test_fifo_lru_and_lfu_hits_equal_libcachesim(peer: str, ours: Callable[[], Eviction], size: int) -> None:
    """A Zipf trace of 1,500 requests for 200 keys; compares every request."""
    libcachesim = pytest.importorskip("libcachesim")
    popularity = 1 / np.arange(1, 201) ** 0.9
    keys = np.random.default_rng(size).choice(200, 1500, p=popularity / popularity.sum())
    cache = getattr(libcachesim, peer)(cache_size=size)
    theirs = []
    for time, key in enumerate(keys.tolist()):
        request = libcachesim.Request()
        request.obj_id, request.obj_size, request.clock_time = key, 1, time
        theirs.append(cache.get(request))
    assert 0 < sum(theirs) < len(keys)
    assert hits(keys, size, ours(), (25,) if size % 2 else ()) == theirs


def max_hits(keys: tuple[int, ...], size: int) -> int:
    """Return the most hits of any eviction if every miss is stored, by exhaustive search."""

    @functools.cache
    def best(at: int, held: frozenset[int]) -> int:
        if at == len(keys):
            return 0
        if keys[at] in held:
            return 1 + best(at + 1, held)
        if len(held) < size:
            return best(at + 1, held | {keys[at]})
        return max(best(at + 1, held - {gone} | {keys[at]}) for gone in held)

    return best(0, frozenset())


@settings(max_examples=60)
@given(keys=st.lists(st.integers(0, 5), min_size=1, max_size=16), size=st.integers(1, 4))
def test_offline_optimum_is_optimal_for_equal_keys(keys: list[int], size: int) -> None:
    assert sum(hits(np.array(keys), size, Optimum())) == max_hits(tuple(keys), size)
    assert sum(hits(np.array(keys), size, Optimum(), (25,))) == max_hits(tuple(keys), size)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 30))
def test_no_policy_has_more_hits_than_the_offline_optimum(seed: int, size: int) -> None:
    keys = np.random.default_rng(seed).zipf(1.3, 300) % 50
    best = sum(hits(keys, size, Optimum()))
    assert all(sum(hits(keys, size, policy())) <= best for policy in (Fifo, Lru, Lfu, Lcbfu))
