"""Measures, on made-up summaries and on a small real run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.formulas import (
    compute_saving,
    hit_rate,
    latency_s,
    over_median,
    ratio,
    reduction,
    served_at,
)
from mezzotint.sim.papers.scorecard.measures.nirvana import (
    CAPACITIES,
    LONG_PROMPT,
    MEASURES,
    has_lcbfu_highest_saving,
    requests_at_a_hole,
    search_latency,
    similarity_of_hits,
)
from mezzotint.sim.run.simulate import write
from tests.sim.lab import configured, simulated


def run(choices: Mapping[str, str], **summary: Any) -> tuple[Point, Finished]:
    point = Point("an-experiment", choices, ())
    return point, Finished(point, {}, Path("nowhere"), {"system": choices.get("system", ""), **summary})


def system(name: str, mean_s: float = 8.0, p50: float = 8.0, p90: float = 10.0, **cache: Any) -> tuple[Point, Finished]:
    latency_s = {"mean": mean_s, "p50": p50, "p90": p90}
    return run({"system": name}, latency_s=latency_s, cache=cache, requests={"arrived": 100})


def table3(changed: Mapping[tuple[str, int], Mapping[str, float]] | None = None) -> Runs:
    """As in the paper except for ``changed``: 100 requests, LCBFU saves more, LRU hits more."""
    runs = []
    for policy, hits, saved in (("fifo", 60, 0.1), ("lru", 80, 0.15), ("lfu", 75, 0.15), ("lcbfu", 70, 0.2)):
        for capacity in CAPACITIES:
            cache = {"hits": hits, "compute_saving": saved, "holes": 4, "evictions": 9}
            cache |= (changed or {}).get((policy, capacity), {})
            choices = {"eviction": policy, "cache.capacity": str(capacity)}
            runs.append(run(choices, cache=cache, requests={"arrived": 100}))
    return Runs(tuple(runs))


def test_replicas_are_averaged_per_system() -> None:
    runs = Runs((system("vanilla", 8.0), system("vanilla", 10.0), system("nirvana", 4.5, p50=4.0, p90=6.0)))
    assert latency_s("vanilla")(runs) == pytest.approx(9.0)
    assert ratio("nirvana", "vanilla", "latency_s", "mean")(runs) == pytest.approx(0.5)
    assert reduction("nirvana", "vanilla", "latency_s", "mean")(runs) == pytest.approx(0.5)
    assert over_median("nirvana", "p90")(runs) == pytest.approx(1.5)


def test_predicted_miss_is_no_hit() -> None:
    """The paper's hit rate is of all requests, not of lookups."""
    runs = Runs((system("nirvana", lookups=60, hits=50, hit_rate=50 / 60, hit_share_by_k={"25": 0.1}),))
    assert hit_rate("nirvana")(runs) == pytest.approx(0.5)
    assert served_at("nirvana", 25)(runs) == pytest.approx(0.05)
    assert served_at("nirvana", 10)(runs) == 0
    with pytest.raises(Unmeasured, match=r"nirvana has no cache\.compute_saving"):
        compute_saving("nirvana")(runs)
    with pytest.raises(Unmeasured, match="not simulated yet"):
        hit_rate("vanilla")(runs)


def test_table3_is_read_by_policy_and_size() -> None:
    runs = table3({("lru", CAPACITIES[1]): {"hits": 55}})
    assert MEASURES["N07-lru"](runs) == pytest.approx([0.8, 0.55, 0.8])
    assert MEASURES["N08-fifo"](runs) == pytest.approx([0.1] * 4)
    runs = table3({("lfu", CAPACITIES[3]): {"hits": 55}})
    assert MEASURES["N07-most"](runs) == pytest.approx([0.8, 0.55, 0.7])


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, True),
        ({("lfu", CAPACITIES[0]): {"compute_saving": 0.9}}, True),
        ({("lfu", CAPACITIES[2]): {"compute_saving": 0.2}}, False),
        ({("fifo", CAPACITIES[2]): {"compute_saving": 0.3}}, False),
        ({("fifo", CAPACITIES[3]): {"compute_saving": 0.3}}, True),
        ({("lru", CAPACITIES[2]): {"hits": 70}}, False),
    ],
)
def test_lcbfu_saving_order_is_judged_at_150k_items(changed: Any, holds: bool) -> None:
    assert has_lcbfu_highest_saving(table3(changed)) is holds


def test_holes_are_counted_only_for_caches_that_evict() -> None:
    never = {("lcbfu", capacity): {"holes": 0, "evictions": 0} for capacity in CAPACITIES[2:]}
    assert requests_at_a_hole(table3(never)) == pytest.approx(0.04)
    with pytest.raises(Unmeasured, match="nothing was evicted"):
        requests_at_a_hole(table3({("lcbfu", capacity): {"evictions": 0} for capacity in CAPACITIES}))


def test_prompt_lengths_and_search_times_are_read_from_the_run(tmp_path: Path) -> None:
    words = ("system=nirvana", "cluster=a10g", "arrivals=closed", "trace.requests=400", "preload=100")
    outcome = simulated(*words)
    write(outcome, tmp_path)
    point = Point("an-experiment", {"system": "nirvana"}, words)
    runs = Runs(((point, Finished(point, configured(*words), tmp_path, outcome.summary)),))
    similar: dict[bool, list[float]] = {True: [], False: []}
    (finished,) = runs
    trace = finished.trace()
    asked = dict(zip(trace.table["request_id"].to_pylist(), trace.prompts().to_pylist(), strict=True))
    for row in pq.read_table(tmp_path / "requests.parquet").to_pylist():
        if row["source_id"] is not None:
            similar[len(asked[row["request_id"]].split()) < LONG_PROMPT].append(row["similarity"])
    for short, values in similar.items():
        assert similarity_of_hits(finished, short=short) == pytest.approx(sum(values) / len(values))
    assert search_latency(runs) == pytest.approx(0.1)
