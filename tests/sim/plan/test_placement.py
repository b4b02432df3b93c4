"""The placement of ControlNets against exhaustive search."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.placement import (
    BALANCE_WEIGHT,
    GAP,
    Demand,
    Placement,
    evaluate,
    find_demand,
    min_servers,
    naive_placements,
    solve,
)
from mezzotint.traces.table.trace import make, write

NAMES = "abcde"


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Up to five ControlNets, alone, in pairs and in threes, and requests that call none."""
    groups = draw(
        st.dictionaries(
            st.sets(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda names: tuple(sorted(names))),
            st.floats(0.01, 1.0),
            min_size=1,
            max_size=5,
        )
    )
    return Demand((*groups.items(), ((), 0.1)), draw(st.floats(0.05, 0.3)))


def objective(demand: Demand, found: Placement, max_per_server: int) -> float:
    """Return the objective of ``solve`` for any placement."""
    even = max(found.load) + found.copies / (max_per_server * len(found.share) * len(found.load))
    return found.turns_s + BALANCE_WEIGHT * demand.call_s * even


def exhaustive(demand: Demand, servers: int, limit: float, max_per_server: int) -> Placement | None:
    """Return the best of all placements with a single copy of each."""
    best: tuple[float, Placement] | None = None
    for at in product(range(servers), repeat=len(demand.load)):
        whole = {name: [float(s == own) for s in range(servers)] for name, own in zip(demand.load, at, strict=True)}
        found = evaluate(demand, whole)
        fits = max(map(len, found.servers)) <= max_per_server and max(found.load) <= limit + 1e-9
        if fits and (best is None or objective(demand, found, max_per_server) < best[0]):
            best = objective(demand, found, max_per_server), found
    return None if best is None else best[1]


@settings(max_examples=15)
@given(demands(), st.integers(1, 3), st.integers(1, 4), st.floats(0.2, 1.0))
def test_solved_placement_is_at_least_as_good_as_any_of_single_copies(
    demand: Demand, servers: int, max_per_server: int, limit: float
) -> None:
    best, found = exhaustive(demand, servers, limit, max_per_server), solve(demand, servers, limit, max_per_server)
    if found is None:
        assert best is None
        return
    assert max(map(len, found.servers)) <= max_per_server
    assert max(found.load) <= limit * (1 + 1e-6)
    assert sum(found.load) == pytest.approx(sum(demand.load.values()))
    assert all(sum(shares) == pytest.approx(1) for shares in found.share.values())
    assert min_servers(demand, limit) <= servers
    if best is not None:
        assert objective(demand, found, max_per_server) <= objective(demand, best, max_per_server) * (1 + GAP) + 1e-9


@settings(max_examples=10)
@given(demands(), st.integers(2, 3))
def test_placement_is_optimal_if_each_controlnet_fits_once(demand: Demand, servers: int) -> None:
    """As many places as ControlNets leave nothing to divide."""
    if len(demand.load) % servers:
        return
    max_per_server = len(demand.load) // servers
    best, found = exhaustive(demand, servers, 1.0, max_per_server), solve(demand, servers, 1.0, max_per_server)
    assert (best is None) == (found is None)
    if best is not None and found is not None:
        assert objective(demand, found, max_per_server) == pytest.approx(
            objective(demand, best, max_per_server), rel=2 * GAP, abs=1e-9
        )


def test_solved_placement_of_service_a_avoids_the_overload_of_naive_ones() -> None:
    demand = find_demand("A", None, 120.0, 1.15).head(16)
    assert sum(demand.load.values()) == pytest.approx(2 * 1.695 * 1.15, rel=0.01)
    found = solve(demand, 6, 0.7, 8)
    assert found is not None
    assert max(found.load) <= 0.7 < 1.0 < min(max(naive.load) for naive in naive_placements(demand, 6).values())


PLACEMENT = ("plan", "placement", "--service", "B", "--rate-rpm", "30", "--servers", "3", "--most", "10")


def test_plan_placement_prints_overrides_for_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLACEMENT]) == 0
    assert "allocation.servers=3 'controlnet_placement.placement=[[" in capsys.readouterr().out
    assert main([*PLACEMENT, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert max(results["solved"]["load"]) <= 0.7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*PLACEMENT, "--servers", "1"], "give more --servers"),
        ([*PLACEMENT, "--service", "C"], "--service: found 'C'"),
        ([*PLACEMENT, "--trace", "t.parquet"], "expected one of --service and --trace"),
        ([*PLACEMENT[:4]], "give --rate-rpm"),
        ([*PLACEMENT[:5], "1e8"], "need 4801635 servers, expected at most 64"),
    ],
)
def test_placement_that_cannot_be_asked_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def written(controlnets: list[list[str]], gap_s: float = 30.0) -> Path:
        rows = range(len(controlnets))
        columns = {"request_id": list(map(str, rows)), "arrival_s": [gap_s * row for row in rows]}
        made = make(columns | {"controlnets": controlnets}, name="mine", source="s")
        return write(made, tmp_path / "t.parquet").path

    return written


def test_trace_demand_is_its_controlnets_at_its_own_rate(trace: Callable[..., Path]) -> None:
    """Five requests in two minutes are two a minute, in any order of a request's ControlNets."""
    file = trace([["b", "a"], ["a", "b"], ["a"], [], ["c"]])
    demand = find_demand(None, file, None, 0.5)
    assert demand.rate_hz * 60 == pytest.approx(2.0)
    assert dict(demand.together) == pytest.approx({("a", "b"): 2 / 150, ("a",): 1 / 150, (): 1 / 150, ("c",): 1 / 150})
    assert demand.load == pytest.approx({"a": 3 / 300, "b": 2 / 300, "c": 1 / 300})
    faster = find_demand(None, file, 20.0, 0.5)
    assert faster.load == pytest.approx({name: 10 * load for name, load in demand.load.items()})


@pytest.mark.parametrize(
    ("controlnets", "gap_s", "words", "message"),
    [
        ([["a"], ["b"], ["a"]], 30.0, [], None),
        ([["a"], ["b"]], 0.0, ["--rate-rpm", "6"], None),
        ([[], []], 30.0, [], "mine: no request asks for a ControlNet"),
        ([["a"], ["b"]], 0.0, [], "mine: all requests arrive at one time; give --rate-rpm"),
    ],
)
def test_placement_takes_a_timed_trace_with_controlnets(
    controlnets: list[list[str]],
    gap_s: float,
    words: list[str],
    message: str | None,
    trace: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "placement", "--trace", str(trace(controlnets, gap_s)), *words]) == (2 if message else 0)
    printed = capsys.readouterr()
    expected = message or "allocation.servers=1 'controlnet_placement.placement=[[a,b]]'"
    assert expected in printed.out + printed.err


def test_unfinished_solver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = SimpleNamespace(status=1, x=None, message="node limit")
    monkeypatch.setattr("mezzotint.sim.plan.placement.milp", lambda *_, **__: ended)
    with pytest.raises(ConfigError, match=r"did not end \(node limit\); take fewer ControlNets or servers"):
        solve(Demand(((("a",), 1.0),), 0.2), 1, 0.7, 2)
