"""Runs that differ in more than the seed or the rate have different names."""

from typing import Any

import pytest

from mezzotint.sim.report.labels import flatten, labels, load_of

ARRIVALS = {"_target_": "mezzotint.traces.arrivals.poisson.Poisson", "rate_rpm": 10.0}


def series(*systems: str, **varied: list[Any]) -> list[str]:
    """Return the labels of systems whose configurations differ in one section."""
    ((section, values),) = varied.items()
    configs = [flatten({"arrivals": ARRIVALS, "seed": at} | {section: value}) for at, value in enumerate(values)]
    return [label for label, _, _ in labels(systems, configs)]


def test_label_names_one_setting_of_those_that_differ_together() -> None:
    caches = [{"cache": {"capacity": size, "bytes": size * 4096}} for size in (100, 1000)]
    names = series("nirvana", "nirvana", "vanilla", system=[*caches, {}])
    assert len(set(names)) == 3
    assert names[2] == "vanilla"
    assert all(name.count("=") <= 1 for name in names), "what follows from a named setting is left out"


def test_second_cluster_appears_in_every_name() -> None:
    kinds = [{"gpu": {"name": "mi210", "active_w": 300}}, {"gpu": {"name": "h100", "active_w": 700}}]
    assert series("nirvana", "vanilla", cluster=kinds) == ["nirvana (cluster.gpu=mi210)", "vanilla (cluster.gpu=h100)"]


def test_same_rate_from_two_arrival_processes_is_not_averaged() -> None:
    bursts = {"_target_": "mine.Bursts", "rate_rpm": 10, "burst": 4}
    names = series("nirvana", "nirvana", arrivals=[ARRIVALS, bursts])
    assert names == ["nirvana (arrivals=Poisson)", "nirvana (arrivals=Bursts)"]


@pytest.mark.parametrize(
    ("arrivals", "rate_rpm", "label"),
    [
        (ARRIVALS, 10.0, "10 rpm"),
        ({"_target_": "a.Closed", "outstanding": 4, "seed": 3}, None, "closed arrivals (outstanding=4)"),
        ({"_target_": "a.TraceClock", "speedup": 2.0}, None, "trace clock arrivals (speedup=2.0)"),
    ],
)
def test_load_is_the_rate_or_the_arrivals(arrivals: dict[str, Any], rate_rpm: float | None, label: str) -> None:
    """Arrivals without a rate are loads of one series."""
    load = load_of(flatten({"arrivals": arrivals}))
    assert (load.rate_rpm, load.label) == (rate_rpm, label)
    assert series("nirvana", "nirvana", arrivals=[{"_target_": "b.Other"}, arrivals]) == ["nirvana", "nirvana"]


def test_most_varied_number_is_an_axis() -> None:
    configs = [flatten({"cache": {"capacity": size, "shards": size // 50}}) for size in (50, 200, 1000)]
    found = labels(["nirvana"] * 3, configs)
    assert [(family, setting and setting.value) for _, family, setting in found] == [
        ("nirvana", 50.0),
        ("nirvana", 200.0),
        ("nirvana", 1000.0),
    ]
