"""How SwiftDiffusion's numbers are measured, on made-up latencies."""

from pathlib import Path

import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs
from mezzotint.sim.papers.scorecard.measures.swiftdiffusion import over_baselines, per_gpu_rpm
from mezzotint.sim.papers.scorecard.study import load_study


def runs(latency_s: dict[tuple[str, int, int], float], experiment: str = "swiftdiffusion-figure11") -> Runs:
    """By system, ControlNets and LoRAs."""
    made = []
    for (system, nets, loras), seconds in latency_s.items():
        choices = {"system": system, "trace.controlnets": str(nets), "trace.loras": str(loras)}
        point = Point(experiment, choices, ())
        made.append((point, Finished(point, {}, Path("nowhere"), {"system": system, "latency_s": {"mean": seconds}})))
    return Runs(tuple(made))


@pytest.mark.parametrize(
    ("system", "gpus"),
    [
        ("diffusers", (1, 1, 1, 1)),
        ("swiftdiffusion", (1, 2, 3, 4)),  # a GPU for each ControlNet as a service
        ("katz", (2, 4, 6, 8)),  # and the two halves of the guidance apart
        ("distrifusion-add-ons", (2, 4, 8, 8)),
    ],
)
def test_throughput_counts_every_gpu_a_request_holds(system: str, gpus: tuple[int, ...]) -> None:
    for nets, held in enumerate(gpus):
        assert per_gpu_rpm(runs({(system, nets, 2): 3.0}), system, nets, 2) == pytest.approx(60 / (3.0 * held))


def test_best_baseline_has_the_most_images_per_gpu() -> None:
    seconds = {("swiftdiffusion", 1, 2): 2.0, ("diffusers", 1, 2): 8.0, ("nirvana-10", 1, 2): 6.0}
    assert over_baselines(runs({**seconds, ("nirvana-20", 1, 2): 5.0}), 1, 2) == pytest.approx(5.0 / (2.0 * 2))


def test_the_speedup_by_loras_is_of_plain_kernels_and_the_printed_seconds() -> None:
    """Figure 16's own diffusers has Katz's seconds of a LoRA, and one with ControlNets is another setting."""
    seconds = {("swiftdiffusion", 0, 1): 3.0, ("swiftdiffusion", 0, 2): 4.0, ("diffusers", 0, 2): 99.0}
    figure16 = runs(seconds, "swiftdiffusion-figure16-loras")
    theirs = {("diffusers", 0, 1): 6.0, ("diffusers", 0, 2): 10.0, ("diffusers", 1, 2): 99.0}
    printed = runs(theirs, "swiftdiffusion-printed-loras")
    entry = load_study("swiftdiffusion", quick=False).entry("S16")
    assert entry.evaluate(Runs((*figure16.outcomes, *printed.outcomes))) == 2.5
