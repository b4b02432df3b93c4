"""Why two rows of NIRVANA's Table 3 and one of SwiftDiffusion are inconsistent; no other row may have that role."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo, Lcbfu, Lfu, Lru
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.papers.scorecard.study import load_study
from mezzotint.sim.papers.scorecard.targets import Target
from mezzotint.sim.protocols import Eviction
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import engine

REQUESTS = 1_900_000
"""Of DiffusionDB's 2 million, those that NIRVANA replays."""

ITEMS, KS = 1_500_000, (5, 10, 15, 20, 25)


def test_misses_of_lru_fill_less_than_a_third_of_the_cache() -> None:
    """With insertion on a miss only (5.4), the misses of LRU's 0.95, five items each, fill less than a third of the
    cache."""
    known = targets()
    assert {name for name, row in known.items() if row.role == "inconsistent"} == {"N07-most", "N08-most", "S16"}
    lru, *_ = known["N07-most"].values
    misses = (1 - lru) * REQUESTS
    assert misses == pytest.approx(95_000)
    assert misses * len(KS) < ITEMS / 3
    assert known["N07-fifo"].values[-1] < lru - 0.1  # and yet FIFO is another cache


def test_speedup_by_asynchronous_loras_is_below_what_the_times_beside_it_make() -> None:
    """Of an image of 2.9 s on an H800: with two LoRAs diffusers takes 2.3 times as long, SwiftDiffusion adds 0.23 s."""
    known, image_s = targets(), 2.9
    (over,), (added_s,), (speedup,) = (known[name].values for name in ("S14", "S15", "S16"))
    made = over * image_s / (image_s + added_s)
    assert made == pytest.approx(2.13, abs=0.005)
    assert made > speedup * (1 + (known["S16"].rel_tol or 0))


def targets() -> dict[str, Target]:
    """Return the targets of all papers, by id."""
    return {row.id: row for listed in load_study(None, quick=False).targets.values() for row in listed}


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 120), spare=st.integers(0, 20))
def test_all_policies_are_equal_if_nothing_is_evicted(seed: int, rows: int, spare: int) -> None:
    """With a capacity of all items that LRU's misses store, every policy serves alike and evicts nothing."""
    raw = np.random.default_rng(seed).integers(-2, 3, (rows, 3)) + 0.01
    prompts = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    unbounded, _ = served(prompts, None, Lru())
    misses = sum(k == 0 for k in unbounded)
    for policy in (Fifo(), Lru(), Lfu(), Lcbfu(), Lfu(ageing=False), Lcbfu(ageing=False)):
        assert served(prompts, misses * len(KS) + spare, policy) == (unbounded, 0)


def served(prompts: np.ndarray, items: int | None, eviction: Eviction) -> tuple[list[int], int]:
    """Return the K of every request, and the number of evicted items."""
    cache = ArtifactCache(items, TextToText(), eviction, KS)
    frontend = CachedFrontEnd(
        cache, Thresholds({5: 0.65, 10: 0.75, 15: 0.85, 20: 0.90, 25: 0.95}, strict=True), Misses()
    )
    run = engine(Schedule(np.zeros(1)), [1.0] * len(prompts), frontend=frontend, embeddings=lambda: prompts)
    run.run()
    return run.record.request_columns["k"].tolist(), int(run.record.request_columns["evictions"].sum())
