"""Eviction policies alone, against brute-force models."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.eviction import FINAL, K_BITS, K_MASK, Fifo, Lcbfu, Lfu, Lru, Random
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.protocols import Eviction, Item
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import configured, engine, simulated, simulated_with

KS = (5, 10, 15, 20, 25)


def item(entry: int, k: int) -> Item:
    return entry << K_BITS | k


def entry_of(item: Item) -> int:
    return item >> K_BITS


def k_of(item: Item) -> int:
    return item & K_MASK


Key = Callable[[Item, int, int], tuple[Any, ...]]
"""Sort key of an item, from the item, its uses and the time of its last use."""

POLICIES: dict[str, tuple[Callable[[], Eviction], Key]] = {
    "fifo": (Fifo, lambda item, uses, touched: (item,)),
    "lru": (Lru, lambda item, uses, touched: (touched,)),
    "lfu, plain": (lambda: Lfu(ageing=False), lambda item, uses, touched: (uses, touched)),
    "lcbfu, plain": (
        lambda: Lcbfu(ageing=False), lambda item, uses, touched: ((1 + uses) * (k_of(item) or 1), item)
    ),
    "lcbfu of the artifact": (
        lambda: Lcbfu(ageing=False, initial_uses=0), lambda item, uses, touched: (uses * (k_of(item) or 1), item)
    ),
    "lfu": (Lfu, lambda item, uses, touched: (1 + uses, touched)),
    "lfu from 0": (lambda: Lfu(initial_uses=0), lambda item, uses, touched: (uses, touched)),
    "lcbfu": (Lcbfu, lambda item, uses, touched: ((1 + uses) * (k_of(item) or 1), item)),
    "lcbfu from 0": (lambda: Lcbfu(initial_uses=0), lambda item, uses, touched: (uses * (k_of(item) or 1), item)),
}  # fmt: skip

AGEING = ("lfu", "lfu from 0", "lcbfu", "lcbfu from 0")


class Model:
    """Brute-force model: items with their uses, the time of their last use and their age then.

    In a policy with ageing (LFUDA) the age is the key of the last victim; it is added to an item's key when it enters
    or is used.
    """

    def __init__(self, key: Key, ageing: bool) -> None:
        self.key, self.ageing = key, ageing
        self.items: dict[Item, tuple[int, int, int]] = {}
        self.time = self.age = 0

    def added(self, item: Item) -> None:
        self.time += 1
        self.items[item] = 0, self.time, self.age

    def used(self, item: Item) -> None:
        self.time += 1
        self.items[item] = self.items[item][0] + 1, self.time, self.age

    def aged(self, item: Item) -> tuple[Any, ...]:
        uses, touched, age = self.items[item]
        worth, *ties = self.key(item, uses, touched)
        return worth + age, *ties

    def victims(self, count: int) -> list[Item]:
        worst = sorted(self.items, key=self.aged)[:count]
        if self.ageing:
            self.age = self.aged(worst[-1])[0]
        for one in worst:
            del self.items[one]
        return worst


def bound(policy: Eviction, seed: int = 0) -> Eviction:
    policy.bind(engine([0.0], [1.0], seed=seed), TextToText(), Thresholds({5: 0.65}))
    return policy


def compared(name: str, ks: tuple[int, ...], acts: list[tuple[int, int]]) -> None:
    """Apply ``acts``, (action, choice) each, to a policy and its model: both must evict the same items."""
    make, key = POLICIES[name]
    policy, model = bound(make()), Model(key, name in AGEING)
    entries = 0
    for what, which in acts:
        if what == 0 or not model.items:
            for k in ks[which % len(ks) :]:  # a hit stores only the states after its own start
                model.added(item(entries, k))
            policy.added(entries, ks[which % len(ks) :], entries)
            entries += 1
        elif what == 1:
            count = min(1 + which % len(KS), len(model.items))
            assert policy.victims(count) == model.victims(count)
        else:
            used = list(model.items)[which % len(model.items)]
            policy.used(used)
            model.used(used)
    while model.items:
        assert policy.victims(1) == model.victims(1)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60)
@given(
    ks=st.sampled_from([KS, (25,), (FINAL,)]),
    acts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1000)), max_size=200),
)
def test_eviction_matches_its_brute_force_model(name: str, ks: tuple[int, ...], acts: list[tuple[int, int]]) -> None:
    compared(name, ks, acts)


@pytest.mark.parametrize("name", POLICIES)
def test_eviction_policy_matches_its_model_over_3_000_operations(name: str) -> None:
    """Some 200 items, a few of them used repeatedly, so that ties, long idle items and large counts all occur."""
    rng = np.random.default_rng(1)
    what = rng.choice(5, 3000, p=[0.1, 0.3, 0.2, 0.2, 0.2])
    which = np.minimum(rng.geometric(0.02, 3000), 1000)
    what[:60] = 0
    compared(name, KS, list(zip(what.tolist(), which.tolist(), strict=True)))


@settings(max_examples=30)
@given(acts=st.lists(st.booleans(), max_size=200), seed=st.integers(0, 100))
def test_random_evicts_every_item_once_and_repeats_by_seed(acts: list[bool], seed: int) -> None:
    policy, again = bound(Random(), seed), bound(Random(), seed)
    cached_items: set[Item] = set()
    for entry, add in enumerate(acts):
        if add or not cached_items:
            cached_items.add(item(entry, FINAL))
            policy.added(entry, (FINAL,), entry)
            again.added(entry, (FINAL,), entry)
        else:
            (victim,) = policy.victims(1)
            assert [victim] == again.victims(1)
            cached_items.remove(victim)


def test_random_eviction_is_uniform() -> None:
    """Each of ten items is evicted in a tenth of 4,000 cases, within five standard errors, used or not."""
    counts = np.zeros(10)
    policy = bound(Random(), 7)
    for entry in range(10):
        policy.added(entry, (FINAL,), entry)
    for _ in range(4000):
        policy.used(item(0, FINAL))
        (victim,) = policy.victims(1)
        counts[entry_of(victim)] += 1
        policy.added(entry_of(victim), (FINAL,), entry_of(victim))
    assert np.abs(counts - 400).max() < 5 * np.sqrt(4000 * 0.1 * 0.9)


def test_lcbfu_keeps_a_small_k_with_many_uses_where_lfu_evicts_it() -> None:
    """The paper's own example (5.4), scaled: 25 x 4 uses = 100 against 5 x 8 uses = 40, though 8 > 4."""
    lcbfu, lfu = bound(Lcbfu()), bound(Lfu())
    for policy in (lcbfu, lfu):
        policy.added(0, (5, 25), 0)
        for _ in range(4):
            policy.used(item(0, 5))
            policy.used(item(0, 25))
            policy.used(item(0, 5))
    assert lcbfu.victims(1) == [item(0, 5)]
    assert lfu.victims(1) == [item(0, 25)]


SMALL = ("system=nirvana", "trace.requests=500", "cache.capacity=100")


@cache
def summary_of(*overrides: str) -> dict[str, Any]:
    """Return the summary of a run, cached."""
    return simulated(*SMALL, *overrides).summary


def cache_of(*overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = summary_of(*overrides)["cache"]
    return found


def test_every_eviction_choice_changes_the_outcome_and_none_beats_the_optimum() -> None:
    """The same requests with every file of conf/eviction: all outcomes differ, and none beats the optimum's hit
    rate."""
    whole = ("fifo", "lru", "lfu", "random", "optimum")
    caches = {name: simulated_with("eviction", name, *SMALL).summary["cache"] for name in whole}
    caches |= {name: cache_of(f"eviction={name}") for name in ("lfu-plain", "lcbfu-plain")}
    caches["lcbfu"] = cache_of()
    caches["prompt"] = cache_of("cache.evict_by=prompt")
    outcomes = [(cache["hits"], cache["compute_saving"], cache["holes"]) for cache in caches.values()]
    assert len(set(outcomes)) == len(outcomes)
    assert max(caches, key=lambda name: caches[name]["hit_rate"]) == "optimum"


def test_lcbfu_from_zero_uses_equals_lfu() -> None:
    """The newest miss leaves |K| items of score 0 to evict next, whatever their K: no used item is ever evicted."""
    lfu = cache_of("eviction=lfu-plain")
    assert cache_of("eviction=lcbfu-artifact") == lfu
    assert cache_of("eviction=lcbfu-plain") != lfu


def test_ageing_evicts_items_that_were_popular_long_ago() -> None:
    """The first item has a hundred uses, later items none: without ageing it stays for good."""
    for make in (Lfu, Lcbfu):
        for ageing in (True, False):
            policy = bound(make(ageing=ageing))
            policy.added(0, (FINAL,), 0)
            policy.added(1, (FINAL,), 1)
            for _ in range(99):
                policy.used(item(0, FINAL))
            gone = []
            for entry in range(2, 300):
                gone += policy.victims(1)
                policy.added(entry, (FINAL,), entry)
            # every victim raises the age by one, so the first item is evicted after as many victims as it had uses
            assert (gone.index(item(0, FINAL)) == 99) if ageing else (item(0, FINAL) not in gone)


def test_eviction_states_its_assumptions() -> None:
    assumptions = summary_of()["assumptions"]
    assert {"LCBFU: uses that an item enters with": 1}.items() <= {
        one["what"]: one["value"] for one in assumptions
    }.items()
    assumptions = summary_of("eviction=optimum")["assumptions"]
    assert any(one["value"] == "offline optimum" for one in assumptions)


def test_nirvana_evicts_by_lcbfu_by_default() -> None:
    config = configured("system=nirvana")
    assert config["eviction"] == {"_target_": "mezzotint.sim.cache.eviction.Lcbfu", "ageing": True, "initial_uses": 1}
    assert config["cache"]["evict_by"] == "items"
