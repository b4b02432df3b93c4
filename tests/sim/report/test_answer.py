"""The sentence at the top of a report, in runs made for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.report.answer import answer, caveats
from mezzotint.sim.report.runs import Run, load_runs

Fabricate = Callable[..., Path]
Outcome = dict[str, Any]


@pytest.fixture
def results(fabricate: Fabricate, tmp_path: Path) -> Callable[..., list[Run]]:
    """Return runs with the given outcomes: system, rate (requests/min), share over the 2x limit, and more."""

    def make(*outcomes: tuple[str, float, float, Outcome]) -> list[Run]:
        for index, (system, rate, late, more) in enumerate(outcomes):

            def edit(summary: dict[str, Any], late: float = late, more: Outcome = more) -> None:
                summary["slo"] = {"2x": {"limit_s": 183.0, "violation_rate": late}}
                summary["cost_usd"] = {"per_image": more.get("usd"), "total": None}
                summary["quality"] = {"factor_mean": more.get("quality")}
                summary["backlog"] = {"grows": more.get("grows", False), "per_hour": 1.0, "at_last_arrival": 1}
                failed = more.get("failed", 0)
                summary["requests"] |= {"arrived": 100, "completed": 100 - failed, "failed": failed}

            fabricate(f"{index}", system, rate_rpm=rate, seed=more.get("seed", 1), requests=20, change=edit)
        return load_runs([tmp_path])

    return make


def test_only_system_that_meets_the_limit_is_named_first_with_its_cost(results: Callable[..., list[Run]]) -> None:
    runs = results(("vanilla", 10.0, 0.29, {"usd": 0.005}), ("modm-quality", 10.0, 0.02, {"usd": 0.004}))
    assert answer(runs) == (
        "At 10 rpm, modm-quality meets the 2x limit in 98.0 % of requests at 0.004 US$ per image, the only one of 2 "
        "that reaches 95 %; vanilla in 71.0 % at 0.005 US$. Each has one seed, so small differences may be noise."
    )
    assert caveats(runs) == []


def test_cheapest_of_the_systems_that_meet_the_limit_wins(results: Callable[..., list[Run]]) -> None:
    runs = results(
        ("nirvana", 10.0, 0.0, {"usd": 0.006, "quality": 0.99}),
        ("modm-quality", 10.0, 0.02, {"usd": 0.004, "quality": 0.93}),
        ("vanilla", 10.0, 0.3, {"usd": 0.001, "quality": 1.0}),
    )
    text = answer(runs)
    assert text.startswith("At 10 rpm, modm-quality meets the 2x limit in 98.0 %")
    assert ", the cheapest of 2 that reach 95 %; nirvana in 100.0 % at 0.006 US$; vanilla in 70.0 %" in text
    assert "Best known quality: vanilla with 1; modm-quality has 0.93." in text


def test_equal_costs_have_no_cheapest(results: Callable[..., list[Run]]) -> None:
    text = answer(results(("nirvana", 10.0, 0.0, {"usd": 0.0040001}), ("vanilla", 10.0, 0.01, {"usd": 0.004})))
    assert ", among the cheapest of 2 that reach 95 %" in text


def test_cost_within_the_noise_of_seeds_has_no_cheapest(results: Callable[..., list[Run]]) -> None:
    costs = {"nirvana": (0.003, 0.006, 0.005), "vanilla": (0.004, 0.0052, 0.0055)}
    runs = results(
        *((system, 10.0, 0.0, {"usd": usd, "seed": at}) for system, own in costs.items() for at, usd in enumerate(own))
    )
    text = answer(runs)
    assert ", among the cheapest of 2" in text
    assert "one seed" not in text


def test_overloaded_system_does_not_meet_the_limit(results: Callable[..., list[Run]]) -> None:
    """Its queue grows, so that a longer trace would have more late requests."""
    runs = results(("vanilla", 10.0, 0.0, {"grows": True}), ("nirvana", 10.0, 0.04, {}))
    assert answer(runs).startswith("At 10 rpm, nirvana meets the 2x limit in 96.0 % of requests, the only one of 2")
    assert "vanilla in 100.0 % (overloaded)" in answer(runs)
    (said,) = caveats(runs)
    assert said.startswith("Overloaded: vanilla at 10 rpm. The queue grows")


def test_no_winner_is_named_if_nothing_meets_the_limit(results: Callable[..., list[Run]]) -> None:
    runs = results(("vanilla", 10.0, 0.9, {}), ("nirvana", 10.0, 0.5, {}), ("nirvana", 20.0, 0.8, {}))
    assert answer(runs).startswith(
        "No system meets the 2x limit in 95 % of requests at any of 2 loads. At 10 rpm, nirvana meets it in 50.0 %; "
        "vanilla in 10.0 %."
    )
    alone = answer([run for run in runs if run.system == "vanilla"])
    assert alone == (
        "The system does not meet the 2x limit in 95 % of requests at 10 rpm. At 10 rpm, vanilla meets it in 10.0 %."
    )


def test_answer_is_for_the_highest_load_at_which_a_system_meets_the_limit(results: Callable[..., list[Run]]) -> None:
    late = {"vanilla": (0.0, 0.5, 0.9), "nirvana": (0.0, 0.03, 0.6), "small-model": (0.2, 0.3, 0.4)}
    rates = (6.0, 14.0, 22.0)
    rows = [(system, rate, own[at], {}) for system, own in late.items() for at, rate in enumerate(rates)]
    text = answer(results(*rows))
    assert text.startswith("At 14 rpm, nirvana meets the 2x limit in 97.0 % of requests, the only one of 3")
    assert "At 22 rpm, none does." in text
    assert "within 2x: nirvana up to 14 rpm; vanilla up to 6 rpm; small-model at no rate." in text


def test_system_that_meets_the_limit_at_a_load_of_its_own_is_found(results: Callable[..., list[Run]]) -> None:
    text = answer(results(("vanilla", 10.0, 0.9, {}), ("nirvana", 10.0, 0.5, {}), ("nirvana", 5.0, 0.01, {})))
    assert text.startswith("At 5 rpm, nirvana meets the 2x limit in 99.0 % of requests. At 10 rpm, none does.")


def test_failed_requests_are_said(results: Callable[..., list[Run]]) -> None:
    runs = results(("vanilla", 10.0, 0.03, {"failed": 2}), ("nirvana", 10.0, 0.0, {}))
    assert caveats(runs) == ["Failed or discarded requests: vanilla at 10 rpm; at most 2.0 % (vanilla at 10 rpm)."]


@pytest.mark.parametrize(("late", "shown"), [(0.0502, "94.9800 %"), (0.0001, "99.9900 %"), (0.06, "94.0 %")])
def test_rounding_reaches_neither_the_target_nor_all_requests(
    late: float, shown: str, results: Callable[..., list[Run]]
) -> None:
    assert shown in answer(results(("vanilla", 10.0, late, {})))


def test_many_systems_are_summed_up(results: Callable[..., list[Run]]) -> None:
    text = answer(results(*((f"system-{index}", 10.0, 0.05 * index, {}) for index in range(9))))
    assert text.startswith("At 10 rpm, system-0 meets the 2x limit in 100.0 %")
    assert "; system-3 in 85.0 %; 5 more in 60.0 % to 80.0 %." in text


def test_unlike_images_have_no_cheapest(fabricate: Fabricate, tmp_path: Path) -> None:
    images = {"role": "large", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20, "precision": "fp8"}
    images |= {"basis": "published", "service_error": None, "source": "MLPerf"}
    for system, model, usd in (("vanilla", "sdxl", 0.004), ("nirvana", "flux", 0.002)):

        def edit(summary: dict[str, Any], model: str = model, usd: float = usd) -> None:
            summary["slo"] = {"2x": {"limit_s": 183.0, "violation_rate": 0.0}}
            summary["cost_usd"] = {"per_image": usd, "total": 1.0}
            summary["models"] = [{**images, "model": model}]

        fabricate(system, system, requests=20, change=edit)
    runs = load_runs([tmp_path])
    said = caveats(runs)
    assert said
    assert said[0].startswith("These runs make different images. Their speed and cost cannot be compared")
    assert "cheapest" not in answer(runs)


def test_without_a_limit_the_latency_answers(fabricate: Fabricate, tmp_path: Path) -> None:
    def unlimited(summary: dict[str, Any], p95: float) -> None:
        summary["slo"] = None
        summary["latency_s"] = dict.fromkeys(summary["latency_s"], p95)

    for system, p95 in (("vanilla", 30.0), ("nirvana", 12.0)):
        fabricate(system, system, requests=20, change=lambda summary, p95=p95: unlimited(summary, p95))
    runs = load_runs([tmp_path])
    assert answer(runs) == "No run has a latency limit. At 10 rpm, the p95 latency of nirvana is 12 s; vanilla 30 s."
