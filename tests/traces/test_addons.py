"""Services with add-ons by node, and the loads of their caches."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.traces.describe.loads import Lookups, Policy, addon_combinations, addons, lookups
from mezzotint.traces.describe.mix import popularity
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.synthetic.addons import AddonService, service
from mezzotint.traces.synthetic.published import fitted_locality, parameters, published
from mezzotint.traces.table.trace import Trace

ASKED = st.lists(st.lists(st.integers(0, 6), max_size=60), min_size=1, max_size=3)


def law(name: str, **given: Any) -> AddonService:
    return service({**published("services")[name], **given}, name)


def load(like: str, requests: int, **given: Any) -> Trace:
    return Synthetic(**(parameters(like) | {"requests": requests} | given)).load(np.random.default_rng(1))


def replayed(asked: list[int], size: int, policy: str) -> int:
    """Return the loads of one cache, slowly: each eviction counts uses anew from the entry of each item."""
    entered: dict[int, int] = {}
    loads = 0
    for now, thing in enumerate(asked):
        if thing in entered:
            continue
        loads += 1
        if len(entered) == size:
            last = {other: max(i for i in range(now) if asked[i] == other) for other in entered}
            uses = {other: asked[begin:now].count(other) for other, begin in entered.items()}
            del entered[min(entered, key=lambda x: (uses[x] if policy == "lfu" else 0, last[x]))]
        entered[thing] = now
    return loads


@given(ASKED, st.integers(1, 8))
def test_curve_loads_match_a_replayed_cache(asked: list[list[int]], size: int) -> None:
    found = Lookups(10, asked)
    policies: tuple[Policy, ...] = ("lru", "lfu")
    for policy in policies:
        slow = sum(replayed(each, size, policy) for each in asked) / 10
        assert found.loads(size, policy) == pytest.approx(slow)


def test_lfu_evicts_least_used_since_entry() -> None:
    """With a capacity of two, b is evicted once and returns with one use, so it goes before a, which was used twice."""
    a, b, c = range(3)
    assert Lookups(1, [[a, a, b, c, b, c, a]]).loads(2, "lfu") == 5  # all but the second and the last a


@given(ASKED)
def test_lru_loads_fall_with_size_to_one_per_item(asked: list[list[int]]) -> None:
    found = Lookups(7, asked)
    curve = [found.loads(size, "lru") for size in range(1, 10)]
    assert (np.diff(curve) <= 1e-12).all()
    assert curve[-1] * 7 == pytest.approx(found.distinct)
    assert found.loads(9, "lfu") == pytest.approx(curve[-1])


@pytest.mark.parametrize("name", ["A", "B"])
def test_locality_keeps_the_popularity_of_the_service(name: str) -> None:
    drawn = law(name).draw(120_000, np.random.default_rng(3))
    names, weights = law(name).combinations()
    counts = Counter(tuple(each) for each in drawn.controlnets.to_pylist())
    share = np.array([counts[tuple(each)] for each in names]) / 120_000
    # runs on a node are no independent draws: 5 standard errors of the runs that the commonest come in
    assert np.abs(share - weights).max() < 0.012
    many = Counter(len(each) for each in drawn.loras.to_pylist())
    expected = np.array(law(name).loras_per_request) / sum(law(name).loras_per_request)
    assert [many[n] / 120_000 for n in range(3)] == pytest.approx(expected, abs=0.01)


@given(st.integers(1, 40), st.floats(0.0, 0.5), st.integers(0, 2**32))
def test_node_shares_sum_to_the_service_popularity(count: int, spread: float, seed: int) -> None:
    found = law("A", nodes=count, node_spread=spread)
    load, (_, weights) = found.loads(), found.combinations()
    assert load.sum() == pytest.approx(1)
    shares = found.node_shares(load, weights, np.random.default_rng(seed))
    assert shares.sum(1) == pytest.approx(np.ones(count))
    assert load @ shares == pytest.approx(weights, abs=0.02)


@pytest.mark.parametrize(("name", "size", "measured"), [("A", 2, 0.8639), ("A", 5, 0.012), ("B", 4, 0.6167)])
def test_fitted_service_has_the_measured_loads(name: str, size: int, measured: float) -> None:
    """Figure 7, on a quarter of the nodes; all points stand in results/addons.md."""
    made = law(name, **fitted_locality(name) | {"nodes": law(name).nodes // 4}).draw(40_000, np.random.default_rng(1))
    trace_like = Lookups(40_000, _by_node(made.node, made.controlnets.to_pylist()))
    assert trace_like.loads(size, "lru") == pytest.approx(measured, abs=0.1)


@pytest.mark.parametrize(("name", "different"), [("A", 111_441 / 164_194), ("B", 91_590 / 385_239)])
def test_nodes_have_the_published_number_of_distinct_loras(name: str, different: float) -> None:
    """Figure 8: over the requests of all nodes, the different LoRAs of each; on a tenth of the nodes."""
    requests = {"A": 164_194, "B": 385_239}[name] // 10
    made = law(name, nodes=law(name).nodes // 10).draw(requests, np.random.default_rng(1))
    found = sum(len(set(asked)) for asked in _by_node(made.node, made.loras.to_pylist()))
    assert found / requests == pytest.approx(different, rel=0.04)


def _by_node(node: Any, lists: list[list[str]]) -> list[list[int]]:
    numbers: dict[str, int] = {}
    found: list[list[int]] = [[] for _ in range(int(node.max()) + 1)]
    for at, names in zip(node.tolist(), lists, strict=True):
        found[at] += [numbers.setdefault(name, len(numbers)) for name in names]
    return found


def test_addon_description_counts_nodes_and_combinations() -> None:
    trace = load("service-b", 4000)
    described = addons(trace)
    assert described is not None
    assert described["nodes"]["count"] == len(
        np.unique([name.rsplit("/", 1)[0] for name in trace.table["request_id"].to_pylist()])
    )
    assert sum(share for _, share in addon_combinations(trace.table["controlnets"])) == pytest.approx(1)
    asked = lookups(trace, "loras")
    assert asked is not None
    use = popularity(trace)["loras"]
    assert use is not None
    assert asked.total == use.calls.sum()
    assert addons(load("diffusiondb", 50)) is None
