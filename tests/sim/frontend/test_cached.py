"""Caches, selectors and front ends, against slow and simple models of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import All, Large, Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import Admission
from mezzotint.sim.scheduling.hit_miss import HitMiss
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import DECIMALS, TextToText
from tests.sim.lab import FixedTimes, engine, simulated

NIRVANA = {5: 0.65, 10: 0.75, 15: 0.85, 20: 0.90, 25: 0.95}


def vectors(seed: int, rows: int, dim: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    raw = rng.integers(-2, 3, (rows, dim)) + 0.01
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def served(
    embeddings: np.ndarray, frontend: CachedFrontEnd, full_s: float = 0.0, count: int = 1, **parts: object
) -> Engine:
    """Requests arrive one second apart, and never overlap when ``full_s`` is under a second."""
    rows = len(embeddings) - int(parts.get("preload", 0))  # type: ignore[call-overload]
    run = engine(
        np.arange(rows), [full_s] * len(embeddings), count, frontend=frontend, embeddings=lambda: embeddings, **parts
    )
    run.run()
    return run


def cached(
    capacity: int | None, ks: tuple[int, ...] = (), admission: Admission | None = None, **frontend: object
) -> CachedFrontEnd:
    cache = ArtifactCache(capacity, TextToText(), Fifo(), ks)
    return CachedFrontEnd(cache, Thresholds(dict(NIRVANA), strict=True), admission or Misses(), **frontend)  # type: ignore[arg-type]


def model(embeddings: np.ndarray, capacity: int | None, ks: tuple[int, ...], everything: bool) -> list[tuple[int, int]]:
    """Return (source, K) of every request from a list of (row, K) items, oldest first, scanned from end to end."""
    items: list[tuple[int, int]] = []
    decisions = []
    exact = embeddings.astype(np.float64)
    for row, query in enumerate(exact):
        source, skipped = MISSING, 0
        held = list(dict.fromkeys(r for r, _ in items))
        if held:
            scores = [round(float(exact[r] @ query), DECIMALS) for r in held]
            best = held[int(np.argmax(scores))]
            wanted = max((k for k, min_similarity in NIRVANA.items() if max(scores) > min_similarity), default=0)
            if wanted and ks:
                wanted = max((k for r, k in items if r == best and k <= wanted), default=0)
            if wanted:
                source, skipped = best, wanted
        decisions.append((source, skipped))
        if everything or source == MISSING:
            new = [(row, k) for k in ks if k > skipped] if ks else [(row, 0)]
            if capacity is not None:
                if len(new) > capacity:
                    continue
                items = items[max(0, len(items) + len(new) - capacity) :]
            items += new
    return decisions


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 80),
    capacity=st.none() | st.integers(1, 60),
    ks=st.sampled_from([(), (5, 10, 15, 20, 25), (10, 20), (25,)]),
    everything=st.booleans(),
)
def test_fifo_cache_matches_a_sliding_list(
    seed: int, rows: int, capacity: int | None, ks: tuple[int, ...], everything: bool
) -> None:
    """Sources and K of every request agree, with missing latents and capacities below one item."""
    embeddings = vectors(seed, rows)
    run = served(embeddings, cached(capacity, ks, All() if everything else Misses()))
    assert list(zip(run.record.request_columns["source"], run.record.request_columns["skipped"], strict=True)) == model(
        embeddings, capacity, ks, everything
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_larger_fifo_window_never_has_fewer_hits(seed: int) -> None:
    """With cache-all, FIFO and no service time a larger window holds all that a smaller one holds."""
    embeddings = vectors(seed, 150, dim=5)
    hits = [
        sum(s != MISSING for s in served(embeddings, cached(size, admission=All())).record.request_columns["source"])
        for size in (1, 2, 3, 5, 10, 30, 100, None)
    ]
    assert hits == sorted(hits)


@pytest.mark.invariant(2)
def test_artifact_is_visible_to_an_arrival_at_its_completion_time() -> None:
    """At one instant completions come before insertions, and insertions before arrivals."""
    frontend = cached(None, admission=Misses())
    run = engine(Schedule(np.zeros(1)), [1.0, 1.0], frontend=frontend, embeddings=lambda: np.ones((2, 1), np.float32))
    run.run()
    assert list(run.record.request_columns["source"]) == [MISSING, 0]
    assert run.record.request_columns["source_age_s"][1] == 0.0


def test_artifact_is_invisible_before_its_completion() -> None:
    same = np.ones((3, 1), np.float32)
    run = engine([0.0, 0.5, 1.5], [1.0] * 3, 3, frontend=cached(None), embeddings=lambda: same)
    run.run()
    assert list(run.record.request_columns["source"]) == [MISSING, MISSING, 0]


def test_retrieved_image_takes_no_gpu() -> None:
    """With K = N the answer comes after the search and the fetch, while the only worker is busy."""
    cache = ArtifactCache(None, TextToText(), Fifo())
    frontend = CachedFrontEnd(cache, Thresholds({50: 0.9}), Misses(), search_s=0.1, fetch_s=0.2)
    prompts = np.eye(2, dtype=np.float32)[[0, 1, 0]]
    run = engine([0.0, 10.0, 11.0], [9.0, 9.0, 9.0], frontend=frontend, embeddings=lambda: prompts)
    run.run()
    assert run.record.request_columns["finish_s"][2] == pytest.approx(11.3)
    assert run.record.request_columns["worker"][2] == MISSING
    assert run.record.request_columns["skipped"][2] == 50
    assert run.record.request_columns["denoise_s"][2] == 0


def test_preloaded_rows_are_found_but_not_served() -> None:
    embeddings = np.eye(3, dtype=np.float32)[[0, 1, 2, 1, 0]]
    run = served(embeddings, cached(10, (5, 25)), preload=3)
    assert run.rows == 2
    assert [run.record.request_columns["source"][i] + 3 for i in range(2)] == [3 + 1, 3 + 0]
    assert list(run.record.request_columns["skipped"]) == [25, 25]


def test_each_admission_policy_keeps_the_images_it_names() -> None:
    """Three equal prompts, hits on the small model: cache-large keeps one image and cache-all three."""
    same = np.ones((3, 1), np.float32)
    kept = {}
    for admission in (All(), Misses(), Large()):
        frontend = cached(None, admission=admission, hit_role="small")
        served(same, frontend)
        kept[type(admission).__name__] = len(frontend.cache)
    assert kept == {"All": 3, "Misses": 1, "Large": 1}


def test_latents_resume_only_at_their_own_shape() -> None:
    same = np.ones((2, 1), np.float32)
    sizes = (np.array([64, 128], np.int32), np.array([64, 64], np.int32), np.array([50, 50], np.int32))
    for ks, expected in (((5, 25), MISSING), ((), 0)):
        run = served(same, cached(None, ks), shapes=sizes, use_model_shape=False)
        assert run.record.request_columns["source"][1] == expected


def test_k_scales_with_the_steps_of_the_request() -> None:
    same = np.ones((2, 1), np.float32)
    sizes = tuple(np.array([value] * 2, np.int32) for value in (64, 64, 150))
    run = served(same, cached(None, (5, 25)), shapes=sizes, use_model_shape=False)
    assert run.record.request_columns["skipped"][1] == 75


def test_hit_on_another_model_loads_it_if_it_is_not_resident() -> None:
    """With one shared queue over two models the GPU changes its model for every hit, and the load takes time."""
    same = np.ones((3, 1), np.float32)
    frontend = cached(None, admission=All(), hit_role="small")
    run = served(same, frontend, 0.1, backend=FixedTimes([0.1] * 3, load_s=0.25), roles=["large"])
    assert list(run.record.request_columns["load_s"]) == [0.0, 0.25, 0.0]
    spans, kinds = run.record.usage_log.spans(), run.record.usage_log.kinds
    loads = spans[spans["kind"] == kinds["load"]]
    assert [(span["from_s"], span["until_s"]) for span in loads] == [(1.0, 1.25)]
    assert run.record.request_columns["finish_s"][1] == pytest.approx(1 + 0.25 + 0.1 * 25 / 50)


def test_stored_latents_refuse_a_hit_role_of_another_model() -> None:
    with pytest.raises(ConfigError, match=r"frontend\.hit_role: found 'small' beside miss_role 'large'"):
        cached(10, (5, 25), hit_role="small")


def test_hit_stores_only_the_states_after_its_own_k() -> None:
    """Equal prompts: the second resumes at 10, so it can store latents 15 and 25 but never 5 or 10."""
    close = np.array([[1, 0], [0.8, 0.6], [0.8, 0.6]], np.float32)
    frontend = cached(None, (5, 10, 15, 25), admission=All())
    run = served(close, frontend)
    assert list(run.record.request_columns["skipped"]) == [0, 10, 25]
    assert (len(frontend.cache), frontend.cache.items) == (2, 4 + 2)


def test_k_scales_with_the_steps_of_the_model_that_runs() -> None:
    """The table is for 50 steps; the large model takes 28 and the small one 50. Hits skip the table's K."""
    models = {"large": Model("large", 28, 64, 64), "small": Model("small", 50, 64, 64)}
    close = np.array([[1, 0], [0.8, 0.6], [1, 0]], np.float32)
    run = served(close, cached(None, hit_role="small"), models=models, roles=["large", "small"], scheduler=HitMiss())
    assert list(run.record.request_columns["skipped"]) == [0, 10, 25]
    assert list(run.record.request_columns["k"]) == [0, 10, 25]
    assert list(run.record.request_columns["steps"]) == [28, 50, 50]
    large = served(close, cached(None), models=models)
    assert list(large.record.request_columns["skipped"]) == [0, 10 * 28 // 50, 25 * 28 // 50]


def test_skip_of_less_than_one_step_is_no_hit() -> None:
    models = {"large": Model("large", 4, 64, 64)}
    close = np.array([[1, 0], [0.7, 0.714]], np.float32)
    run = served(close, cached(None), models=models)
    assert list(run.record.request_columns["source"]) == [MISSING, MISSING]


@pytest.mark.parametrize("strict", [True, False])
def test_strict_threshold_excludes_its_own_value(strict: bool) -> None:
    selector = Thresholds({5: 0.65, 10: 0.75}, strict=strict)
    assert selector.skip(0.75) == (5 if strict else 10)
    assert selector.skip(0.65) == (0 if strict else 5)
    assert selector.skip(0.9) == 10
    assert selector.skip(0.1) == 0


@pytest.mark.parametrize("table", [{}, {0: 0.5}, {60: 0.5}, {5: 0.9, 10: 0.5}, {5: float("nan")}])
def test_malformed_threshold_table_is_refused(table: dict[int, float]) -> None:
    with pytest.raises(ConfigError, match=r"selector\.thresholds: found"):
        Thresholds(table)


def test_k_that_the_cache_does_not_store_is_refused() -> None:
    """It would resume from the state of another K, and the summary would count it under that K."""
    with pytest.raises(ConfigError, match=r"selector\.thresholds: found K = 12, 30, .* stores the states after 5, 10"):
        simulated("system=nirvana", "++selector.thresholds={12: 0.8, 30: 0.97}", "trace.requests=20")
    with pytest.raises(ConfigError, match=r"found K = 30"):
        simulated("system=nirvana", "selector=modm", "selector.stored=null", "trace.requests=20")
    simulated(
        "system=modm-throughput", "++selector.thresholds={20: 0.285}", "trace.requests=20"
    )  # an image serves every K
