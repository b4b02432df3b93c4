"""What a result rests on is found by leaving it out."""

from typing import Any

import pytest

from mezzotint.sim.metrics.counterfactuals import _read_list, counterfactuals
from mezzotint.sim.metrics.header import rests_on
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import simulate
from tests.sim.lab import configured, simulated

PATCHED = ("system=patchedserve", "cluster=h100", "trace=hybrid", "trace.requests=150", "arrivals.rate_rpm=50")
CACHED = ("system=nirvana", "trace.requests=150")

ON = {
    "without reuse of patches": PATCHED,
    "without reuse of blocks": (*PATCHED, "feature_cache=whole-image"),
    "without the step cache": (*PATCHED, "feature_cache=teacache"),
    "without skipped steps": ("frontend=fewer-steps",),
    "with plain kernels": ("system=swiftdiffusion", "cluster=h800"),
    "with stages believed to take half as long": ("system=tetriserve",),
}


def tried(*words: str) -> dict[str, dict[str, Any]]:
    """Return the counterfactual configurations of a run, by their words without their numbers."""
    summary, config = simulated(*words).summary, configured(*words)
    return dict(counterfactuals(summary, config))


def test_every_listed_change_is_of_a_shipped_design_and_makes_a_valid_configuration() -> None:
    assert {row["words"] for row in _read_list()} == ON.keys()
    for words, overrides in ON.items():
        config = configured(*overrides)
        found = dict(counterfactuals({"models": [], "cache": {}}, config))
        assert words in found
        assert check(found[words])
        assert found[words] != config


def test_design_without_assumptions_rests_on_its_times_alone() -> None:
    found = tried("trace.requests=20")
    assert list(found) == ["with times 10.0 % longer (an example, as their error is not known)"]
    (config,) = found.values()
    assert config["backend"]["service_factor"] == 1.1


def test_change_of_times_is_the_known_error() -> None:
    words = ("cluster=l40s", "models=sdxl-mlperf", "trace.requests=20", "backend.service_factor=2")
    ((said, config),) = tried(*words).items()
    assert said == "with times 15.0 % longer (known to 15.0 %)"
    assert config["backend"]["service_factor"] == pytest.approx(2.3)


def test_live_run_has_no_counterfactual() -> None:
    assert counterfactuals({"models": [], "cache": {}}, configured("backend=live", "cluster=local")) == []


@pytest.mark.parametrize("more", [(), ("hits=declared", "hits.hit_rate=0.4", "hits.mean_k=12")])
def test_hit_rate_is_moved_by_ten_points_and_to_none(more: tuple[str, ...]) -> None:
    own = simulated(*CACHED, *more).summary["cache"]["hit_rate"]
    rates = [simulate(config).summary["cache"]["hit_rate"] for config in list(tried(*CACHED, *more).values())[:3]]
    assert rates == pytest.approx([own - 0.1, own + 0.1, 0.0], abs=0.07)
    assert rates[2] == 0.0


def test_reuse_of_patches_decides_what_patchedserve_serves() -> None:
    run, without = simulated(*PATCHED).summary, simulated(*PATCHED, "feature_cache=none").summary
    (words, config), *_ = tried(*PATCHED).items()
    assert simulate(config).summary["latency_s"] == without["latency_s"]
    said = rests_on(run, [(words, without), ("with nothing", run)])
    assert said.startswith("without reuse of patches: serves ")
    assert "with nothing" not in said, "what changes nothing is not named"


def test_what_decides_on_overload_comes_before_larger_changes() -> None:
    def summary(p95_s: float, verdict: str) -> dict[str, Any]:
        load = {"offered_rpm": 10.0, "served_rpm": 10.0, "verdict": verdict}
        return {"latency_s": {"p95": p95_s}, "load": load, "throughput_rpm": 10.0}

    base = summary(10.0, "below")
    others = [("a", summary(90.0, "below")), ("b", summary(11.0, "overloaded")), ("c", summary(12.0, "below"))]
    said = rests_on(base, others).split("; ")
    assert said[0].startswith("b: serves 10 of 10 a minute for 10 (overloaded)")
    assert said[1] == "a: p95 90 s for 10 s"
    assert len(said) == 2
    assert "none of what was tried" in rests_on(base, [("d", summary(10.1, "below"))])
