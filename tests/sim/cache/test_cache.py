"""The artifact cache under each eviction and both units of eviction, against a linear search of a list."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import All, Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import K_BITS, Fifo, Lcbfu, Lfu, Lru, Optimum
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Eviction
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import DECIMALS, TextToText
from tests.sim.lab import engine

NIRVANA = {5: 0.65, 10: 0.75, 15: 0.85, 20: 0.90, 25: 0.95}
MAKE: dict[str, Callable[[], Eviction]] = {"fifo": Fifo, "lru": Lru, "optimum": Optimum}
MAKE |= {"lfu": lambda: Lfu(ageing=False), "lcbfu": lambda: Lcbfu(ageing=False)}


@dataclass
class Entry:
    """An item of the model: its row, its K (0 for a final image), and its history."""

    row: int
    k: int
    last: int
    uses: int = 0


@dataclass
class Model:
    """Brute-force model of the cache: the rules of NIRVANA 5.4 in order, without an index."""

    embeddings: np.ndarray
    capacity: int
    ks: tuple[int, ...]
    policy: str
    evict_by: str
    preload: int = 0
    items: list[Entry] = field(default_factory=list)
    time: int = 0
    evicted: int = 0

    def __post_init__(self) -> None:
        exact = self.embeddings.astype(np.float64)
        self.similar = np.round(exact @ exact.T, DECIMALS)
        self.wanted = np.zeros(self.similar.shape, int)
        for k, min_similarity in NIRVANA.items():
            self.wanted[self.similar > min_similarity] = k

    def start(self, row: int) -> tuple[int, int, bool]:
        """Return (source, K, whether a hole was met) of the request in ``row``."""
        rows = list(dict.fromkeys(item.row for item in self.items))
        if not rows:
            return MISSING, 0, False
        best = rows[int(np.argmax([self.similar[row, held] for held in rows]))]
        wanted = int(self.wanted[row, best])
        if not wanted:
            return MISSING, 0, False
        usable = [item for item in self.items if item.row == best and item.k <= wanted]
        full = max((k for k in self.ks if k <= wanted), default=0)
        if not usable:
            return MISSING, 0, full > 0
        item = max(usable, key=lambda item: item.k)
        item.uses += 1
        self.time += 1
        item.last = self.time
        return best, item.k or wanted, item.k < full

    def store(self, row: int, skipped: int) -> None:
        new = [k for k in self.ks if k > skipped] if self.ks else [0]
        self.evicted = 0
        if len(new) > self.capacity:
            return
        while len(self.items) + len(new) > self.capacity:
            self.evict(row)
            while self.evict_by == "prompt" and not self.emptied:
                self.evict(row)
        for k in new:
            self.time += 1
            self.items.append(Entry(row, k, self.time))

    def evict(self, now: int) -> None:
        worst = min(self.items, key=lambda item: self.order(item, now))
        self.items.remove(worst)
        self.evicted += 1
        self.emptied = all(item.row != worst.row for item in self.items)

    def order(self, item: Entry, now: int) -> tuple[int, ...]:
        if self.policy == "fifo":
            return item.row, item.k
        if self.policy == "lru":
            return (item.last,)
        if self.policy == "lfu":
            return item.uses, item.last
        if self.policy == "lcbfu":
            return (1 + item.uses) * (item.k or 1), item.row, item.k
        start = max(now + 1, self.preload)
        uses = np.flatnonzero(self.wanted[start:, item.row] >= max(item.k, 1))
        next_use = start + uses[0] if len(uses) else len(self.embeddings)
        return -int(next_use), item.row, item.k


def vectors(seed: int, rows: int, dim: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    raw = rng.integers(-2, 3, (rows, dim)) + 0.01
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def served(embeddings: np.ndarray, cache: ArtifactCache, everything: bool, **parts: Any) -> Engine:
    """Run a closed loop with one outstanding request (NIRVANA, 7.1)."""
    frontend = CachedFrontEnd(cache, Thresholds(dict(NIRVANA), strict=True), All() if everything else Misses())
    run = engine(
        Schedule(np.zeros(1)), [1.0] * len(embeddings), frontend=frontend, embeddings=lambda: embeddings, **parts
    )
    run.run()
    return run


def compared(
    embeddings: np.ndarray,
    capacity: int,
    ks: tuple[int, ...],
    policy: str,
    evict_by: str,
    every: bool,
    preload: int = 0,
) -> Engine:
    cache = ArtifactCache(capacity, TextToText(), MAKE[policy](), ks, evict_by)  # type: ignore[arg-type]
    run = served(embeddings, cache, every, preload=preload)
    model = Model(embeddings, capacity, ks, policy, evict_by, preload)
    for row in range(preload):
        model.store(row, 0)
    for row in range(preload, len(embeddings)):
        source, skipped, hole = model.start(row)
        model.evicted = 0
        if every or source == MISSING:
            model.store(row, skipped)
        columns, at = run.record.request_columns, row - preload
        outcome = columns["source"][at], columns["skipped"][at], bool(columns["hole"][at]), columns["evictions"][at]
        assert outcome == (source, skipped, hole, model.evicted), f"row {row}"
    assert cache.items == len(model.items) <= capacity
    assert len(cache) == len({item.row for item in model.items})
    return run


@pytest.mark.invariant(6)
@pytest.mark.parametrize("policy", MAKE)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 80),
    capacity=st.integers(1, 60),
    ks=st.sampled_from([(), (5, 10, 15, 20, 25), (10, 20), (25,)]),
    evict_by=st.sampled_from(["items", "prompt"]),
    every=st.booleans(),
    preload=st.integers(0, 20),
)
def test_artifact_cache_matches_a_linear_search_of_a_list(
    seed: int, rows: int, capacity: int, ks: tuple[int, ...], policy: str, evict_by: str, every: bool, preload: int
) -> None:
    """Compares source, K, holes and evictions of every request, including ties and capacities below |K|."""
    compared(vectors(seed, preload + rows), capacity, ks, policy, evict_by, every, preload)


@pytest.mark.parametrize("evict_by", ["items", "prompt"])
@pytest.mark.parametrize("policy", MAKE)
def test_artifact_cache_matches_a_list_over_a_long_run(policy: str, evict_by: str) -> None:
    run = compared(vectors(3, 500, 4), 51, (5, 10, 15, 20, 25), policy, evict_by, True)
    assert run.record.request_columns["evictions"].sum() > 500
    assert run.record.request_columns["hole"].sum() > 0


def test_evict_by_items_frees_what_is_needed_and_by_prompt_frees_whole_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four unlike prompts, capacity for three, the first used at 25: the fourth needs five items.

    ``items`` evicts the five worst: four of the first prompt and one of the second, which leaves holes in both.
    ``prompt`` continues until the second prompt has none left.
    """
    prompts = np.eye(4, dtype=np.float32)[[0, 1, 0, 2, 3]]
    gone: Counter[int] = Counter()
    choose = Lcbfu.victims

    def watched(self: Lcbfu, count: int) -> list[int]:
        victims = choose(self, count)
        gone.update(victim >> K_BITS for victim in victims)
        return victims

    monkeypatch.setattr(Lcbfu, "victims", watched)
    evictions = {}
    for evict_by in ("items", "prompt"):
        gone.clear()
        cache = ArtifactCache(15, TextToText(), Lcbfu(ageing=False, initial_uses=0), (5, 10, 15, 20, 25), evict_by)  # type: ignore[arg-type]
        run = served(prompts, cache, everything=False)
        evictions[evict_by] = run.record.request_columns["evictions"][4], dict(gone), len(cache)
    assert evictions == {"items": (5, {0: 4, 1: 1}, 4), "prompt": (9, {0: 4, 1: 5}, 3)}


def test_hit_without_a_state_up_to_its_k_is_a_miss_and_is_stored() -> None:
    """The only state left is at 25 and the request may skip 10: a hole, a full generation, and a new entry."""
    close = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1], [0.8, 0.6, 0]], np.float32)
    cache = ArtifactCache(4, TextToText(), Lcbfu(), (5, 10, 25))
    run = served(close, cache, everything=False)
    assert list(run.record.request_columns["k"]) == [0, 25, 0, 0]
    assert list(run.record.request_columns["hole"]) == [0, 0, 0, 1]
    assert len(cache) == 2


@pytest.mark.parametrize(("ks", "sources"), [((25,), [MISSING, 1]), ((), [0, MISSING])])
def test_optimum_counts_latents_as_useful_for_their_own_shape_only(ks: tuple[int, ...], sources: list[int]) -> None:
    """Capacity two. Row 3 repeats row 0 in another shape, row 4 repeats row 1 in its own: row 0 is useful only as an
    image."""
    prompts = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]]
    sizes = (np.array([64, 128, 128, 128, 128], np.int32), *(np.full(5, value, np.int32) for value in (64, 50)))
    run = served(
        prompts, ArtifactCache(2, TextToText(), Optimum(), ks), everything=False, shapes=sizes, use_model_shape=False
    )
    assert list(run.record.request_columns["source"])[3:] == sources
