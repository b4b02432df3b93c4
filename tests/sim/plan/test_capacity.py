"""The search for the highest rate: against queueing theory, and for arbitrary outcomes of its runs."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import mezzotint.sim.run.simulate
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.capacity import CapacitySpec, Measure, RateTrial, measure_in, search
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.run.config.compose import compose_config

FULL_S = 91.5  # a full generation of the large model on an MI210


def late_share(load: float) -> float:
    """P(W > D) of M/D/1, D its service time: of Erlang's distribution of the wait, 1 - (1 - rho) e^rho."""
    return 1 - (1 - load) * math.exp(load)


def rate_of(violations: float) -> float:
    """Return the requests per minute at which that share of M/D/1 waits longer than a service."""
    return 60.0 / FULL_S * float(brentq(lambda load: late_share(load) - violations, 1e-6, 1 - 1e-9))


def md1(requests: int) -> Measure:
    """Simulate M/D/1 by Lindley's recursion, from empty; a seed has the same exponential draws at every rate."""

    def trial(seed: int, rate_rpm: float) -> RateTrial:
        gaps_s = np.random.default_rng(seed).exponential(60.0 / rate_rpm, requests)
        walk = np.concatenate([[0.0], np.cumsum(FULL_S - gaps_s[1:])])
        wait_s = walk - np.minimum.accumulate(walk)
        return RateTrial(seed, rate_rpm, float((wait_s > FULL_S).mean()), grows(rate_rpm))

    return lambda requested: [trial(*each) for each in requested]


def grows(rate_rpm: float) -> bool:
    return rate_rpm > 60.0 / FULL_S


@pytest.mark.parametrize("violations", [0.02, 0.05, 0.2])
def test_md1_capacity_matches_its_wait_distribution(violations: float) -> None:
    capacity = search(CapacitySpec(violations, "2x", 0.02, 2.0, range(6), 0.005), md1(60_000))
    assert capacity.rate_rpm.low < rate_of(violations) < capacity.rate_rpm.high
    assert capacity.rate_rpm.high - capacity.rate_rpm.low < 0.04 * capacity.rate_rpm.mean
    assert capacity.violation_rate.mean == pytest.approx(violations, rel=0.05)


def test_overload_is_not_sustained() -> None:
    """Half of the requests may be late, and a short trace has fewer late: the load of 1 is still the limit."""
    spec = CapacitySpec(0.5, "4x", 0.1, 2.0, range(3), 0.001)
    capacity = search(spec, lambda requested: [RateTrial(*each, 0.1, grows(each[1])) for each in requested])
    assert capacity.rate_rpm.mean == pytest.approx(60.0 / FULL_S, rel=0.001)
    assert capacity.rate_rpm.low <= 60.0 / FULL_S <= capacity.rate_rpm.high


def erratic(draw: int) -> Measure:
    """Any share at any rate, repeatable; none at the lower end and all at the upper one."""

    def share(seed: int, rate_rpm: float) -> float:
        ends = {1.0: 0.0, 64.0: 1.0}
        return ends.get(rate_rpm, np.random.default_rng([draw, seed, round(rate_rpm * 1e4)]).random())

    return lambda requested: [RateTrial(*each, share(*each), False) for each in requested]


@settings(max_examples=60)
@given(
    draw=st.integers(0, 10_000),
    shares=st.lists(st.floats(0, 0.99), min_size=2, max_size=5).map(sorted),
    seeds=st.integers(2, 5).map(range),
    tolerance=st.floats(1e-4, 1.0),
)
def test_capacity_rises_with_the_allowed_violations(
    draw: int, shares: Sequence[float], seeds: range, tolerance: float
) -> None:
    answers = []
    for share in shares:
        spec = CapacitySpec(share, "2x", 1.0, 64.0, seeds, tolerance)
        capacity = search(spec, erratic(draw))
        answers.append(capacity.rate_rpm.mean)
        runs = {(trial.seed, trial.rate_rpm): trial for trial in capacity.trials}
        assert len(runs) == len(capacity.trials) <= len(seeds) * (spec.bisections + 3)
        for seed, (low, high) in zip(seeds, capacity.brackets, strict=True):
            assert runs[seed, low].is_sustained(share)
            assert not runs[seed, high].is_sustained(share)
            assert low < high <= low * (1 + tolerance) * (1 + 1e-5)
        assert capacity.rate_rpm.low <= capacity.rate_rpm.mean <= capacity.rate_rpm.high
    assert answers == sorted(answers)


@pytest.mark.parametrize(
    ("violations", "bounds", "message"),
    [
        (0.05, (0.6, 2.0), r"--from 0.6: at this rate \d+.\d% of the requests are over 2x \(3 of 3 .*lower"),
        (0.2, (0.05, 0.1), r"--to 0.1: .*raise --to"),
        (0.9, (0.7, 2.0), r"--from 0.7: at this rate the system is overloaded \(3 of 3 .*lower --from"),
    ],
)
def test_capacity_outside_the_bracket_names_its_end(
    violations: float, bounds: tuple[float, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        search(CapacitySpec(violations, "2x", *bounds, range(3), 0.02), md1(4000))


SMALL = ("system=vanilla", "cluster.count=1", "trace.requests=200")
CAPACITY = ("plan", "capacity", *SMALL, "--from", "0.15", "--to", "0.7", "--replications", "2", "--tolerance", "1")


def test_capacity_search_resumes_and_repeats_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an interruption the finished runs are reused, also for another share."""
    made: list[float] = []
    simulate = mezzotint.sim.run.simulate.simulate

    def counted(config: dict[str, Any], **options: Any) -> Any:
        made.append(config["arrivals"]["rate_rpm"])
        return simulate(config, **options)

    monkeypatch.setattr("mezzotint.sim.run.simulate.simulate", counted)

    def ask(violations: float, *more: str) -> dict[str, Any]:
        made.clear()
        words = ["--violations", f"{violations}"] if violations != 0.05 else []
        assert main([*CAPACITY, *words, *more, "-o", str(tmp_path)]) == 0
        results: dict[str, Any] = json.loads((tmp_path / "rate.json").read_bytes())
        return results

    first = ask(0.2)
    printed = capsys.readouterr()
    assert printed.err == ""  # no bar without a terminal
    assert printed.out.splitlines()[1:] == [str(tmp_path / name) for name in ("rate.json", "rate.png")]
    assert first["rate_rpm"]["low"] < rate_of(0.2) < first["rate_rpm"]["high"]
    names = {each["folder"] for each in first["runs"]}
    assert names == {path.parent.name for path in tmp_path.glob("*/summary.json")}
    assert len(load_runs([tmp_path])) == len(made) == len(names)

    files = {path: path.read_bytes() for path in tmp_path.glob("rate.*")}
    for path in [*files, *(tmp_path / first["runs"][2]["folder"]).glob("*")]:
        path.unlink()
    assert ask(0.2) == first
    assert made == [first["runs"][2]["rate_rpm"]]
    assert {path: path.read_bytes() for path in files} == files

    fewer = ask(0.1)
    assert fewer["rate_rpm"]["mean"] < first["rate_rpm"]["mean"]
    assert len(made) < len(fewer["runs"])
    capsys.readouterr()
    for other in ("seed=7", f"--config-dir={tmp_path}"):
        assert main([*CAPACITY, "-o", str(tmp_path), other]) == 2
        assert "another sweep" in capsys.readouterr().err


def test_limit_in_seconds_gives_the_capacity_of_the_same_multiple(tmp_path: Path) -> None:
    """At one size 2x is a fixed number of seconds: the runs and the answer are the same."""
    rates = set()
    for slo in ("2x", f"{2 * FULL_S:g}s"):
        words = [f"slo=[{slo}]", "--slo", slo, "--violations", "0.2", "-o", str(tmp_path / slo)]
        assert main([*CAPACITY, *words]) == 0
        rates.add(json.loads((tmp_path / slo / "rate.json").read_bytes())["rate_rpm"]["mean"])
    assert len(rates) == 1


def test_run_of_another_configuration_is_not_reused(tmp_path: Path) -> None:
    config, other = (compose_config(["run.dir=unused", *SMALL, f"warmup={n}"]) for n in (0, 1))
    (trial,) = measure_in(tmp_path, config, "2x")([(1, 0.5)])
    file = tmp_path / trial.folder / "summary.json"
    before = file.read_bytes()
    assert trial.violation_rate == json.loads(before)["slo"]["2x"]["violation_rate"]
    with pytest.raises(ConfigError, match=r"0.5rpm_seed1 holds a run of another configuration"):
        measure_in(tmp_path, other, "2x")([(1, 0.5)])
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--violations", "1"], "--violations: found 1, expected a share of the requests under 1"),
        (["--slo", "fast"], "'--slo': expected a multiple of the standalone latency"),
        (["--slo", "3x"], "--slo 3x: the runs measure slo=[2x,4x]; add slo=[3x]"),
        (["--to", "0.05"], "--to: found 0.05, expected a rate above that of --from, 0.15"),
        (["arrivals.rate_rpm=3"], "arrivals.rate_rpm=3: found a fixed rate"),
        (["arrivals=closed"], "arrivals: mezzotint.traces.arrivals.closed.Closed has no rate"),
        (["arrivals=loadgen"], "arrivals.seed: these arrivals are the same whatever the run's seed"),
    ],
)
def test_invalid_capacity_command_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CAPACITY, "-o", str(tmp_path / "out"), *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mezzotint: error: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not list(tmp_path.glob("out/*"))
