"""MoDM's allocation rules and its PID: worked examples, brute force, and laws of every split."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mezzotint.sim.control.pid import Pid
from mezzotint.sim.control.split import Demand, KindCapacity, capacity_left, demand, quality_split, throughput_split
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.build import build

LARGE, SDXL, SANA = 60 / 91.5, 60 / 16.5, 60 / 6.5
RATES = range(6, 29, 2)
MI210S = [KindCapacity(16, LARGE, SDXL)]

loads = st.builds(demand, st.floats(0, 100), st.floats(0, 1), st.floats(0, 1))
rates_rpm = st.floats(0.05, 60)


def test_demand_of_a_window_matches_a_worked_example() -> None:
    assert demand(10, 0.7, 0.8) == pytest.approx((3.0, 5.6))
    assert demand(10, 0.0, 0.0) == (10.0, 0.0)


@pytest.mark.parametrize(
    ("small", "chosen"),
    [
        (SDXL, [16, 16, 16, 15, 15, 14, 14, 13, 13, 12, 11, 11]),
        (SANA, [16, 16, 16, 15, 15, 15, 15, 15, 14, 14, 14, 14]),
    ],
)
def test_quality_split_on_16_gpus_matches_a_worked_example(small: float, chosen: list[int]) -> None:
    asked = [demand(rate, 0.75, 0.75) for rate in RATES]
    assert [quality_split([KindCapacity(16, LARGE, small)], each, 0.9) for each in asked] == chosen


@given(st.integers(1, 24), loads, rates_rpm, rates_rpm, st.floats(0.5, 1))
def test_quality_split_is_the_largest_that_serves_the_demand(
    gpus: int, asked: Demand, large: float, small: float, safety: float
) -> None:
    kinds = [KindCapacity(gpus, large, small)]

    def serves(n: int) -> bool:
        enough = n * large >= asked.miss_rpm * (1 - 1e-9)
        return enough and safety * capacity_left(kinds, n, asked) >= asked.hit_rpm

    edge = any(
        math.isclose(n * large, asked.miss_rpm, rel_tol=1e-6)
        or math.isclose(safety * capacity_left(kinds, n, asked), asked.hit_rpm, rel_tol=1e-6, abs_tol=1e-9)
        for n in range(1, gpus + 1)
    )
    assume(not edge)
    serving = [n for n in range(1, gpus + 1) if serves(n)]
    assert quality_split(kinds, asked, safety) == max(serving, default=None)


@given(st.integers(1, 64), loads, rates_rpm, rates_rpm)
def test_throughput_split_is_the_rounded_share_within_its_bounds(
    gpus: int, asked: Demand, large: float, small: float
) -> None:
    n = throughput_split([KindCapacity(gpus, large, small)], asked)
    assert 1 <= n <= gpus
    miss, hit = Fraction(asked.miss_rpm), Fraction(asked.hit_rpm) * Fraction(large) / Fraction(small)
    if miss + hit:
        exact = miss / (miss + hit) * gpus
        assert abs(n - exact) <= Fraction(1, 2) + Fraction(1, 10**6) or n in (1, gpus)


@given(st.floats(0.1, 50), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 10))
def test_throughput_split_does_not_depend_on_the_rate(rate: float, hit_rate: float, left: float, times: float) -> None:
    """Equation 12: the rate R cancels, up to rounding."""
    one, other = (throughput_split(MI210S, demand(r, hit_rate, left)) for r in (rate, rate * times))
    assert abs(one - other) <= 1


def test_zero_and_excessive_demand_have_a_split() -> None:
    nothing = Demand(0.0, 0.0)
    assert quality_split(MI210S, nothing) == 16
    assert throughput_split(MI210S, nothing) == 16
    assert quality_split(MI210S, Demand(1e9, 0.0)) is None
    assert throughput_split(MI210S, Demand(1e9, 0.0)) == 16


def test_pid_matches_a_worked_example() -> None:
    pid = Pid()
    pid.x = 4.0
    assert [min(max(round(pid.update(1, 3.0, 4)), 1), 4) for _ in range(6)] == [2, 1, 1, 1, 1, 1]


@given(st.integers(1, 32), st.lists(st.integers(1, 32), min_size=1, max_size=30), st.floats(0.5, 10))
def test_pid_matches_its_recurrence_in_exact_arithmetic(start: int, targets: list[int], dt: float) -> None:
    pid = Pid()
    pid.x = float(start)
    x, total, last, step = Fraction(start), Fraction(0), Fraction(0), Fraction(dt)
    for target in targets:
        error = target - x
        total += error * step
        delta = Fraction(0.6) * error + Fraction(0.05) * total + Fraction(0.05) * (error - last) / step
        last = error
        x += max(-32, min(32, delta))
        assert pid.update(target, dt, 32) == pytest.approx(float(x), abs=1e-6 * (1 + abs(float(x))))


@given(st.integers(1, 32), st.integers(1, 32))
def test_pid_settles_at_its_target(start: int, target: int) -> None:
    pid = Pid(max_integral=1.0)
    pid.x = float(start)
    for _ in range(300):
        pid.update(target, 3.0, 32)
    assert pid.x == pytest.approx(target, abs=0.2)


@pytest.mark.parametrize("setting", [{"kp": -1.0}, {"ki": math.inf}, {"kd": math.nan}, {"max_integral": -1.0}])
def test_invalid_pid_gain_is_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        build({"_target_": "mezzotint.sim.control.pid.Pid", **setting}, "controller.pid")
