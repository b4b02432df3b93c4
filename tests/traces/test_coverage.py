"""How many requests find a similar one, against brute force and known answers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.traces.describe.prompts import coverage as module
from mezzotint.traces.describe.prompts.coverage import coverage


def unit(rng: np.random.Generator, count: int, dim: int = 4) -> Any:
    vectors = rng.standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), count=st.integers(20, 120), users=st.integers(1, 6), unknown=st.booleans())
def test_coverage_matches_a_walk_through_the_trace(seed: int, count: int, users: int, unknown: bool) -> None:
    """In the mean over all pools: of n prompts of which k are alike, C(n - k, s) of C(n, s) pools hold none."""
    rng = np.random.default_rng(seed)
    vectors, user = unit(rng, count), rng.integers(-1 if unknown else 0, users, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POOLS", (3, 10))
        patch.setattr(module, "RECENT", (5, 20))
        found = coverage(vectors, user)
    if found is None:
        return
    rows = np.arange(count // 2, count)
    query = (rows[user[rows] >= 0] if (user >= 0).any() else rows).tolist()  # a short trace's are all looked up
    likeness = vectors @ vectors.T
    for size in (5, 20):
        assert (size in found.recent) == (query[0] >= size)
        for limit, share in found.recent.get(size, {}).items():
            hits = [likeness[at, at - size : at].max() > limit for at in query]
            assert share == pytest.approx(np.mean(hits), abs=1e-9)
    theirs = [[row for row in range(at) if user[row] >= 0 and user[row] != user[at]] for at in query]
    for size in (3, 10):
        assert (size in found.others) == all(
            user[at] >= 0 and len(rows) >= size for at, rows in zip(query, theirs, strict=True)
        )
        for limit, share in found.others.get(size, {}).items():
            alike = [int((likeness[at, rows] > limit).sum()) for at, rows in zip(query, theirs, strict=True)]
            chances = [
                1 - math.comb(len(rows) - k, size) / math.comb(len(rows), size)
                for k, rows in zip(alike, theirs, strict=True)
            ]
            assert share == pytest.approx(np.mean(chances), abs=1e-9)


def test_coverage_interval_has_its_stated_coverage() -> None:
    """Users of unequal activity whose requests all find a similar prompt, or all find none."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(1000):
        size = rng.geometric(0.2, 120)
        hits = np.repeat(rng.random(120) < 0.3, size).astype(float)
        found = np.repeat(hits[:, None, None], len(module.LIMITS), 2)
        shares, half = module.clustered_shares((30,), found, np.repeat(np.arange(120), size))
        held.append(abs(shares[30][0.6] - 0.3) < half[30][0.6])
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_coverage_grows_with_the_pool_and_is_one_for_equal_prompts() -> None:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 500, 4000)
    found = coverage(unit(rng, 4000, 24), user)
    assert found is not None
    for shares in (found.others, found.recent):
        for limit in module.LIMITS:
            rising = [shares[size][limit] for size in sorted(shares)]
            assert rising == sorted(rising)
    alike = coverage(np.tile(unit(rng, 1), (4000, 1)), user)
    assert alike is not None
    assert {share for by in alike.others.values() for share in by.values()} == {1.0}


def test_coverage_by_others_needs_two_users() -> None:
    vectors = unit(np.random.default_rng(0), 1000)
    for user in (np.zeros(1000, np.int64), np.full(1000, -1)):
        found = coverage(vectors, user)
        assert found is not None
        assert found.others == {}
        assert sorted(found.recent) == [300]
    assert coverage(vectors[:30], np.arange(30)) is None
