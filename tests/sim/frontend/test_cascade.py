"""Cascades: a light model answers, a heavy one makes images of a low score again (DiffServe)."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.control.diffserve import DiffServe
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.frontend.cascade import Cascade
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from tests.sim.lab import configured, simulated

DIFFSERVE = ("system=diffserve", "cluster=a100", "cluster.count=4", "quality=alpha", "slo=[5s]", "trace.requests=300")
FIXED = (*DIFFSERVE, "controller=none", "allocation.small=2")


def test_cascade_that_never_escalates_equals_the_light_model() -> None:
    light = simulated(*FIXED, "arrivals.rate_rpm=300", "frontend=direct-small", "frontend.role=light")
    cascade = simulated(*FIXED, "arrivals.rate_rpm=300", "frontend.threshold=0", "frontend.discriminator_s=0")
    for name in ("start_s", "finish_s", "energy_j", "model"):
        assert light.requests[name].equals(cascade.requests[name])


@pytest.mark.parametrize("key", ["frontend.discriminator_s", "handling.before_s", "handling.after_s"])
def test_long_wait_that_began_is_waited_for_beside_a_controller(key: str) -> None:
    """... whose ticks go on for ever: a thousand samples without an end do not end the run."""
    run = simulated(*DIFFSERVE, "allocation.small=2", "scheduler.drop_after=1e9", "sample_s=10", f"{key}=60000")
    assert run.summary["requests"]["completed"] == 300
    latency_s = run.requests["finish_s"].to_numpy() - run.requests["arrival_s"].to_numpy()
    assert latency_s.min() > 60_000.0


def test_every_pass_is_an_attempt() -> None:
    """Shares of 1 escalate every image: the request begins on the light model and ends on the heavy one."""
    run = simulated(*FIXED, "arrivals.rate_rpm=30", "frontend.threshold=1")
    assert run.attempts is not None
    table, requests = run.attempts.to_pandas(), run.requests.to_pandas().set_index("request_id")
    assert (table.groupby("request_id").size() == 2).all()
    assert table.model.value_counts().to_dict() == {"sd-turbo": 300, "sd1.5": 300}
    first = table[table.stage == 0].set_index("request_id")
    np.testing.assert_array_equal(requests.start_s, first.start_s.loc[requests.index])
    energy_j = table.groupby("request_id").energy_j.sum().loc[requests.index]
    np.testing.assert_allclose(requests.energy_j, energy_j)
    assert run.summary["cascade"] == {"attempts": 600, "escalated": 300}


@pytest.mark.parametrize("threshold", [0.05, 0.2, 0.4])
def test_share_of_escalated_images_is_the_measured_one(threshold: float) -> None:
    run = simulated(*FIXED, "trace.requests=1500", "cluster.count=64", "allocation.small=16", "arrivals.rate_rpm=600",
                    f"frontend.threshold={threshold}")  # fmt: skip
    share = run.summary["cascade"]["escalated"] / 1500
    expected = Cascade({0.05: 0.36, 0.2: 0.582, 0.4: 0.878}).escalated_share(threshold)
    assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 1500) ** 0.5)


@settings(max_examples=20)
@given(
    shares=st.lists(st.floats(0, 1), min_size=2, max_size=5, unique=True),
    at=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_higher_threshold_escalates_more(shares: list[float], at: tuple[float, float]) -> None:
    cascade = Cascade(dict(zip(np.linspace(0.1, 1, len(shares)).tolist(), sorted(shares), strict=True)))
    assert cascade.escalated_share(min(at)) <= cascade.escalated_share(max(at))


def test_falling_shares_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"frontend\.shares"):
        Cascade({0.1: 0.5, 0.2: 0.4})


def test_late_requests_are_dropped_and_count_as_violations() -> None:
    run = simulated(*FIXED, "arrivals.rate_rpm=3000", "frontend.threshold=1")
    assert run.summary["requests"]["discarded"] > 0
    assert "scheduler.drop_after" in set(run.requests["reason"].to_pylist()).difference({None}).pop()
    late = run.summary["slo"]["5s"]["violation_rate"]
    assert late >= run.summary["requests"]["discarded"] / 300


SHARES = {0.02: 0.26, 0.05: 0.36, 0.1: 0.449, 0.15: 0.514, 0.2: 0.582, 0.25: 0.69, 0.3: 0.788, 0.4: 0.878, 0.5: 0.993,
          0.6: 1.0}  # fmt: skip
LIGHT_S = {1: 0.10, 2: 0.15, 4: 0.22, 8: 0.41, 16: 0.77, 32: 1.56}
HEAVY_S = {1: 1.78, 2: 2.16, 4: 3.68, 8: 6.79, 16: 12.88, 32: 25.35}


@pytest.mark.parametrize("demand_s", [1.0, 10.0, 30.0, 60.0, 120.0, 500.0])
def test_controller_chooses_the_highest_threshold_that_fits(demand_s: float) -> None:
    """Brute force over splits, batches and thresholds, with DiffServe's printed times."""
    config = configured(*DIFFSERVE, "cluster.count=16", "allocation.small=4", "controller.grid=51")
    engine = assemble(check(config)).engine
    engine.open()
    controller = next(each for each in engine.controllers if isinstance(each, DiffServe))
    thresholds = np.linspace(0, 1, 51).tolist()
    shares = np.interp(thresholds, [0, *SHARES], [0, *SHARES.values()])

    def fits(share: float, count: int, light: int, heavy: int) -> bool:
        took_s = LIGHT_S[light] + 0.02 + (HEAVY_S[heavy] if share else 0.0)
        light_s, heavy_s = count * light / LIGHT_S[light], (16 - count) * heavy / HEAVY_S[heavy]
        return took_s <= 5 and light_s >= demand_s and heavy_s >= demand_s * share

    fitting = [
        threshold
        for threshold, share in zip(thresholds, shares, strict=True)
        if any(fits(share, *setting) for setting in product(range(1, 16), LIGHT_S, HEAVY_S))
    ]
    assert controller.best(demand_s).threshold == pytest.approx(max(fitting, default=0.0))


def test_demand_follows_arrivals_or_requests_in_flight() -> None:
    """The requests in flight are more than the arrivals of a second where an answer takes longer than one."""
    found = {}
    for demand in ("arrivals", "in-flight"):
        run = simulated(*DIFFSERVE, "cluster.count=16", "trace.requests=800", "arrivals.rate_rpm=1200", "sample_s=5",
                        f"controller.demand={demand}")  # fmt: skip
        found[demand] = np.mean(run.cluster["threshold"].to_numpy())
    assert found["in-flight"] < found["arrivals"]
