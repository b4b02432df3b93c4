"""Measures as formulas, and NIRVANA's functions: on made-up summaries and on a small real run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.formulas import Formula, Ordering
from mezzotint.sim.papers.scorecard.measures.nirvana import (
    requests_at_a_hole,
    search_s,
    served_at,
)


def run(experiment: str = "one", folder: Path = Path("nowhere"), **choices: Any) -> tuple[Point, Finished]:
    summary = {key: choices.pop(key) for key in ("cache", "latency_s") if key in choices}
    point = Point(experiment, {f"a.{name}": str(value) for name, value in choices.items()}, ())
    return point, Finished(point, {}, folder, {"system": "s", "requests": {"arrived": 100}, **summary})


def latencies(*runs: tuple[str, int, float]) -> Runs:
    """Runs by system and size, with their mean latency and half of that as median."""
    return Runs(tuple(run(system=system, size=size, latency_s={"mean": s, "p50": s / 2}) for system, size, s in runs))


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ({"of": {"system": "a", "size": 1}}, 3.0),  # the mean over replicas
        ({"of": {"system": "a", "size": 1}, "per": "latency_s.p50"}, 2.0),
        ({"of": {"system": "a", "size": 1}, "over": {"system": "b"}}, 0.5),
        ({"of": {"system": "a", "size": 1}, "below": {"system": "b"}}, 0.5),
        ({"of": {"system": "a", "size": 1}, "minus": {"system": "b"}}, -3.0),
        ({"of": {"system": "a", "size": 2}, "over": {"system": "c", "size": None}}, 0.5),
        ({"of": {"system": "a"}, "by": {"size": [2, 1]}}, [5.0, 3.0]),
        ({"by": {"system": ["a", "b"], "size": [1, 2]}}, [3.0, 5.0, 6.0, 8.0]),
        ({"of": {"system": "a"}, "by": {"size": [2, 1]}, "take": "max"}, 5.0),
        ({"of": {"system": "a"}, "by": {"size": [2, 1]}, "take": "min"}, 3.0),
        ({"of": {"system": "a"}, "by": {"size": [2, 1]}, "take": "mean"}, 4.0),
        ({"of": {"system": "b", "size": 1}, "over": [{"system": "a"}, {"system": "c", "size": 3}]}, 0.6),
        ({"of": {"system": "a", "size": 1}, "complement": True}, -2.0),
        ({"of": {"experiment": "other"}}, 7.0),
    ],
)
def test_formula_selects_compares_and_combines(formula: Mapping[str, Any], expected: Any) -> None:
    of_one = latencies(("a", 1, 2.0), ("a", 1, 4.0), ("a", 2, 5.0), ("b", 1, 6.0), ("b", 2, 8.0), ("c", 3, 10.0))
    runs = Runs((*of_one.outcomes, run("other", latency_s={"mean": 7.0})))
    measured = Formula(value="latency_s.mean", **formula)(runs if "experiment" in str(formula) else of_one)
    assert measured == pytest.approx(expected)


def test_formula_of_a_column_takes_its_mean_or_largest_value(tmp_path: Path) -> None:
    pq.write_table(pa.table({"step_s": pa.array([1.0, None, 4.0])}), tmp_path / "requests.parquet")
    runs = Runs((run(folder=tmp_path),))
    assert Formula(column="step_s")(runs) == 2.5
    assert Formula(column="step_s", largest=True)(runs) == 4.0


def test_formula_without_runs_or_number_is_unmeasured() -> None:
    with pytest.raises(Unmeasured, match=r"s has no cache\.hits"):
        Formula(value="cache.hits")(latencies(("a", 1, 2.0)))
    with pytest.raises(Unmeasured, match="not simulated yet"):
        Formula(value="latency_s.mean", of={"system": "b"})(latencies(("a", 1, 2.0)))


def test_share_at_k_is_of_all_requests() -> None:
    """The paper's rates are of all requests, not of lookups."""
    cache = {"lookups": 60, "hits": 50, "hit_share_by_k": {"25": 0.1}}
    runs = Runs((run(system="nirvana", cache=cache),))
    assert served_at(runs, "nirvana", "25") == pytest.approx(0.05)
    assert served_at(runs, "nirvana", "10") == 0


def test_ordering_holds_if_every_number_is_larger() -> None:
    runs = latencies(("a", 1, 3.0), ("a", 2, 5.0), ("b", 1, 2.0), ("b", 2, 4.0), ("c", 1, 2.0), ("c", 2, 5.0))
    a, b, c = (Formula(value="latency_s.mean", of={"system": name}, by={"size": [1, 2]}) for name in "abc")
    assert Ordering(larger=[(a, b)])(runs)
    assert not Ordering(larger=[(a, c)])(runs), "equal is not larger"
    assert not Ordering(larger=[(a, b), (b, c)])(runs)


def test_holes_are_counted_only_for_caches_that_evict() -> None:
    evicts, never = {"holes": 4, "evictions": 9}, {"holes": 0, "evictions": 0}
    runs = [run(eviction="lcbfu", cache=cache) for cache in (evicts, evicts, never)]
    assert requests_at_a_hole(Runs(tuple(runs))) == pytest.approx(0.04)
    with pytest.raises(Unmeasured, match="nothing was evicted"):
        requests_at_a_hole(Runs(tuple(runs[2:])))


def test_search_time_is_of_the_requests_that_searched(tmp_path: Path) -> None:
    pq.write_table(pa.table({"search_s": [0.0, 0.1, 0.3]}), tmp_path / "requests.parquet")
    assert search_s(Runs((run(folder=tmp_path, system="nirvana"),))) == pytest.approx(0.2)
