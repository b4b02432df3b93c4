"""The page of a plan: its sentence, its warnings and what it draws follow from the answer."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf

from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import Price
from mezzotint.sim.plan.answer import NUMBERS, ClusterResult, Plan, PlanSpec, Ranked
from mezzotint.sim.plan.candidates import Candidate
from mezzotint.sim.plan.page import figure, html, row, sentence, warnings
from mezzotint.sim.plan.target import parse_target

GPU = Gpu("l40s", None, None, "made up", 1.0)
CANDIDATE = Candidate(
    "vanilla", "l40s", "sdxl", None, {"l40s": Price(1.0, "made up")}, False, {"l40s": GPU}, {}, OmegaConf.create(),
    "arrivals.rate_rpm", 20.0, 1.0,
)  # fmt: skip
SPEC = PlanSpec("sdxl", "20 requests per minute", (parse_target("p95<10s"),), 1, 6, 64, 5)
MODEL: dict[str, Any] = {"model": "sdxl", "basis": "measured", "service_error": None}


def ranked(gpus: int = 2, basis: str = "measured", **changes: Any) -> Ranked:
    numbers: dict[str, float | None] = dict.fromkeys(NUMBERS, 1.0)
    numbers |= {name: changes.pop(name) for name in list(changes) if name in NUMBERS}
    result = ClusterResult(CANDIDATE, gpus, True, changes.pop("undecided", False), 2, float(gpus), numbers)
    made = Ranked(result, 1.5, (), {"models": [MODEL | {"basis": basis}], "assumptions": []}, (1.2, 1.35), gpus)
    return replace(made, **changes)


def plan(*clusters: Ranked) -> Plan:
    return Plan(SPEC, clusters, (), tuple(each.result for each in clusters), (), 10)


def test_number_that_is_not_known_is_a_dash_and_not_in_the_sentence() -> None:
    cluster = ranked(
        usd_per_image=None, energy_j_per_image=None, quality=None, gpus_if_slower=None, headroom=(4.0, None)
    )
    assert "per 1,000 images" not in sentence(plan(cluster))
    assert "misses" not in sentence(plan(cluster))
    assert row(cluster).count("-") == 4
    assert "4x or more" in row(cluster)


def test_ranked_cluster_is_drawn_however_much_slower_than_the_fastest() -> None:
    fast = replace(CANDIDATE, gpu="h100-sxm", prices={}, _kinds={"h100-sxm": GPU})
    slow, other = ranked(p95_s=50.0), ranked(p95_s=1.0)
    answer = plan(slow, replace(other, result=replace(other.result, candidate=fast)))
    shown = figure(answer)
    assert shown is not None
    values = pd.read_csv(StringIO(shown["vconcat"][0]["data"]["values"]))
    assert values["p95"].tolist() == [50.0, 1.0]
    assert "vanilla with sdxl on l40s" in html(answer, "mezzotint plan")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"basis": "assumed"}, "were not measured"),
        ({"error": 0.15, "gpus_if_error": 3}, "it would take 3 GPUs"),
        ({"error": 0.15}, "it would take more than 6 GPUs"),
        ({"quality": None}, "Nobody has published the image quality"),
        ({"not_monotone": (3, 5)}, "3, 5 miss the target"),
        ({"undecided": True}, "1 of 1 clusters lie so close to the target that 6 seeds"),
    ],
)
def test_page_warns_of_what_makes_the_first_cluster_unsure(changes: dict[str, Any], words: str | None) -> None:
    texts = warnings(plan(ranked(**changes)))
    assert len(texts) == (words is not None)
    assert all(words is not None and words in text for text in texts)
