"""Thresholds from qualities: a planted crossing is found exactly, and the two rules keep their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.fit.selector.rule import Rule, lowest_similarity, thresholds

KS = (5, 10, 15, 20, 25)


def planted(similarity: np.ndarray) -> np.ndarray:
    """A quality that falls with K and rises with similarity: 1 - (1 - s) K / 25."""
    return 1 - (1 - similarity[:, None]) * np.array(KS) / 25


@pytest.mark.parametrize("rule", ["all", "mean"])
@pytest.mark.parametrize("alpha", [0.5, 0.9, 0.95])
def test_planted_crossing_is_the_threshold(rule: Rule, alpha: float) -> None:
    """Quality reaches alpha at s = 1 - (1 - alpha) 25 / K: under `all` the first pair above is the threshold."""
    similarity = np.random.default_rng(3).permutation((np.arange(400) + 0.37) / 400)
    found = thresholds(similarity, planted(similarity), KS, alpha, rule=rule, strict=True)
    for each in found:
        crossing = 1 - (1 - alpha) * 25 / each.k
        assert each.min_similarity is not None
        if rule == "all":
            assert each.min_similarity == similarity[similarity > crossing].min()
            assert each.worst > alpha
        else:
            # the mean over s..1 of a line is its value half way between
            assert each.min_similarity == pytest.approx(max(0.0, 2 * crossing - 1), abs=0.006)
        assert each.pairs == (similarity >= each.min_similarity).sum()


def test_strict_requires_more_than_alpha() -> None:
    """Algorithm 2 requires more than alpha, MoDM's equation 5 at least alpha."""
    similarity, quality = np.array([0.2, 0.5, 0.8]), np.array([0.5, 0.75, 1.0])
    assert lowest_similarity(similarity, quality, 0.75, rule="all", strict=True) == 0.8
    assert lowest_similarity(similarity, quality, 0.75, rule="all", strict=False) == 0.5


def test_one_bad_pair_stops_rule_all_but_not_rule_mean() -> None:
    similarity = np.linspace(0, 1, 11)
    quality = np.ones(11)
    quality[6] = 0.0
    assert lowest_similarity(similarity, quality, 0.9, rule="all", strict=True) == similarity[7]
    assert lowest_similarity(similarity, quality, 0.9, rule="mean", strict=True) == similarity[0]


def test_equal_similarities_pass_or_fail_together() -> None:
    similarity, quality = np.array([0.5, 0.5, 0.9]), np.array([1.0, 0.1, 1.0])
    assert lowest_similarity(similarity, quality, 0.8, rule="all", strict=True) == 0.9


def test_nan_quality_counts_as_bad() -> None:
    similarity, quality = np.array([0.5, 0.9]), np.array([1.0, np.nan])
    for rule in ("all", "mean"):
        assert lowest_similarity(similarity, quality, 0.1, rule=rule, strict=False) is None


def test_failing_k_removes_every_larger_k() -> None:
    """A larger K that a lower threshold would satisfy gets the threshold of the smaller K."""
    similarity = np.array([0.2, 0.6, 0.9])
    quality = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    first, second, third, last = thresholds(similarity, quality, (1, 2, 3, 4), 0.5, rule="all", strict=True)
    assert (first.min_similarity, second.min_similarity) == (0.2, 0.6)
    assert (third.min_similarity, third.unraised, third.pairs) == (0.6, 0.2, 2)
    assert (last.min_similarity, last.pairs) == (None, 0)
    swapped = thresholds(similarity, quality[:, [3, 0]], (1, 2), 0.5, rule="all", strict=True)
    assert [each.min_similarity for each in swapped] == [None, None]
    assert swapped[1].unraised == 0.2


@settings(max_examples=150)
@given(
    table=st.lists(
        st.tuples(st.sampled_from(np.linspace(0, 1, 9).tolist()), *(st.floats(0, 1.2) for _ in range(3))),
        min_size=1,
        max_size=25,
    ),
    alpha=st.floats(0.05, 1),
    strict=st.booleans(),
)
def test_thresholds_rise_with_k_and_rule_all_is_at_least_rule_mean(
    table: list[tuple[float, ...]], alpha: float, strict: bool
) -> None:
    """Thresholds never fall as K grows, `all` is at least as strict as `mean`, and the pairs above reach alpha."""
    data = np.array(table)
    similarity, quality = data[:, 0], data[:, 1:]

    def found(rule: Rule, level: float = alpha) -> list[float]:
        result = thresholds(similarity, quality, (1, 2, 3), level, rule=rule, strict=strict)
        return [np.inf if each.min_similarity is None else each.min_similarity for each in result]

    strictest, loosest = found("all"), found("mean")
    for limits in (strictest, loosest):
        assert limits == sorted(limits)
    assert all(a >= b - 1e-12 for a, b in zip(strictest, loosest, strict=True))
    for column, limit in enumerate(strictest):
        assert (quality[similarity >= limit, column] >= alpha).all()
    assert all(a >= b for a, b in zip(strictest, found("all", alpha / 2), strict=True))
