"""The page of a plan: its sentence, its warnings and what it draws follow from the answer."""

import re
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf

from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.metrics.cost import Price
from mezzotint.sim.plan.answer import NUMBERS, ClusterResult, Plan, PlanSpec, Ranked, Saving, Warming
from mezzotint.sim.plan.candidate import Candidate
from mezzotint.sim.plan.page import as_json, columns, details, figure, html, sentence, table_lines, warnings
from mezzotint.sim.plan.target import parse_target
from mezzotint.sim.report.compare import Spread

GPU = Gpu("l40s", None, None, "made up", 1.0)
CANDIDATE = Candidate(
    "vanilla", "l40s", "sdxl", None, {"l40s": Price(1.0, "made up")}, False, {"l40s": GPU}, {}, OmegaConf.create(),
    "arrivals.rate_rpm", 20.0, 1.0, work="sdxl, 20 steps",
)  # fmt: skip
SPEC = PlanSpec("sdxl", "20 requests per minute", (parse_target("p95<10s"),), 1, 6, 64, 5)
MODEL: dict[str, Any] = {
    "role": "large", "model": "sdxl", "width": 1024, "height": 1024, "steps": 20, "precision": "fp8",
    "basis": "measured", "service_error": 0.05, "source": "made up",
}  # fmt: skip
SUMMARY: dict[str, Any] = {
    "models": [MODEL], "assumptions": [], "trace": {"name": "log.csv"}, "slo": {}, "throughput_rpm": 19.0,
    "requests": {"arrived": 10, "completed": 10, "discarded": 0, "failed": 0}, "load": {
        "offered_rpm": 20.0, "served_rpm": 19.0, "growth_per_hour": 0.0, "verdict": "below", "note": None,
    },
}  # fmt: skip


def ranked(gpus: int = 2, candidate: Candidate = CANDIDATE, **changes: Any) -> Ranked:
    numbers: dict[str, float | None] = {
        **dict.fromkeys(NUMBERS, 1.0), "latency_s.p95": 4.9, "latency_s.p99": 1234.5, "slo.2x.violation_rate": 0.0,
    }  # fmt: skip
    numbers |= {name: changes.pop(name) for name in list(changes) if name in numbers}
    model = MODEL | {name: changes.pop(name) for name in list(changes) if name in ("basis", "steps", "frames")}
    usd = candidate.usd_per_h(gpus)
    result = ClusterResult(candidate, gpus, True, changes.pop("undecided", False), 2, usd, numbers)
    made = Ranked(result, 1.5, (), SUMMARY | {"models": [model]}, (1.2, 1.35), 0.05, True, gpus)
    return replace(made, **changes)


def plan(*clusters: Ranked, targets: Sequence[str] = ("p95<10s",)) -> Plan:
    spec = replace(SPEC, targets=tuple(map(parse_target, targets)))
    return Plan(spec, clusters, (), tuple(each.result for each in clusters), (), 10)


UNPRICED = replace(CANDIDATE, gpu="l4", prices={}, _kinds={"l4": replace(GPU, name="made up", usd_per_gpu_h=None)})


def cells(answer: Plan) -> dict[str, list[str]]:
    return {column.title: [column.text(each) for each in answer.ranked] for column in columns(answer)}


def test_number_that_is_not_known_is_a_dash_and_not_in_the_sentence() -> None:
    unknown = ranked(usd_per_image=None, quality=None, gpus_if_slower=None, headroom=(4.0, None))
    answer = plan(unknown, ranked())
    assert "per 1,000 images" not in sentence(answer)
    assert "misses" not in sentence(answer)
    shown = cells(answer)
    assert shown["$ per 1,000 images"] == ["–", "1,000.00"]
    assert shown["quality"] == ["–", "1.00"]
    assert shown["load up to"] == ["4x or more", "1.2x"]
    assert shown["GPUs at error"] == ["over 7", "2"]


def test_ranked_cluster_is_drawn_however_much_slower_than_the_fastest() -> None:
    fast = replace(CANDIDATE, gpu="h100-sxm", prices={}, _kinds={"h100-sxm": GPU})
    answer = plan(ranked(p95_s=50.0), ranked(candidate=fast, p95_s=1.0))
    shown = figure(answer)
    assert shown is not None
    values = pd.read_csv(StringIO(shown["vconcat"][0]["data"]["values"]))
    assert values["p95"].tolist() == [50.0, 1.0]
    assert "vanilla on l40s" in html(answer, "mezzotint plan")


@pytest.mark.parametrize(
    ("target", "drawn", "scale", "shown"),
    [
        ("p99<2000s", 1234.5, "log", "1,234"),
        ("p95<10s", 4.9, "log", "4.90"),
        ("over 2x<5%", 0.0, "linear", "0.00"),
    ],
)
def test_the_asked_number_is_drawn_with_its_line_and_tabled(target: str, drawn: float, scale: str, shown: str) -> None:
    answer = plan(ranked(), targets=[target])
    spec = figure(answer)
    assert spec is not None
    chart = spec["vconcat"][0]
    encoded = chart["layer"][0]["encoding"]["y"]
    assert pd.read_csv(StringIO(chart["data"]["values"]))[encoded["field"]].tolist() == [drawn]
    assert encoded["scale"]["type"] == scale
    (line,) = (layer["data"]["values"] for layer in chart["layer"] if layer["mark"]["type"] == "rule")
    assert [(row["at"], row["label"]) for row in line] == [(answer.spec.targets[0].bound, target)]
    assert shown in [texts[0] for texts in cells(answer).values()]


def test_every_cell_of_the_page_has_a_heading_and_every_heading_a_scope() -> None:
    page = html(plan(ranked(), ranked(3)), "mezzotint plan")
    tags = re.findall(r"<(t[hd])\b([^>]*)>", page.partition("<h2>")[2].partition("<!--")[0])
    assert tags
    assert all("scope=" in rest for tag, rest in tags if tag == "th")
    assert all("data-title=" in rest for tag, rest in tags if tag == "td")
    assert len(columns(plan(ranked(), targets=["p95<1s", "over 2x<5%", "p99<3s"]))) < 12


def test_labels_of_the_headroom_tell_candidates_apart() -> None:
    other = replace(CANDIDATE, design="vanilla models.large.steps=20")
    spec = figure(plan(ranked(), ranked(candidate=other), ranked()))
    assert spec is not None
    (rows,) = (part["data"]["values"] for part in spec["vconcat"] if "misses" in str(part["data"]["values"]))
    labels = pd.read_csv(StringIO(rows))["cluster"].tolist()
    assert [label.partition(" (")[0] for label in labels] == ["1. vanilla", "2. vanilla steps=20", "3. vanilla"]


def test_cluster_without_a_price_is_counted_and_drawn_by_its_gpus() -> None:
    mixed, alone = plan(ranked(), ranked(5, candidate=UNPRICED)), plan(ranked(5, candidate=UNPRICED))
    assert cells(mixed)["$ per hour"] == ["2.00", "no price"]
    assert any(text.startswith("No price is known of l4.") for text in warnings(mixed))
    assert "no price being known" in sentence(alone)
    assert as_json(alone, "")["ranked"][0]["usd_per_h"] is None
    for answer, axis in ((mixed, "usd"), (alone, "gpus")):
        spec = figure(answer)
        assert spec is not None
        assert spec["vconcat"][0]["layer"][0]["encoding"]["x"]["field"] == axis


def test_unlike_work_is_said_and_ranked_apart() -> None:
    more_steps = replace(CANDIDATE, work="sdxl, 50 steps")
    answer = plan(ranked(), ranked(candidate=more_steps, steps=50), ranked())
    assert any("do not do the same work" in text for text in warnings(answer))
    page = html(answer, "mezzotint plan")
    assert re.findall(r'scope="row">(\d)\. ', page)[:3] == ["1", "2", "1"]
    assert all(f'scope="rowgroup">{work}<' in page for work in ("sdxl, 20 steps", "sdxl, 50 steps"))
    lines = table_lines(answer)
    assert "work: sdxl, 1024x1024, 20 steps, fp8" in lines
    assert [lines.index(f"sdxl, {steps} steps:") - len(lines) for steps in (20, 50)] == [-5, -2]
    assert "Next: 2 x l40s with vanilla" in sentence(answer)
    assert "Next" not in sentence(plan(ranked(), ranked(candidate=more_steps)))


def test_saving_and_the_empty_cache_stand_beside_the_cluster() -> None:
    cached = replace(CANDIDATE, design="nirvana", cache="warm")
    saves = ranked(
        candidate=cached, saving=Saving(0.65, 1), warming=Warming(1500, 2.5, 12.0), from_empty=ranked(3).result
    )
    answer = plan(saves, ranked())
    assert cells(answer)["saving"] == ["0.65", "baseline"]
    assert cells(answer)["cache empty"] == ["3 x l40s", "–"]
    assert "Beside the baseline it saves $0.65 per hour and 1 GPU." in sentence(answer)
    assert "until it is (1,500 requests, 2.5 h, $12.00 more in all) it takes 3 x l40s." in sentence(answer)
    assert as_json(answer, "")["ranked"][0]["from_empty"]["count"] == 3
    same = replace(answer.ranked[0], from_empty=ranked(2).result)
    assert "It also meets the target while its cache is empty." in sentence(plan(same))
    assert len(columns(answer)) < 12


def test_difference_beside_the_first_stands_among_the_details() -> None:
    answer = plan(ranked(), ranked(3, beside_first={"latency_s.p95": Spread(1.25, 0.5, 2.0, 3)}))
    (column,) = [each for each in details(answer) if each.title == "p95 less that of the first"]
    assert [column.text(each) for each in answer.ranked] == ["–", "1.25 (0.5 to 2)"]
    differences = [each["beside_first"] for each in as_json(answer, "")["ranked"]]
    assert differences == [None, {"latency_s.p95": {"mean": 1.25, "low": 0.5, "high": 2.0, "count": 3}}]


def test_videos_are_called_videos() -> None:
    answer = plan(ranked(frames=81))
    assert "per 1,000 videos" in sentence(answer)
    assert "images" not in " ".join(cells(answer))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "if its service took 5\N{NO-BREAK SPACE}% longer (the error that its times are known to), it still does"),
        ({"gpus_if_slower": 3, "error": 0.4}, "40\N{NO-BREAK SPACE}% longer"),
        ({"gpus_if_slower": 3, "error": 0.4}, "3 GPUs would be needed"),
        ({"gpus_if_slower": None, "error": 0.4}, "more than 7 GPUs would be needed"),
        ({"error_is_stated": False}, "(an example, as no error is stated)"),
    ],
)
def test_sentence_says_how_well_the_times_are_known(changes: dict[str, Any], words: str) -> None:
    assert words in sentence(plan(ranked(**changes)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"basis": "assumed"}, "were not measured"),
        ({"quality": None}, "Nobody has published the image quality"),
        ({"not_monotone": (3, 5)}, "3, 5 miss the target"),
        ({"undecided": True}, "1 of 1 clusters lie so close to the target that 6 seeds"),
    ],
)
def test_page_warns_of_what_makes_the_first_cluster_unsure(changes: dict[str, Any], words: str | None) -> None:
    answer = plan(ranked(**changes))
    texts = warnings(answer)
    assert len(texts) == (words is not None)
    assert all(words is not None and words in text for text in texts)
