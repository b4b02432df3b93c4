"""Optimal splits in hindsight: against exhaustive search, against MoDM's monitor, and followed in a run."""

from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.control.pid import Pid
from mezzotint.sim.control.split import Demand, KindCapacity, demand, quality_split, throughput_split
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.papers.modm.hindsight import Fleet, Hindsight, best_plan, recorded_demand
from mezzotint.sim.run.simulate import write
from tests.sim.lab import engine, simulated


@st.composite
def fleets(draw: st.DrawFn, gpus: int = 4) -> Fleet:
    rpm, load_s = st.floats(0.2, 10), st.floats(0, 400)
    return Fleet(
        draw(st.integers(2, gpus)),
        draw(rpm),
        draw(rpm),
        draw(load_s),
        draw(load_s),
        draw(st.sampled_from([60.0, 180.0])),
        draw(st.floats(0, 20)),
        draw(st.floats(0, 3)),
    )


loads = st.lists(st.builds(demand, st.floats(0, 30), st.floats(0, 1), st.floats(0.3, 1)), min_size=1, max_size=3)


def cost_of(fleet: Fleet, start: int, load: Sequence[Demand], plan: Sequence[int]) -> float:
    """The cost of ``plan``, GPUs with the large model for each window of ``load``, from empty queues."""
    total, misses, hits = np.zeros(1), np.zeros(1), np.zeros(1)
    for (before, after), asked in zip(pairwise([start, *plan]), load, strict=True):
        cost, misses, hits = fleet.serve(fleet.window(before, after), asked, misses, hits)
        total = total + cost
    return float(total[0])


@settings(max_examples=80)
@given(fleets(), loads, st.data())
def test_best_plan_matches_brute_force(fleet: Fleet, load: list[Demand], data: st.DataObject) -> None:
    splits = range(1, fleet.gpus + 1)
    start = data.draw(st.sampled_from(splits))
    found = best_plan(fleet, start, load)
    assert found.exact
    assert found.cost == pytest.approx(
        min(cost_of(fleet, start, load, plan) for plan in product(splits, repeat=len(load)))
    )
    assert cost_of(fleet, start, load, found.large) == pytest.approx(found.cost)


@settings(max_examples=60)
@given(fleets(6), st.lists(loads.map(lambda some: some[0]), min_size=4, max_size=12))
def test_best_plan_costs_no_more_than_the_monitor(fleet: Fleet, load: list[Demand]) -> None:
    """The monitor sees each window when it is over, and its PID lags; both begin with every GPU large."""
    pid, now, plan = Pid(), fleet.gpus, []
    kinds = [KindCapacity(fleet.gpus, fleet.large_rpm, fleet.small_rpm)]
    pid.x = float(now)
    for asked in load:
        plan.append(now)
        wanted = quality_split(kinds, asked, 0.9)
        if wanted is None:
            wanted = throughput_split(kinds, asked)
        now = min(max(round(pid.update(wanted, fleet.minutes, fleet.gpus)), 1), fleet.gpus)
    found = best_plan(fleet, fleet.gpus, load)
    assert found.cost <= cost_of(fleet, fleet.gpus, load, plan) + 1e-9
    assert all(1 <= large <= fleet.gpus for large in found.large)


@given(fleets(6), st.builds(demand, st.floats(0, 60), st.floats(0, 1), st.floats(0.1, 1)))
def test_window_clears_its_queue_exactly_where_the_monitor_rule_holds(fleet: Fleet, asked: Demand) -> None:
    """Equations 7 and 9 in one window without a switch, with empty queues before."""
    nothing = np.zeros(1)
    some = False
    for large in range(1, fleet.gpus + 1):
        _, misses, hits = fleet.serve(fleet.window(large, large), asked, nothing, nothing)
        some = some or float(misses[0] + hits[0]) <= 1e-9
    if asked.miss_rpm + asked.hit_rpm > 1e-6:
        slightly = (Demand(asked.miss_rpm * f, asked.hit_rpm * f) for f in (1 - 1e-6, 1 + 1e-6))
        kinds = [KindCapacity(fleet.gpus, fleet.large_rpm, fleet.small_rpm)]
        rule = [quality_split(kinds, each) is not None for each in slightly]
        assert some in rule


def test_pruned_plan_search_reports_that_it_is_inexact() -> None:
    fleet = Fleet(6, 0.7, 3.6, 20.0, 20.0, 180.0, waiting=3.0)
    load = [demand(rate, 0.6, 0.8) for rate in (4, 30, 8, 30, 2, 30, 9)]
    whole, few = (best_plan(fleet, 6, load, kept) for kept in (500, 1))
    assert whole.exact
    assert not few.exact
    assert few.cost >= whole.cost - 1e-9
    assert cost_of(fleet, 6, load, few.large) == pytest.approx(few.cost)


RUN = ("system=modm-quality", "trace.requests=400", "preload=150", "arrivals=ramp", "arrivals.end_rpm=24")


def test_hindsight_controller_follows_the_plan_for_the_recorded_demand(tmp_path: Path) -> None:
    first = simulated(*RUN, "controller.kp=1", "controller.ki=0", "controller.kd=0")
    write(first, tmp_path / "first")
    load = recorded_demand(tmp_path / "first", 180.0)
    rows = first.requests.to_pandas()
    work = ((rows.steps - rows.skipped) / rows.steps).sum()
    assert 3 * sum(each.miss_rpm + each.hit_rpm for each in load) == pytest.approx(work)
    again = simulated(*RUN, "controller=modm-hindsight", f"controller.folder={tmp_path / 'first'}")
    assert again.summary["requests"]["completed"] == 250
    assumptions = {each["what"]: each for each in again.summary["assumptions"]}
    planned = assumptions["splits planned in hindsight, their cost [GPU-min]"]
    assert planned["value"][0] == len(load)
    assert "no plan is cheaper" in planned["source"]
    counts = again.cluster.to_pandas()
    assert (counts.gpus_large + counts.gpus_small == 16).all()
    assert counts.gpus_large.nunique() > 1


def test_hindsight_without_a_run_or_a_second_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller\.folder: .* holds no run"):
        simulated(*RUN, "controller=modm-hindsight", f"controller.folder={tmp_path}")
    models = {"large": Model("large", 50, 64, 64)}
    with pytest.raises(ConfigError, match="split between two"):
        engine([0.0], [1.0], models=models, controllers=[Hindsight(str(tmp_path))]).run()
