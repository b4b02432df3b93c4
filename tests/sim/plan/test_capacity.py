"""The search for the highest rate: against queueing theory, and for arbitrary outcomes of its runs."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from scipy.optimize import brentq
from tqdm import tqdm

import mezzotint.sim.plan.capacity.trials as trials
import mezzotint.sim.run.simulate
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.capacity.command import find_capacity
from mezzotint.sim.plan.capacity.search import CapacitySpec, Measure, Trial, interval, search
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.run.config.compose import composed
from mezzotint.sim.run.config.settings import check

FULL_S = 91.5  # a full generation of the large model on an MI210


def late_share(load: float) -> float:
    """P(W > D) of M/D/1, D its service time: of Erlang's distribution of the wait, 1 - (1 - rho) e^rho."""
    return 1 - (1 - load) * math.exp(load)


def rate_of(violations: float) -> float:
    """Return the requests per minute at which that share of M/D/1 waits longer than a service, so takes over twice
    it."""
    return 60.0 / FULL_S * float(brentq(lambda load: late_share(load) - violations, 1e-6, 1 - 1e-9))


def md1(requests: int) -> Measure:
    """Simulate M/D/1 by Lindley's recursion, from empty; a replication has the same exponential draws at every rate."""

    def measure(asked: Sequence[tuple[int, float]]) -> list[Trial]:
        found = []
        for replication, rate_rpm in asked:
            gaps_s = np.random.default_rng(replication).exponential(60.0 / rate_rpm, requests)
            walk = np.concatenate([[0.0], np.cumsum(FULL_S - gaps_s[1:])])
            wait_s = walk - np.minimum.accumulate(walk)
            found.append(Trial(replication, rate_rpm, float((wait_s > FULL_S).mean()), grows(rate_rpm)))
        return found

    return measure


def grows(rate_rpm: float) -> bool:
    return rate_rpm > 60.0 / FULL_S


@pytest.mark.parametrize("violations", [0.02, 0.05, 0.2])
def test_md1_capacity_matches_its_wait_distribution(violations: float) -> None:
    spec = CapacitySpec(violations, "2x", 0.02, 2.0, 6, 0.005)
    found = search(spec, md1(60_000))
    assert found.rate_rpm.low < rate_of(violations) < found.rate_rpm.high
    assert found.rate_rpm.high - found.rate_rpm.low < 0.04 * found.rate_rpm.mean
    assert found.violation_rate.mean == pytest.approx(violations, rel=0.05)


def test_growing_backlog_is_not_sustained() -> None:
    """Half of the requests may be late, and a short trace has fewer late: the load of 1 is still the limit."""
    found = search(
        CapacitySpec(0.5, "4x", 0.1, 2.0, 3, 0.001), lambda asked: [Trial(*each, 0.1, grows(each[1])) for each in asked]
    )
    assert found.rate_rpm.mean == pytest.approx(60.0 / FULL_S, rel=0.001)
    assert found.rate_rpm.low <= 60.0 / FULL_S <= found.rate_rpm.high


def erratic(seed: int) -> Measure:
    """Any share at any rate, repeatable; none at the lower end and all at the upper one."""

    def measure(asked: Sequence[tuple[int, float]]) -> list[Trial]:
        shares = [
            {1.0: 0.0, 64.0: 1.0}.get(rate, np.random.default_rng([seed, each, round(rate * 1e4)]).random())
            for each, rate in asked
        ]
        return [Trial(*each, float(share), False) for each, share in zip(asked, shares, strict=True)]

    return measure


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    shares=st.lists(st.floats(0, 0.99), min_size=2, max_size=5).map(sorted),
    replications=st.integers(2, 5),
    tolerance=st.floats(1e-4, 1.0),
)
def test_capacity_rises_with_the_allowed_violations(
    seed: int, shares: list[float], replications: int, tolerance: float
) -> None:
    answers = []
    for share in shares:
        spec = CapacitySpec(share, "2x", 1.0, 64.0, replications, tolerance)
        found = search(spec, erratic(seed))
        answers.append(found.rate_rpm.mean)
        runs = {(point.replication, point.rate_rpm): point for point in found.trials}
        assert len(runs) == len(found.trials) <= replications * (spec.bisections + 3)
        for each, (low, high) in enumerate(zip(found.sustained_rpm, found.unsustained_rpm, strict=True)):
            assert runs[each, low].is_sustained(share)
            assert not runs[each, high].is_sustained(share)
            assert low < high <= low * (1 + tolerance) * (1 + 1e-5)
        assert found.rate_rpm.low <= found.rate_rpm.mean <= found.rate_rpm.high
    assert answers == sorted(answers)


def test_capacity_outside_the_search_range_names_the_bound() -> None:
    with pytest.raises(
        ConfigError, match=r"--from 0.6: at this rate \d+.\d% of the requests are over 2x \(3 of 3 .*lower"
    ):
        search(CapacitySpec(0.05, "2x", 0.6, 2.0, 3, 0.02), md1(4000))
    with pytest.raises(ConfigError, match=r"--to 0.1: .*raise --to"):
        search(CapacitySpec(0.2, "2x", 0.05, 0.1, 3, 0.02), md1(4000))
    with pytest.raises(ConfigError, match=r"--from 0.7: at this rate the backlog grows \(3 of 3 .*lower --from"):
        search(CapacitySpec(0.9, "2x", 0.7, 2.0, 3, 0.02), md1(100))


def test_confidence_interval_has_its_stated_coverage() -> None:
    rng = np.random.default_rng(3)
    held = [(found := interval(rng.normal(10.0, 2.0, 5).tolist())).low < 10.0 < found.high for _ in range(4000)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


SMALL = ("system=vanilla", "cluster.count=1", "trace.requests=200")
OPTIONS = ("--from", "0.15", "--to", "0.7", "--replications", "2", "--tolerance", "1")


def test_capacity_search_resumes_and_repeats_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an interruption the finished runs are reused, also for another share and by the command."""
    config = composed(["run.dir=unused", *SMALL])
    made: list[float] = []
    simulate = mezzotint.sim.run.simulate.simulate

    def counted(config: dict[str, Any], **options: Any) -> Any:
        made.append(config["arrivals"]["rate_rpm"])
        return simulate(config, **options)

    monkeypatch.setattr("mezzotint.sim.run.simulate.simulate", counted)
    settings, folder = check(OmegaConf.to_container(config, resolve=True)), tmp_path / "one"  # type: ignore[arg-type]

    def asked(violations: float) -> dict[str, Any]:
        made.clear()
        find_capacity(CapacitySpec(violations, "2x", 0.15, 0.7, 2, 1.0), config, settings, folder, SMALL, 1)
        results: dict[str, Any] = json.loads((folder / "rate.json").read_bytes())
        return results

    found = asked(0.2)
    assert found["rate_rpm"]["low"] < rate_of(0.2) < found["rate_rpm"]["high"]
    names = {each["folder"] for each in found["runs"]}
    assert names == {path.parent.name for path in folder.glob("*/summary.json")}
    assert len(load_runs([folder])) == len(made) == len(names)

    files = {path: path.read_bytes() for path in folder.glob("rate.*")}
    for path in [*files, *(folder / found["runs"][2]["folder"]).glob("*")]:
        path.unlink()
    assert asked(0.2) == found
    assert made == [found["runs"][2]["rate_rpm"]]
    assert {path: path.read_bytes() for path in files} == files

    fewer = asked(0.1)
    assert fewer["rate_rpm"]["mean"] < found["rate_rpm"]["mean"]
    assert len(made) < len(fewer["runs"])

    made.clear()
    before = (folder / "rate.json").read_bytes()
    words = ["plan", "capacity", *SMALL, *OPTIONS, "--violations", "0.1", "-o", str(folder)]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.err == ""  # no bar without a terminal
    first, *printed_files = printed.out.splitlines()
    assert re.fullmatch(
        r"vanilla: .* at that rate \S+% \(.*\) of the requests exceed the limit(, the backlog of .*)?", first
    )
    assert printed_files == [str(folder / name) for name in ("rate.json", "rate.png")]
    assert made == []
    assert (folder / "rate.json").read_bytes() == before
    for other in ("seed=7", f"--config-dir={tmp_path}"):
        assert main([*words, other]) == 2
        assert "another sweep" in capsys.readouterr().err


def test_limit_in_seconds_gives_the_capacity_of_the_same_multiple(tmp_path: Path) -> None:
    """At one size 2x is a fixed number of seconds: the runs and the answer are the same."""
    found = {}
    for slo in ("2x", f"{2 * FULL_S:g}s"):
        folder = tmp_path / slo
        words = ["plan", "capacity", *SMALL, *OPTIONS, f"slo=[{slo}]", "--slo", slo, "--violations", "0.2"]
        assert main([*words, "-o", str(folder)]) == 0
        found[slo] = json.loads((folder / "rate.json").read_bytes())["rate_rpm"]["mean"]
    assert len(set(found.values())) == 1


def test_run_of_another_configuration_is_not_reused(tmp_path: Path) -> None:
    config, other = (composed(["run.dir=unused", *SMALL, f"warmup={n}"]) for n in (0, 1))
    asked = [(0, 0.5), (1, 0.5)]
    first = trials.Trials(config, tmp_path, "2x", 1, tqdm(disable=True))
    found = first.measure(asked)
    assert first.measure(asked) == found
    assert [point.violation_rate for point in found] == [
        json.loads((tmp_path / first.folder_name(*each) / "summary.json").read_bytes())["slo"]["2x"]["violation_rate"]
        for each in asked
    ]
    before = (tmp_path / first.folder_name(*asked[0]) / "summary.json").read_bytes()
    with pytest.raises(ConfigError, match=r"0.5rpm_seed1 holds a run of another configuration"):
        trials.Trials(other, tmp_path, "2x", 1, tqdm(disable=True)).measure(asked)
    assert (tmp_path / first.folder_name(*asked[0]) / "summary.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["capacity", "--violations", "1"], "--violations: found 1, expected a share of the requests under 1"),
        (["capacity", "--slo", "fast"], "'--slo': expected a multiple of the standalone latency"),
        (["capacity", "--slo", "3x"], "--slo 3x: the runs measure slo=[2x,4x]; add slo=[3x]"),
        (["capacity", "--to", "0.05"], "--to: found 0.05, expected a rate above that of --from, 0.1"),
        (["capacity", "arrivals.rate_rpm=3"], "arrivals.rate_rpm=3: found a fixed rate"),
        (["capacity", "arrivals=closed"], "arrivals.rate_rpm: mezzotint.traces.arrivals.closed.Closed has no rate"),
        (["capacity", "arrivals=loadgen"], "arrivals.seed: these arrivals are the same whatever the run's seed"),
        (["cheapest"], "--target: found none"),
    ],
)  # fmt: skip
def test_invalid_plan_command_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["--from", "0.1", "--to", "1", "trace.requests=50", "-o", str(tmp_path / "out")]
    assert main(["plan", *words[:1], *(usual if words[:1] == ["capacity"] else []), *words[1:]]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mezzotint: error: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not list(tmp_path.glob("out/*"))
