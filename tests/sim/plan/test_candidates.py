"""Candidates of a plan: designs, kinds of GPUs, models and prices, also the user's own."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.backends.profile import shipped, within
from mezzotint.backends.scaling import ERROR
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.answer import Plan
from mezzotint.sim.plan.candidate import Candidate
from mezzotint.sim.plan.candidates import find_candidates
from mezzotint.sim.plan.options import Options
from mezzotint.sim.plan.traffic import find_traffic
from mezzotint.sim.run.config.choices import gpus

Ask = Callable[..., Plan]


def test_dollars_are_gpus_in_whole_instances_and_services(ask: Ask) -> None:
    designs = ["vanilla", "nirvana hits=nirvana"]
    plan = ask(model="nirvana-large", gpu=["a10g"], design=designs, rate_rpm=20.0, replications=1)
    for each in plan.clusters:
        services = 0.21 if each.candidate.design.startswith("nirvana") else 0.0
        assert each.usd_per_h == pytest.approx(2.036 * 4 * math.ceil(each.gpus / 4) + services)
        assert each.numbers["usd_per_image"] is not None


def test_cluster_of_two_kinds_costs_and_counts_both(ask: Ask) -> None:
    plan = ask(gpu=["h100-sxm+l40s"], replications=1)
    for each in plan.clusters:
        few = each.candidate.beside
        assert few is not None
        assert each.devices == few[1] + each.gpus
        assert each.usd_per_h == pytest.approx(3.99 * few[1] + 0.86 * each.gpus)
    assert {len(each.summary["gpu"]["by_kind"]) for each in plan.ranked} == {2}


def test_two_models_begin_on_the_two_kinds(ask: Ask, tmp_path: Path) -> None:
    (prices := tmp_path / "mi210.yaml").write_text("mi210: 1.0\n")
    options = {"model": "sd3.5-large", "gpu": ["mi210+a40"], "prices": prices, "rate_rpm": 2.0, "replications": 1}
    options["overrides"] = ["trace.requests=300", "trace.history=0"]
    plan = ask(design=["modm-fixed hits=modm"], target=["over 4x<10%"], **options)
    models = {row["gpu"]: row["role"] for row in plan.ranked[0].summary["models"]}
    assert models == {"mi210": "large", "a40": "small"}


def test_settings_of_a_design_are_candidates_of_their_own(ask: Ask) -> None:
    plan = ask(design=["vanilla models.large.steps=10,20"], target=["p95<30s"], rank=9)
    gpus = {each.result.candidate.design: each.result.gpus for each in plan.ranked}
    assert gpus["vanilla models.large.steps=10"] < gpus["vanilla models.large.steps=20"]


def test_kind_without_a_price_is_counted_and_stands_below_those_with_one(ask: Ask, tmp_path: Path) -> None:
    (prices := tmp_path / "mine.yaml").write_text("l4: 0.01\n")
    asked = {"gpu": ["l4", "l40s"], "max_gpus": 32, "rate_rpm": 20.0, "replications": 1}
    priced, unpriced = ask(**asked, prices=prices, rank=2), ask(**asked)
    assert [each.result.candidate.gpu for each in priced.ranked] == ["l4", "l40s"]
    assert [each.result.candidate.gpu for each in unpriced.ranked] == ["l40s", "l4"]
    assert unpriced.ranked[1].result.usd_per_h is None
    assert unpriced.ranked[1].result.gpus == priced.ranked[0].result.gpus, "a price changes no count"


def test_price_of_a_kind_is_said_to_be_none_of_its_forms(ask: Ask, tmp_path: Path) -> None:
    (prices := tmp_path / "mine.yaml").write_text("h100: 0.5\nh100-pcie: 1\n")
    notes = ask(gpu=["h100"], prices=prices, rate_rpm=6.0, replications=1).notes
    assert [note for note in notes if note.startswith("--prices")] == [
        f"--prices: h100 is the price of h100 alone, and {form} is a kind of its own; give it a line"
        for form in ("h100-nvl", "h100-sxm")
    ]


def test_case_of_names_does_not_matter(ask: Ask, tmp_path: Path) -> None:
    (prices := tmp_path / "mine.yaml").write_text("L40S: {usd_per_gpu_h: 0.5, date: 2026-11-01}\n")
    (best,) = ask(model="SDXL-MLPerf", gpu=["L40s"], prices=prices).ranked
    assert best.result.usd_per_h == 0.5 * best.result.gpus
    assert best.result.candidate.prices["l40s"].source == "mine.yaml, 2026-11-01"


def test_declared_scaling_plans_a_kind_without_a_profile_and_marks_it(ask: Ask) -> None:
    """Twice the seconds of the other kind need about twice its GPUs."""
    asked = {"model": "sdxl", "rate_rpm": 60.0, "replications": 1}
    plan = ask(gpu=["a10g", "l40s"], assume=["a10g=l40s*2"], rank=2, **asked)
    by_kind = {each.result.candidate.gpu: each.result for each in plan.ranked}
    assert by_kind["l40s"].gpus < by_kind["a10g"].gpus <= 2 * by_kind["l40s"].gpus
    assert by_kind["a10g"].cluster == f"{by_kind['a10g'].gpus} x a10g (scaled)"
    assert "scaled" not in by_kind["l40s"].cluster
    (scaled,) = (each for each in plan.ranked if each.result.candidate.gpu == "a10g")
    assert scaled.summary["models"][0]["basis"] == "scaled"
    assert scaled.error == ERROR
    assert any(
        note.startswith("seconds of sdxl-mlperf on a10g over those on l40s: 2.0; a factor") for note in plan.notes
    )


def test_kind_without_a_profile_is_refused_with_the_nearest_kinds_and_the_option(ask: Ask) -> None:
    with pytest.raises(ConfigError, match=r"sdxl-mlperf was measured on l4, .*: --assume a10g=l4 scales"):
        ask(model="sdxl", gpu=["a10g"])
    with pytest.raises(ConfigError, match=r"a10q is no kind of GPU; did you mean a10g\?"):
        ask(model="sdxl", gpu=["a10g"], assume=["a10q=l40s"])
    with pytest.raises(ConfigError, match=r"assume: a10g=l40: l40 is no kind of GPU; did you mean l40s\?"):
        ask(model="sdxl", gpu=["l4"], assume=["a10g=l40"])


MODEL = "large: {_target_: mezzotint.sim.core.model.Model, name: my-model, steps: 10, width: 1024, height: 1024}\n"
PROFILE = "schema: 1\nmodel: %s\ngpu: %s\nsource: made up\nstep:\n  - {width: 1024, height: 1024, seconds: %s}\n"
GPU = """count: 2
gpu: {_target_: mezzotint.sim.core.gpu.Gpu, name: my-gpu, active_w: 300, idle_w: 50, usd_per_gpu_h: .5, source: made up}
"""


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Path]:
    """Options that name the folders of an own model, an own GPU and profiles."""
    for name, text in {
        "conf/models/mine.yaml": MODEL,
        "conf/cluster/my-gpu.yaml": GPU,
        "profiles/a.yaml": PROFILE % ("my-model", "my-gpu", 0.2),
        "profiles/b.yaml": PROFILE % ("my-model", "l40s", 0.1),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return {"config_dir": tmp_path / "conf", "profiles": tmp_path / "profiles"}


def test_own_model_is_known_by_the_name_of_its_profile_too(own: dict[str, Path], tmp_path: Path) -> None:
    (named,), _ = candidates(tmp_path, "my-model", "my-gpu", design=["vanilla"], **own)
    assert (named.gpu, named.models) == ("my-gpu", "mine")


def test_own_model_on_an_own_gpu_is_planned_with_its_own_profile(own: dict[str, Path], ask: Ask) -> None:
    """Its step takes 0.2 s, so ten of them 2 s: two GPUs at least for 50 requests a minute."""
    options = {**own, "rank": 5, "rate_rpm": 50.0}
    plan = ask(model="mine", gpu=["my-gpu", "l40s", "h100-sxm"], **options)
    best, second = plan.ranked
    assert (best.result.candidate.gpu, best.result.candidate.models) == ("my-gpu", "mine")
    assert best.gpus_kept_busy == pytest.approx(50 / 60 * 2, rel=0.1)
    assert best.result.usd_per_h == 0.5 * best.result.gpus
    assert second.result.candidate.gpu == "l40s"
    (note,) = plan.notes
    assert note.startswith("left out: h100-sxm: no profile of my-model on h100-sxm; my-model was measured on l40s")
    both = ask(model="mine", gpu=["my-gpu+l40s"], **options).ranked[0].result
    assert both.usd_per_h == 0.5 * both.candidate.counts(both.gpus)["my-gpu"] + 0.86 * both.gpus


def test_model_on_an_engine_is_planned_if_it_is_named_in_full(ask: Ask) -> None:
    """Profiles of flux-dev-sglang are on more of these kinds than those of flux-dev."""
    options = {"gpu": ["h100", "h200-sxm"], "target": ["p95<60s"], "rate_rpm": 10.0, "replications": 1}
    for model, steps in (("flux-dev", 28), ("flux-dev-sglang", 50)):
        served = {row["model"]: row["steps"] for row in ask(model=model, **options).ranked[0].summary["models"]}
        assert served == {model: steps}


def test_own_profile_replaces_the_shipped_one_of_the_model_and_gpu(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "slow.yaml").write_text(PROFILE % ("sdxl-mlperf", "l40s", 0.5))
    own = ask(profiles=tmp_path, target=["p95<30s"], max_gpus=64).ranked[0]
    assert own.gpus_kept_busy == pytest.approx(120 / 60 * 20 * 0.5, rel=0.1)
    assert own.gpus_kept_busy > 4 * ask().ranked[0].gpus_kept_busy


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("l40: 0.5", "prices.yaml: l40 is no kind of GPU; did you mean l40s?"),
        ("zzz: 0.5", "prices.yaml: zzz is no kind of GPU; `mezzotint list cluster` shows them"),
        ("l40s: 1\nL40S: 2", "found L40S twice, since case does not matter; keep one"),
        ("l40s: {usd_per_gpu_h: 1, date: 2026}", "l40s.date: input should be a valid date, found 2026"),
        ("l40s: [", "prices.yaml"),
        ("l40s: true", "found True"),
        ("l40s: 1:30", "line 1: 1:30 is no plain number"),
        ("l40s: '0.5'", "found '0.5'"),
        ("l40s: -1", "greater than 0, found -1"),
        ("l40s: .nan", "found nan"),
        ("l40s: {usd: 1}", "l40s.usd_per_gpu_h: field required"),
        ("l40s: 1\nl40s: 2", "line 2: 'l40s' is there twice"),
        ("- l40s", "found ['l40s']"),
        ("", "found None"),
    ],
)
def test_price_that_is_none_is_refused_by_its_kind(prices: str, message: str, tmp_path: Path, ask: Ask) -> None:
    (file := tmp_path / "prices.yaml").write_text(prices)
    with pytest.raises(ConfigError) as refused:
        ask(prices=file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "sd9"}, "--model sd9: is no model"),
        ({"design": [""]}, "--design: found nothing, expected a choice of system="),
        ({"design": ["moon"]}, "moon"),
        ({"design": ["vanilla cluster.count=3"]}, "cluster.count=3: the plan sets it"),
        ({"overrides": ["~cluster"]}, "~cluster: the plan sets it"),
        ({"overrides": ["+seed=4"]}, r"\+seed=4: the plan sets it"),
        ({"gpu": ["l40s+h100+l4"]}, "found 3 kinds"),
        ({"gpu": ["l40s+L40S"]}, r"--gpu l40s\+L40S: found 2 kinds, expected one, or two different ones"),
        ({"gpu": ["L40"]}, r"--gpu L40: is no kind of GPU; did you mean l40s\?"),
        ({"gpu": ["mi210"], "model": "wan2.2"}, "left out: mi210: no profile of wan2.2"),
        ({"rate_rpm": None, "overrides": ["arrivals=saturation"]}, "has no rate to scale"),
    ],
)
def test_option_that_cannot_be_planned_is_refused_before_a_run(
    options: dict[str, Any], message: str, tmp_path: Path, ask: Ask
) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(**options, runs=tmp_path / "runs")
    assert not list(tmp_path.glob("runs/*.json"))


def candidates(folder: Path, model: str, gpu: str, **options: Any) -> tuple[list[Candidate], list[str]]:
    asked = Options(["p95<10s"], [gpu], model=model, rate_rpm=20.0, runs=folder / "runs", **options)
    traffic = find_traffic(asked)
    return find_candidates(asked, traffic, [*asked.overrides, *traffic.words])


def test_equal_compositions_are_one_candidate(tmp_path: Path) -> None:
    """Vanilla does not use the small model that three choices of models= differ in; a default is no setting."""
    designs = ["vanilla", "nirvana", "nirvana cache.capacity=1500000"]
    found, notes = candidates(tmp_path, "sd3.5-large", "a40", design=designs)
    assert [one.design for one in found] == ["nirvana", "vanilla"]
    assert "nirvana cache.capacity=1500000 is the same as nirvana, and planned once" in notes


def test_every_profile_with_steps_is_of_a_kind_that_a_plan_can_name() -> None:
    """But of the GPU beside a slow host, which is there to show what a host costs."""
    assert {profile.gpu for profile in within(shipped()) if profile.step} - {*gpus()} == {"h100-slow-host"}


def test_kind_of_a_gpu_includes_our_own_measurements_of_it(tmp_path: Path) -> None:
    """Published times of the H100 are of 1024x1024 alone; ours cover the sizes of this log."""
    (log := tmp_path / "log.csv").write_text("prompt,width,height,steps\n" + "a,512,512,20\nb,768,768,28\n" * 20)
    found, notes = candidates(tmp_path, "flux-dev", "h100", trace=log, design=["vanilla", "modm-fixed hits=modm"])
    assert {one.gpu for one in found} == {"h100-diffusers"}
    assert any(note.startswith("left out: h100: ") and "outside the measured grid" in note for note in notes)
    # Each choice of models= with a small one has the same large model, and the requests their own sizes.
    assert [one.design for one in found].count("vanilla") == 1


def test_kind_with_another_variant_of_the_model_says_how_it_is_planned(tmp_path: Path) -> None:
    asked = Options(["p95<10s"], ["l40s", "h100", "h200"], model="sdxl", rate_rpm=20.0, design=["vanilla"])
    traffic = find_traffic(asked)
    found, notes = find_candidates(asked, traffic, list(traffic.words))
    assert {one.models for one in found} == {"sdxl-mlperf"}
    assert any(
        "on h100-diffusers, which has one of sdxl: give --gpu h100-diffusers alone to plan that" in note
        for note in notes
    )
    alone, _ = candidates(tmp_path, "sdxl", "h100-diffusers", design=["vanilla"])
    assert {(one.gpu, one.models) for one in alone} == {("h100-diffusers", "sdxl")}


def test_work_is_model_steps_size_and_bits_and_each_work_has_its_baseline(tmp_path: Path) -> None:
    """FLUX alone makes 28 steps, and beside SDXL or SANA 50, as MoDM's thresholds are for."""
    found, _ = candidates(tmp_path, "flux-dev", "mi210", design=["nirvana", "modm-fixed hits=modm"])
    works = {one.work for one in found}
    assert {work.split(", ")[2] for work in works} == {"28 steps", "50 steps"}
    assert {one.work for one in found if one.is_baseline} == works


def test_degrees_of_the_profile_are_default_designs_in_whole_groups(tmp_path: Path) -> None:
    found, _ = candidates(tmp_path, "wan2.2", "ascend-910b2")
    steps = {one.design: one.step for one in found}
    expected = {"vanilla": 1, "xdit group_policy.degree=2": 2, "xdit group_policy.degree=4": 4, "edf-best-fit": 1}
    assert steps == expected


def test_batch_server_takes_the_largest_batch_of_the_profile(tmp_path: Path) -> None:
    designs = {gpu: [one.design for one in candidates(tmp_path, "sdxl-mlperf", gpu)[0]] for gpu in ("l40s", "b200")}
    assert [any(name.startswith("batch-server") for name in designs[gpu]) for gpu in ("l40s", "b200")] == [False, True]


@pytest.mark.parametrize(
    ("gpu", "size", "used"), [("h100", 512, True), ("h100", 64, False)], ids=["covered", "outside the grid"]
)
def test_sizes_of_a_log_without_prompts_are_used_where_the_profile_has_them(
    gpu: str, size: int, used: bool, tmp_path: Path
) -> None:
    rows = "".join(f"{10 * at},{size},{size}\n" for at in range(30))
    (log := tmp_path / "log.csv").write_text(f"arrival_s,width,height\n{rows}")
    found, notes = candidates(tmp_path, "flux-dev-elastic", gpu, trace=log)
    assert not {one.design for one in found} & {"nirvana", "modm-quality", "modm-throughput"}
    assert any(f"{size}x{size}" in one.work for one in found) is used
    said = "are used; shapes=model takes" if used else "are not used, but those of flux-dev-elastic"
    assert any(f"its own width, height {said}" in note for note in notes)
    _, notes = candidates(tmp_path, "flux-dev-elastic", gpu, trace=log, design=["nirvana"])
    assert any("nirvana on h100: log.csv has no prompts to find in a cache" in note for note in notes)
