"""`mezzotint plan`: against exhaustive search, queueing theory and itself."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.clusters import command, trials
from mezzotint.sim.plan.clusters.answer import Plan, front
from mezzotint.sim.plan.clusters.command import Options, answered
from mezzotint.sim.plan.clusters.page import as_json

REQUESTS = 1500
SDXL = ("--model", "sdxl-mlperf", "--gpu", "h100-sxm", "--gpu", "l40s")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of runs that the tests share."""
    return tmp_path_factory.mktemp("kept")


def ask(tmp_path: Path, **options: Any) -> Plan:
    """Answer a plan on a short built-in trace; its runs are kept in ``tmp_path``."""
    given: dict[str, Any] = {
        "target": ["p95<10s"],
        "model": "sdxl-mlperf",
        "gpu": ["h100-sxm", "l40s"],
        "design": ["vanilla"],
        "rate_rpm": 120.0,
        "max_gpus": 16,
        "replications": 3,
        "rank": 1,
        "runs": tmp_path / "runs",
        "overrides": [f"trace.requests={REQUESTS}", "trace.history=0"],
    }
    return answered(Options(**given | options))


def sizes(plan: Plan) -> dict[tuple[str, str], int]:
    return {(each.measured.candidate.design, each.measured.candidate.gpu): each.measured.gpus for each in plan.ranked}


def md_c_p95_s(rate_per_s: float, service_s: float, servers: int, seed: int, customers: int) -> float:
    """Return p95 of the latency of M/D/c, first come, first served.

    With a constant service time customers leave in the order in which they came, so each takes the server of the one
    ``servers`` before it: W_n = max(0, W_(n-c) + D - (A_n - A_(n-c))).
    """
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, customers))
    latency_s = np.empty(customers)
    for first in range(servers):
        own = arrival_s[first::servers]
        walk = np.concatenate([[0.0], np.cumsum(service_s - np.diff(own))])
        latency_s[first::servers] = walk - np.minimum.accumulate(walk) + service_s
    return float(np.percentile(latency_s, 95))


@pytest.mark.parametrize(("rate_rpm", "limit_s"), [(90.0, 10.0), (200.0, 6.0), (400.0, 5.0)])
def test_vanilla_takes_the_gpus_of_m_d_c(rate_rpm: float, limit_s: float, kept: Path) -> None:
    plan = ask(kept, gpu=["l40s"], rate_rpm=rate_rpm, target=[f"p95<{limit_s}s"], max_gpus=64)
    (best,) = plan.ranked
    alone = ask(kept, gpu=["l40s"], rate_rpm=0.01, target=["max<1000s"]).ranked[0]
    service_s = alone.measured.numbers["p50_s"]
    assert service_s is not None
    expected = next(
        servers
        for servers in range(math.ceil(rate_rpm / 60 * service_s), 64)
        if np.mean([md_c_p95_s(rate_rpm / 60, service_s, servers, seed, 20 * REQUESTS) for seed in range(5)]) <= limit_s
    )
    assert best.measured.gpus == expected


def test_plan_agrees_with_exhaustive_search_in_a_fifth_of_its_runs(kept: Path) -> None:
    plan = ask(kept, design=["vanilla", "nirvana hits=nirvana"], rank=2)
    costs = {}
    for each in {one.candidate for one in plan.clusters} | {one.candidate for one in plan.unmet}:
        for gpus in range(1, 17):
            made = trials.Trials(kept / "runs", 1, lambda: None)
            asked = [trials.Trial(each, gpus, seed) for seed in (1, 2, 3)]
            found = [summary for summary in made.measure(asked).values() if not isinstance(summary, str)]
            late = [plan.question.targets[0].ratio(summary) for summary in found]
            if not any(summary["backlog"]["grows"] for summary in found) and np.mean(late) <= 1:
                costs[each.design, each.gpu] = each.usd_per_h(gpus), gpus
                break
    cheapest = sorted(costs, key=lambda name: costs[name][0])[: len(plan.ranked)]
    assert [(one.measured.candidate.design, one.measured.candidate.gpu) for one in plan.ranked] == cheapest
    assert sizes(plan) == {name: costs[name][1] for name in cheapest}
    searched = sum(each.replications for each in plan.clusters)
    assert searched <= 4 * 16 * 3 / 5


def test_winner_meets_the_target_with_other_seeds_and_one_gpu_fewer_does_not(kept: Path) -> None:
    (best,) = ask(kept, gpu=["l40s"], overrides=["trace.requests=4000", "trace.history=0"]).ranked
    candidate, gpus = best.measured.candidate, best.measured.gpus
    made = trials.Trials(kept / "runs", 1, lambda: None)
    for count, meets in ((gpus, True), (gpus - 1, False)):
        found = made.measure([trials.Trial(candidate, count, seed) for seed in (11, 12, 13)]).values()
        late = [math.inf if isinstance(summary, str) else summary["latency_s"]["p95"] for summary in found]
        assert bool(np.mean(late) <= 10) is meets


def test_kept_run_that_was_changed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Edited, cut, in the place of another run, or in the form of an earlier version."""
    ask_again = partial(ask, gpu=["l40s"], overrides=["trace.requests=300", "trace.history=0"])
    whole = as_json(ask_again(tmp_path), "plan")
    before = {path: path.read_bytes() for path in (tmp_path / "runs").glob("*.json")}
    first, second, *_ = sorted(before)
    content = json.loads(before[first])["content"]
    edited = json.dumps({**json.loads(before[first]), "content": {**content, "latency_s": {"p50": 0.0}}}).encode()
    for other in (edited, before[first][:-9], before[second], json.dumps(content).encode(), b"5", b"{}"):
        first.write_bytes(other)
        capsys.readouterr()
        assert as_json(ask_again(tmp_path), "plan") == whole
        assert f"warning: {first}: is damaged or from elsewhere; made again\n" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in before} == before
    monkeypatch.setattr(trials, "simulate", None)
    assert as_json(ask_again(tmp_path), "plan") == whole


def test_interrupted_plan_goes_on_and_runs_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_again = partial(ask, gpu=["l40s"], overrides=["trace.requests=300", "trace.history=0"])
    whole = as_json(ask_again(tmp_path / "whole"), "plan")
    made, simulate, stop = [], trials.simulate, [7]

    def counted(config: Any) -> Any:
        if stop[0] == 0:
            raise KeyboardInterrupt
        stop[0] -= 1
        made.append(json.dumps(config, sort_keys=True, default=str))
        return simulate(config)

    monkeypatch.setattr(trials, "simulate", counted)
    for rest in (3, 1000):
        with pytest.raises(KeyboardInterrupt):
            ask_again(tmp_path / "parts")
        stop[0] = rest
    assert as_json(ask_again(tmp_path / "parts"), "plan") == whole
    assert len(made) == len(set(made))
    count = len(made)
    assert as_json(ask_again(tmp_path / "parts"), "plan") == whole
    assert len(made) == count, "a repeated question is answered without a run"


def test_more_load_never_makes_the_plan_cheaper(kept: Path) -> None:
    costs = [ask(kept, gpu=["l40s"], rate_rpm=rate).ranked[0].measured.usd_per_h for rate in (30.0, 100.0, 200.0)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_dearer_gpu_never_rises_in_the_ranking(kept: Path, tmp_path: Path) -> None:
    ranks = []
    for usd in (0.1, 50.0):
        prices = tmp_path / "prices.yaml"
        prices.write_text(f"l40s: {usd}\n")
        kinds = [each.measured.candidate.gpu for each in ask(kept, prices=prices, rank=2).ranked]
        ranks.append(kinds.index("l40s") if "l40s" in kinds else len(kinds))
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]


def test_dollars_are_gpus_in_whole_instances_and_services(kept: Path) -> None:
    plan = ask(
        kept,
        model="nirvana-large",
        gpu=["a10g"],
        design=["vanilla", "nirvana hits=nirvana"],
        rate_rpm=20.0,
        replications=1,
    )
    for each in plan.clusters:
        paid = 4 * math.ceil(each.gpus / 4)
        services = 0.21 if each.candidate.design.startswith("nirvana") else 0.0
        assert each.usd_per_h == pytest.approx(2.036 * paid + services)
        assert each.numbers["usd_per_image"] is not None


def test_cluster_of_two_kinds_costs_and_counts_both(kept: Path) -> None:
    plan = ask(kept, gpu=["h100-sxm+l40s"], rate_rpm=120.0, replications=1)
    for each in plan.clusters:
        few = each.candidate.beside
        assert few is not None
        assert each.devices == few[1] + each.gpus
        assert each.usd_per_h == pytest.approx(3.99 * few[1] + 0.86 * each.gpus)
    assert {len(each.summary["gpu"]["by_kind"]) for each in plan.ranked} == {2}


def test_two_models_begin_on_the_two_kinds(kept: Path) -> None:
    prices = kept / "mi210.yaml"
    prices.write_text("mi210: 1.0\n")
    options = {"model": "sd3.5-large", "gpu": ["mi210+a40"], "prices": prices, "rate_rpm": 2.0, "replications": 1}
    options["overrides"] = ["trace.requests=300", "trace.history=0"]
    plan = ask(kept, design=["modm-fixed hits=modm"], target=["over 4x<10%"], **options)
    models = {row["gpu"]: row["role"] for row in plan.ranked[0].summary["models"]}
    assert models == {"mi210": "large", "a40": "small"}


def test_autoscaled_design_costs_what_its_runs_paid(kept: Path) -> None:
    day = [f"trace.requests={REQUESTS}", "trace.history=0", "arrivals=day", "arrivals.rate_rpm=20"]
    scaled = "vanilla controller=autoscale-utilisation controller.startup_s=30"
    plan = ask(kept, design=[scaled], gpu=["l40s"], rate_rpm=None, overrides=day)
    (best,) = plan.ranked
    candidate, gpus = best.measured.candidate, best.measured.gpus
    assert candidate.rents
    assert 0 < best.measured.usd_per_h <= candidate.usd_per_h(gpus)


def test_settings_of_a_design_are_candidates_of_their_own(kept: Path) -> None:
    plan = ask(kept, design=["vanilla models.large.steps=10,20"], gpu=["l40s"], target=["p95<30s"], rank=9)
    found = {each.measured.candidate.design: each.measured.gpus for each in plan.ranked}
    assert set(found) == {"vanilla models.large.steps=10", "vanilla models.large.steps=20"}
    assert found["vanilla models.large.steps=10"] < found["vanilla models.large.steps=20"]


def test_floor_of_quality_leaves_out_what_is_below_it_or_unknown(kept: Path) -> None:
    plan = ask(kept, design=["vanilla", "nirvana hits=nirvana"], min_quality=0.99, rank=4)
    assert {each.measured.candidate.design for each in plan.ranked} == {"vanilla"}
    assert {each.kind for each in plan.unmet} == {"quality"}


MODEL = "large: {_target_: mezzotint.sim.core.model.Model, name: my-model, steps: 10, width: 1024, height: 1024}\n"
PROFILE = """schema: 1
model: %s
gpu: %s
source: made up
step:
  - {width: 1024, height: 1024, seconds: %s}
"""
GPU = """count: 2
gpu: {_target_: mezzotint.sim.core.gpu.Gpu, name: my-gpu, active_w: 300, idle_w: 50, usd_per_gpu_h: .5, source: made up}
"""


def test_own_model_on_an_own_gpu_is_planned_with_its_own_profile(tmp_path: Path, kept: Path) -> None:
    """Its step takes 0.2 s, so ten of them 2 s: two GPUs at least for 50 requests a minute."""
    for name, text in {
        "conf/models/mine.yaml": MODEL,
        "conf/cluster/my-gpu.yaml": GPU,
        "profiles/a.yaml": PROFILE % ("my-model", "my-gpu", 0.2),
        "profiles/b.yaml": PROFILE % ("my-model", "l40s", 0.1),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = {"config_dir": tmp_path / "conf", "profiles": tmp_path / "profiles", "runs": kept / "runs", "rank": 5}
    given = {"gpu": ["my-gpu", "l40s", "h100-sxm"], "rate_rpm": 50.0}
    for model in ("my-model", "mine"):
        plan = ask(tmp_path, model=model, **own, **given)
        best, second = plan.ranked
        assert (best.measured.candidate.gpu, best.measured.candidate.models) == ("my-gpu", "mine")
        assert best.needed == pytest.approx(50 / 60 * 2, rel=0.1)
        assert best.measured.usd_per_h == 0.5 * best.measured.gpus
        assert second.measured.candidate.gpu == "l40s"
        assert second.needed == pytest.approx(50 / 60 * 1, rel=0.1)
        assert plan.notes == ("left out: h100-sxm: no profile of my-model",)
    both = ask(tmp_path, model="mine", **own, gpu=["my-gpu+l40s"], rate_rpm=50.0).ranked[0].measured
    assert both.usd_per_h == 0.5 * both.candidate.counts(both.gpus)["my-gpu"] + 0.86 * both.gpus


def test_own_profile_replaces_the_shipped_one_of_the_model_and_gpu(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "slow.yaml").write_text(PROFILE % ("sdxl-mlperf", "l40s", 0.5))
    shipped = ask(kept, gpu=["l40s"]).ranked[0]
    own = ask(kept, gpu=["l40s"], profiles=tmp_path, target=["p95<30s"], max_gpus=64).ranked[0]
    assert own.needed == pytest.approx(120 / 60 * 20 * 0.5, rel=0.1)
    assert own.needed > 4 * shipped.needed


def test_fronts_hold_no_cluster_that_another_beats_in_both(kept: Path) -> None:
    clusters = ask(kept).clusters
    edge = front(clusters, lambda each: each.numbers["p95_s"])
    for each in edge:
        beaten = [
            other
            for other in clusters
            if other.usd_per_h < each.usd_per_h and (other.numbers["p95_s"] or 0) <= (each.numbers["p95_s"] or 0)
        ]
        assert not beaten


def test_slower_service_never_needs_fewer_gpus_and_headroom_holds_the_load(kept: Path) -> None:
    for each in ask(kept, max_gpus=32, rank=2).ranked:
        assert each.gpus_if_slower is None or each.gpus_if_slower >= each.measured.gpus
        carries, misses = each.headroom
        assert carries >= 1.0
        assert misses is None or misses > carries
        assert each.needed <= each.measured.gpus


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_impossible_target_ends_with_status_1_and_says_what_binds(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", *SDXL, "--design", "vanilla", "--rate-rpm", "30", "trace.requests=300"]
    assert main([*words, "--target", "p95<0.1s", "-o", "service"]) == 1
    assert "the service itself binds" in capsys.readouterr().out
    assert "the service itself binds" in (there / "service" / "plan.html").read_text()
    assert main([*words, "--target", "p95<10s", "--max-gpus", "1", "-o", "capacity", "arrivals.rate_rpm=600"]) == 2
    capsys.readouterr()
    words[words.index("30")] = "600"
    assert main([*words, "--target", "p95<10s", "--max-gpus", "1", "-o", "capacity"]) == 1
    assert "capacity binds" in capsys.readouterr().out


def test_plan_from_a_csv_of_prompts_with_times(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{6 * row},a red fox in the snow {row % 7}" for row in range(400))
    (there / "log.csv").write_text(f"arrival_s,prompt\n{rows}\n")
    assert main(["plan", "log.csv", *SDXL, "--target", "p95<10s", "--design", "vanilla"]) == 0
    assert (
        "1 x l40s with vanilla serves log.csv at its own times with p95<10s for $0.86 per hour"
        in capsys.readouterr().out
    )
    content = json.loads((there / "results" / "plan" / "plan.json").read_text())
    assert content["ranked"][0]["count"] == 1
    assert content["ranked"][0]["replications"] == 1
    assert content["command"].startswith("mezzotint plan log.csv")


def test_steady_load_replays_the_first_requests_of_a_long_file(
    there: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "STEADY_ROWS", 300)
    rows = "\n".join(f"{6 * row},a red fox in the snow {row % 7}" for row in range(400))
    (there / "log.csv").write_text(f"arrival_s,prompt\n{rows}\n")
    words = ["plan", "log.csv", *SDXL, "--rate-rpm", "20", "--target", "p95<10s", "--design", "vanilla", "--rank", "1"]
    assert main(words) == 0
    assert "of log.csv (the first 300 requests) with" in capsys.readouterr().out
    assert main([*words, "trace.requests=350"]) == 0
    assert "of log.csv with" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "sdxl", "--rate-rpm", "9"], "--target: found none"),
        (["--target", "p95<9s", "--rate-rpm", "9"], "--model: found none"),
        (["--target", "p95<9s", "--model", "sdxl"], "--rate-rpm: found none"),
        (["--target", "p95<9s", "--model", "sd9", "--rate-rpm", "9"], "--model sd9: is no model"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--gpu", "z9"], "--gpu z9: is no kind of GPU"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--gpu", "mi325x"], "no price is known"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "cluster.count=3"], "the plan sets it"),
        (["log.txt", "--target", "p95<9s", "--model", "sdxl"], "log.txt: is no file"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--prices", "no.yaml"], "--prices no.yaml"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--design", "moon"], "moon"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--gpu", "l40s+h100+l4"], "found 3 kinds"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "arrivals=day"], "--rate-rpm: found beside"),
        (["a.csv", "b.csv", "--target", "p95<9s", "--model", "sdxl"], "found a.csv and b.csv, expected one file"),
        (["--target", "p95<9s", "--model", "sdxl", "--gpu", "l40s", "arrivals=saturation"], "has no rate to scale"),
    ],
)
def test_unusable_option_is_refused_with_its_name(
    words: list[str], message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    assert message in capsys.readouterr().err


def test_own_times_leave_nothing_to_replicate(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there / "log.csv").write_text("arrival_s,prompt\n0,a fox\n9,a hare\n")
    words = ["plan", "log.csv", "--target", "p95<9s", "--model", "sdxl", "--gpu", "l40s", "--replications", "3"]
    assert main(words) == 2
    assert "the times of log.csv are the same for every seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [("l40s: [", "prices.yaml"), ("l40s: dear", "expected KIND: USD"), ("l40s: -1", "expected KIND: USD")],
)
def test_prices_that_are_none_are_refused_with_file_and_kind(
    text: str, message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (there / "prices.yaml").write_text(text)
    words = ["plan", "--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--prices", "prices.yaml"]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_plan_whose_candidates_are_all_refused_is_written_with_the_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile has one size, and requests bring others."""
    monkeypatch.chdir(tmp_path)
    log = "ts,prompt,width,height\n" + "".join(f"{10 * at},a cat,{512 + 64 * (at % 3)},512\n" for at in range(30))
    (tmp_path / "log.csv").write_text(log)
    words = [*SDXL, "--design=vanilla", "--target=p95<10s", "shapes=trace", "--replications=1"]
    assert main(["plan", "log.csv", *words]) == 1
    printed = capsys.readouterr().out
    assert "No candidate could run." in printed
    assert "refused: vanilla with sdxl-mlperf on l40s: " in printed
    written = json.loads(Path("results/plan/plan.json").read_text())
    assert {each["kind"] for each in written["not_ranked"]} == {"refused"}
    assert all("outside the measured grid" in each["reason"] for each in written["not_ranked"])
    assert "Cannot run" in Path("results/plan/plan.html").read_text()
    assert Path("results/plan/plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("target", ["p95<1s", "p50<1s", "mean<1s", "over 1s<5%"])
def test_image_that_takes_longer_than_the_target_is_no_matter_of_waiting(target: str, kept: Path) -> None:
    """Also where the clusters of the range are too small for the load."""
    for rate_rpm in (20.0, 400.0):
        plan = ask(kept, gpu=["l40s"], target=[target], max_gpus=2, replications=1, rate_rpm=rate_rpm)
        assert not plan.ranked
        reason = plan.unmet[0].reason
        assert reason.startswith("the service itself binds: an image takes 1.45 s on 2 x l40s"), reason
        assert f"{target} leaves 1 s" in reason


def test_target_on_a_number_that_runs_lack_says_so(kept: Path) -> None:
    plan = ask(kept, gpu=["l40s"], target=["stages.moves<=3"], max_gpus=2, replications=1, rate_rpm=20.0)
    assert "stages.moves<=3 cannot be met: stages.moves is null" in plan.unmet[0].reason


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("H100: 0.5", "--prices: H100 is no kind of GPU; did you mean h100?"),
        ("l40: 0.5", "--prices: l40 is no kind of GPU; did you mean l40s?"),
        ("zzz: 0.5", "--prices: zzz is no kind of GPU; `mezzotint list cluster` shows them"),
        ("l40s: true", "found True"),
        ("l40s: 1:30", "line 1: 1:30 is no plain number"),
        ("l40s: 1_0", "line 1: 1_0 is no plain number"),
        ("l40s: '0.5'", "found '0.5'"),
        ("l40s: 0", "greater than 0, found 0"),
        ("l40s: -1", "greater than 0, found -1"),
        ("l40s: .nan", "found nan"),
        ("l40s: .inf", "found inf"),
        ("l40s: null", "found None"),
        ("l40s: {usd: 1}", "l40s.usd_per_gpu_h: field required"),
        ("l40s: 1\nl40s: 2", "line 2: 'l40s' is there twice"),
        ("- l40s", "found ['l40s']"),
        ("1: 2", "found 1"),
        ("", "found None"),
    ],
)
def test_price_that_is_none_is_refused_by_its_kind(prices: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(prices)
    with pytest.raises(ConfigError) as refused:
        ask(tmp_path, prices=file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"design": [""]}, "--design: found nothing, expected a choice of system="),
        ({"design": ["vanilla cluster.count=3"]}, "cluster.count=3: the plan sets it"),
        ({"overrides": ["~cluster"]}, "~cluster: the plan sets it"),
        ({"overrides": ["+seed=4"]}, r"\+seed=4: the plan sets it"),
        ({"gpu": ["l40s+l40s"]}, r"--gpu l40s\+l40s: found 2 kinds, expected one, or two different ones"),
        ({"gpu": ["L40S"]}, r"--gpu L40S: is no kind of GPU; did you mean l40s\?"),
        ({"gpu": ["+"]}, r"--gpu \+: found 2 kinds"),
        ({"gpu": ["mi210"], "model": "sdxl"}, "mi210: no price is known; give one with --prices"),
    ],
)
def test_option_that_cannot_be_planned_is_refused_before_a_run(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(tmp_path, **options)
    assert not list(tmp_path.glob("runs/*.json"))


def test_rate_that_no_arrivals_have_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SDXL, "--target=p95<10s", "--rate-rpm=inf"]) == 2
    assert "--rate-rpm" in capsys.readouterr().err


@pytest.mark.parametrize("floor", [True, False])
def test_missed_number_that_is_no_latency_is_named(floor: bool, kept: Path) -> None:
    rate_rpm = 20.0 if floor else 60.0
    plan = ask(kept, gpu=["l40s"], target=["gpu.busy_fraction>=99%"], max_gpus=2, replications=1, rate_rpm=rate_rpm)
    reason = plan.unmet[0].reason
    assert reason.startswith("gpu.busy_fraction is 0."), reason
    assert "l40s, which misses gpu.busy_fraction>=99%" in reason
