"""Targets of a plan: how they are read, and when they are met."""

import math
from typing import Any

import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.target import parse_target

SUMMARY: dict[str, Any] = {
    "requests": {"arrived": 10, "completed": 10, "discarded": 0, "failed": 0},
    "latency_s": {"mean": 3.0, "p95": 8.0},
    "slo": {"2x": {"limit_s": 4.0, "violation_rate": 0.04}, "2.5x": {"limit_s": 5.0, "violation_rate": 0.01}},
    "gpu": {"busy_fraction": 0.5, "count": 2},
    "quality": {"factor_mean": None},
}


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("p95<10s", 0.8),
        ("p95 <= 8 s", 1.0),
        ("mean<1.5", 2.0),
        ("over 2.5x<0.02", 0.5),
        ("gpu.busy_fraction>60%", 1.2),
        ("quality.factor_mean>=0.9", math.inf),
        ("stages.moves<=3", math.inf),
    ],
)
def test_ratio_is_the_number_over_its_bound(text: str, ratio: float) -> None:
    assert parse_target(text).ratio(SUMMARY) == pytest.approx(ratio)


def test_request_that_is_never_served_misses_every_latency_target() -> None:
    lost = SUMMARY | {"requests": {"arrived": 10, "completed": 9, "discarded": 1, "failed": 0}}
    assert parse_target("p95<1000s").ratio(lost) == math.inf
    assert parse_target("over 2x<5%").ratio(lost) == pytest.approx(0.8)  # counted there as late


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, "expected KEY<VALUE")
            for text in ("", "p95<", "p95<ten", "p95<nan", "p95<1_0s", "p95=<10s", "p95<1s p99<2s")
        ),
        ("over 2x<5", "5 is no share; write 5% or 0.05"),
        ("over 2x<500%", "never above 100%"),
        ("over 2x<1", "never above 100%"),
        ("over 2x>5%", "over 2x is good if it is low; write a highest value, such as over 2x<5%"),
        ("over 2x<5s", "found 5s, expected a share, such as over 2x<5% or over 2x<0.05"),
        ("over 2x<0%", "which no cluster can meet"),
        ("p95<10ms", "found 10ms, expected seconds"),
        ("p95>10s", "p95 is good if it is low; write a highest value, such as p95<10s"),
        ("mean>=0s", "mean is good if it is low; write a highest value, such as mean<10s"),
        ("throughput_rpm<10", "write a lowest value, such as throughput_rpm>=10"),
        ("p95<=0s", "found 0s, which no cluster can meet"),
        ("p95<-1s", "found -1s, which no cluster can meet"),
        ("p95<0s", "found 0s, which no cluster can meet"),
        ("throughput_rpm>=0", "found 0, which every cluster meets"),
        ("cache.hit_rate>100%", "found 100%, which no cluster can meet; lower it, or write cache.hit_rate>=100%"),
        ("p95<10%", "found 10%, expected seconds, such as p95<10s"),
        ("requests.failed<0", "found 0, which no cluster can meet"),
        ("p99.9<10s", "summary.json has no p99.9; expected one of mean, p50, p90, p95, p99, max"),
        ("queue_s.p75<3", "summary.json has no queue_s.p75"),
        ("gpu.busy<60%", "summary.json has no number gpu.busy; did you mean gpu.busy_fraction?"),
        ("wall.cpu_s<1", "summary.json has no number wall.cpu_s"),
        ("slo.2y.violation_rate<1%", "expected a multiple of the standalone latency"),
        ("gpu.count<5%", "found 5%, expected a plain number, such as gpu.count<10"),
    ],
)
def test_target_that_means_nothing_is_refused_before_a_run(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_target(text)
    assert str(refused.value).startswith(f"--target {text}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "key", "bound"),
    [
        ("OVER 2X<5%", "slo.2x.violation_rate", 0.05),
        ("P95<10S", "latency_s.p95", 10.0),
        ("over 2x<=0%", "slo.2x.violation_rate", 0.0),
        ("slo.7x.violation_rate<1%", "slo.7x.violation_rate", 0.01),
        ("slo.own.violation_rate<=5%", "slo.own.violation_rate", 0.05),
        ("requests.discarded<=0", "requests.discarded", 0.0),
        ("gpu.by_kind.h100-sxm.busy_fraction<90%", "gpu.by_kind.h100-sxm.busy_fraction", 0.9),
        ("latency_s.p95<1e1s", "latency_s.p95", 10.0),
    ],
)
def test_key_and_bound_of_a_target(text: str, key: str, bound: float) -> None:
    target = parse_target(text)
    assert (target.key, target.bound) == (key, bound)
