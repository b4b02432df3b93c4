"""Targets of a plan: how they are read, and when they are met."""

import math
from typing import Any

import pytest

from sim.core.errors import ConfigError
from sim.plan.clusters.target import parse_target

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
        ("over 2x<5%", 0.8),
        ("over 2.5x<0.02", 0.5),
        ("gpu.busy_fraction>=0.25", 0.5),
        ("gpu.busy_fraction>60%", 1.2),
        ("quality.factor_mean>=0.9", math.inf),
    ],
)
def test_ratio_is_the_number_over_its_bound(text: str, ratio: float) -> None:
    assert parse_target(text).ratio(SUMMARY) == pytest.approx(ratio)


def test_request_that_is_never_served_misses_every_latency_target() -> None:
    lost = SUMMARY | {"requests": {"arrived": 10, "completed": 9, "discarded": 1, "failed": 0}}
    assert parse_target("p95<1000s").ratio(lost) == math.inf
    assert parse_target("over 2x<5%").ratio(lost) == pytest.approx(0.8)  # counted there as late


@pytest.mark.parametrize("text", ["", "p95", "p95<", "p95<ten", "p95<-1", "p95<nan", "over 2y<5%", "over <5%", "<3"])
def test_unreadable_target_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="--target"):
        parse_target(text)


@pytest.mark.parametrize("text", ["latency_s.p42<3", "requests.lost<1", "quality.basis.x<1", "slo.7x.violation_rate<1"])
def test_key_that_no_summary_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--target"):
        parse_target(text).ratio(SUMMARY)
