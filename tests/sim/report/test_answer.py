"""The sentence at the top of a report, in runs made for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.report.answer import answer, caveats
from mezzotint.sim.report.runs import Run, load_runs

Fabricate = Callable[..., Path]
Results = Callable[..., list[Run]]


@pytest.fixture
def results(fabricate: Fabricate, tmp_path: Path) -> Results:
    """Return runs with the given outcomes: system, rate (requests/min), share over the 2x limit, and more."""

    def make(*outcomes: tuple[str, float, float, dict[str, Any]]) -> list[Run]:
        for index, (system, rate, late, more) in enumerate(outcomes):

            def edit(summary: dict[str, Any], late: float = late, more: dict[str, Any] = more) -> None:
                summary["slo"] = {"2x": {"limit_s": 183.0, "violation_rate": late}}
                summary["cost_usd"] = {"per_image": more.get("usd"), "total": None}
                summary["quality"] = {"factor_mean": more.get("quality")}
                summary["load"]["verdict"] = more.get("load", "below")
                failed = more.get("failed", 0)
                summary["requests"] |= {"arrived": 100, "completed": 100 - failed, "failed": failed}
                if "model" in more:
                    images = {"role": "large", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20}
                    images |= {"precision": "fp8", "basis": "published", "service_error": None, "source": "MLPerf"}
                    summary["models"] = [images | {"model": more["model"]}]

            fabricate(f"{index}", system, rate_rpm=rate, seed=more.get("seed", 1), requests=20, change=edit)
        return load_runs([tmp_path])

    return make


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        pytest.param(
            [("vanilla", 10.0, 0.29, {"usd": 0.005}), ("modm-quality", 10.0, 0.02, {"usd": 0.004})],
            [
                "At 10 rpm, modm-quality meets the 2x limit in 98.0 %",
                "only one of 2",
                "71.0 % at 0.005 US$",
                "one seed",
            ],
            id="the only system that meets the limit is named first",
        ),
        pytest.param(
            [
                ("nirvana", 10.0, 0.0, {"usd": 0.006, "quality": 0.99}),
                ("modm-quality", 10.0, 0.02, {"usd": 0.004, "quality": 0.93}),
                ("vanilla", 10.0, 0.3, {"usd": 0.001, "quality": 1.0}),
            ],
            ["At 10 rpm, modm-quality meets", ", the cheapest of 2", "quality: vanilla with 1; modm-quality has 0.93"],
            id="of several, the cheapest wins",
        ),
        pytest.param(
            [("nirvana", 10.0, 0.0, {"usd": 0.0040001}), ("vanilla", 10.0, 0.01, {"usd": 0.004})],
            [", among the cheapest of 2"],
            id="equal costs have no cheapest",
        ),
        pytest.param(
            [
                *(("nirvana", 10.0, 0.0, {"usd": usd, "seed": at}) for at, usd in enumerate((0.003, 0.006, 0.005))),
                *(("vanilla", 10.0, 0.0, {"usd": usd, "seed": at}) for at, usd in enumerate((0.004, 0.0052, 0.0055))),
            ],
            [", among the cheapest of 2"],
            id="nor do those within the noise of seeds",
        ),
        pytest.param(
            [("vanilla", 10.0, 0.0, {"load": "overloaded"}), ("nirvana", 10.0, 0.04, {})],
            ["At 10 rpm, nirvana meets the 2x limit in 96.0 %", "vanilla in 100.0 % (overloaded)"],
            id="an overloaded system does not meet the limit: a longer trace would have more late requests",
        ),
        pytest.param(
            [("vanilla", 10.0, 0.9, {}), ("nirvana", 10.0, 0.5, {}), ("nirvana", 20.0, 0.8, {})],
            ["No system meets", "at any of 2 loads. At 10 rpm, nirvana meets it in 50.0 %; vanilla in 10.0 %"],
            id="no winner is named if nothing meets it",
        ),
        pytest.param(
            [
                (system, rate, late, {})
                for system, shares in {"vanilla": (0.0, 0.5, 0.9), "nirvana": (0.0, 0.03, 0.6)}.items()
                for rate, late in zip((6.0, 14.0, 22.0), shares, strict=True)
            ],
            ["At 14 rpm, nirvana meets", "At 22 rpm, none does.", "nirvana up to 14 rpm; vanilla up to 6 rpm."],
            id="the answer is for the highest load at which a system meets the limit",
        ),
        pytest.param(
            [(f"system-{index}", 10.0, 0.05 * index, {}) for index in range(9)],
            ["At 10 rpm, system-0 meets", "; system-3 in 85.0 %; 5 more in 60.0 % to 80.0 %."],
            id="many systems are summed up",
        ),
        pytest.param([("vanilla", 10.0, 0.0502, {})], ["94.9800 %"], id="rounding does not reach the target"),
    ],
)
def test_answer_names_who_meets_the_limit(outcomes: Any, words: list[str], results: Results) -> None:
    text = answer(results(*outcomes))
    assert all(word in text for word in words), text


def test_caveats_name_unlike_images_overload_and_failures(results: Results) -> None:
    runs = results(
        ("vanilla", 10.0, 0.02, {"usd": 0.004, "model": "sdxl", "failed": 2}),
        ("nirvana", 10.0, 0.0, {"usd": 0.002, "model": "flux", "load": "overloaded"}),
    )
    images, growing, lost = caveats(runs)
    assert images.startswith("These runs make different images. Their speed and cost cannot be compared")
    assert growing.startswith("Overloaded: nirvana at 10 rpm.")
    assert lost == "Failed or discarded requests: vanilla at 10 rpm; at most 2.0 % (vanilla at 10 rpm)."
    assert "cheapest" not in answer(runs)


def test_without_a_limit_the_latency_answers(fabricate: Fabricate, tmp_path: Path) -> None:
    def unlimited(summary: dict[str, Any], p95: float) -> None:
        summary["slo"] = None
        summary["latency_s"] = dict.fromkeys(summary["latency_s"], p95)

    for system, p95 in (("vanilla", 30.0), ("nirvana", 12.0)):
        fabricate(system, system, requests=20, change=lambda summary, p95=p95: unlimited(summary, p95))
    assert "the p95 latency of nirvana is 12 s; vanilla 30 s" in answer(load_runs([tmp_path]))
