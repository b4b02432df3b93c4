"""The page of a plan: its sentence and its warnings follow from the answer."""

from dataclasses import replace
from typing import Any

import pytest
from omegaconf import OmegaConf

from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import Price
from mezzotint.sim.plan.clusters.answer import NUMBERS, Measured, Plan, Question, Ranked, Unmet, needed
from mezzotint.sim.plan.clusters.candidates import Candidate
from mezzotint.sim.plan.clusters.page import draw, html, row, sentence, warnings
from mezzotint.sim.plan.clusters.target import parse_target

GPU = Gpu("l40s", None, None, "made up", 1.0)
CANDIDATE = Candidate(
    "vanilla", "l40s", "sdxl", None, {"l40s": Price(1.0, "made up")}, False, {"l40s": GPU}, {}, OmegaConf.create(),
    "arrivals.rate_rpm", 20.0, 1.0,
)  # fmt: skip
QUESTION = Question("sdxl", "20 requests per minute", (parse_target("p95<10s"),), 1, 6, 64, 5)
MODEL: dict[str, Any] = {"model": "sdxl", "basis": "measured", "service_error": None}


def ranked(gpus: int = 2, basis: str = "measured", **changes: Any) -> Ranked:
    numbers: dict[str, float | None] = dict.fromkeys(NUMBERS, 1.0)
    numbers |= {name: changes.pop(name) for name in list(changes) if name in NUMBERS}
    measured = Measured(CANDIDATE, gpus, True, False, 2, float(gpus), numbers)
    made = Ranked(measured, 1.5, (), {"models": [MODEL | {"basis": basis}], "assumptions": []}, (1.2, 1.35), gpus)
    return replace(made, **changes)


def plan(*found: Ranked, unmet: tuple[Unmet, ...] = ()) -> Plan:
    return Plan(QUESTION, found, unmet, tuple(each.measured for each in found), (), 10)


def test_sentence_names_cluster_load_target_price_and_headroom() -> None:
    text = sentence(plan(ranked(), ranked(3)))
    assert text.startswith("2 x l40s with vanilla serves 20 requests per minute with p95<10s for $2.00 per hour, $1000")
    assert "carries 1.2 times the load and misses the target at 1.35 times" in text
    assert text.endswith("Next: 3 x l40s with vanilla, $3.00 per hour.")


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(2, "it still does"), (3, "3 GPUs would be needed"), (None, "more than four GPUs more would be needed")],
)
def test_sentence_says_what_a_slower_service_takes(gpus: int | None, words: str) -> None:
    assert f"if the service took 3% longer, {words}." in sentence(plan(ranked(gpus_if_slower=gpus)))


def test_number_that_is_not_known_is_a_dash_and_not_in_the_sentence() -> None:
    found = ranked(usd_per_image=None, energy_j_per_image=None, quality=None, gpus_if_slower=None, headroom=(4.0, None))
    assert "per 1,000 images" not in sentence(plan(found))
    assert "misses" not in sentence(plan(found))
    assert row(found).count("-") == 4
    assert "4x or more" in row(found)


def test_ranked_cluster_is_drawn_however_much_slower_than_the_fastest() -> None:
    fast = replace(CANDIDATE, gpu="h100-sxm", prices={}, _kinds={"h100-sxm": GPU})
    slow, other = ranked(p95_s=50.0), ranked(p95_s=1.0)
    answer = plan(slow, replace(other, measured=replace(other.measured, candidate=fast)))
    stars = [line for line in draw(answer).axes[0].lines if line.get_marker() == "*"]
    assert [line.get_ydata()[0] for line in stars] == [50.0, 1.0]
    assert "vanilla with sdxl on l40s" in html(answer, "mezzotint plan")


def test_sure_answer_has_no_warning() -> None:
    assert warnings(plan(ranked())) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"basis": "assumed"}, "were not measured"),
        (
            {"error": 0.15, "gpus_if_error": 3},
            "known to 15.0% only. If they were that much longer, it would take 3",
        ),
        ({"error": 0.15}, "it would take more than 6 GPUs"),
        ({"quality": None}, "Nobody has published the image quality"),
        ({"not_monotone": (3, 5)}, "More GPUs are not always better here: 3, 5 miss the target"),
    ],
)
def test_page_warns_of_what_makes_the_first_cluster_unsure(changes: dict[str, Any], words: str) -> None:
    (found,) = warnings(plan(ranked(**changes)))
    assert words in found


def test_page_counts_the_clusters_that_no_seed_decided() -> None:
    found = ranked()
    unsure = replace(found, measured=replace(found.measured, is_open=True))
    assert warnings(plan(unsure))[-1].startswith("1 of 1 clusters lie so close to the target that 6 seeds")


def test_sentence_without_a_cluster_gives_the_reasons() -> None:
    reason = Unmet(CANDIDATE, "infeasible", "capacity binds")
    assert sentence(plan(unmet=(reason,))).endswith("vanilla with sdxl on l40s: capacity binds.")
    assert sentence(plan()).endswith("No candidate could run.")


@pytest.mark.parametrize(
    ("served_rpm", "per_hour", "expected"),
    [(10.0, 600.0, 4.0), (10.0, -5.0, 2.0), (0.0, 600.0, 3.0), (10.0, None, 3.0)],
)
def test_growing_backlog_needs_gpus_in_the_ratio_of_arrivals_to_images(
    served_rpm: float, per_hour: float | None, expected: float
) -> None:
    backlog = {"grows": True, "per_hour": per_hour}
    assert needed({"backlog": backlog, "throughput_until_last_arrival_rpm": served_rpm}, 2) == pytest.approx(expected)


@pytest.mark.parametrize(("busy", "expected"), [(0.25, 0.5), (None, 2.0)])
def test_stable_cluster_needs_its_busy_gpus(busy: float | None, expected: float) -> None:
    assert needed({"backlog": {"grows": False}, "gpu": {"busy_fraction": busy}}, 2) == expected
