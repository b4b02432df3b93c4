"""The report's error bars: wider where the model's error matters more, and as wide as reruns make them."""

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.figures.page import number
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.sensitivity import EXAMPLE, sensitivities
from mezzotint.sim.run.simulate import simulate, write
from tests.sim.lab import configured

VANILLA = (
    *("trace=mix", "trace.requests=2000", "models=z-image-turbo", "cluster=h100", "cluster.count=2"),
    *("arrivals=expovariate", "warmup=100", "sample_s=1e5"),
)
ALONE_S = 9 * 0.09 + 0.12949 + 0.00623


def made(folder: Path, load: float, *more: str) -> Path:
    config = configured(*VANILLA, f"arrivals.rate_rpm={60 * load * 2 / ALONE_S}", *more)
    write(simulate(config), folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("sweep")
    for load in (0.7, 0.98):
        made(folder / f"{load}", load)
    return folder


def rerun(load: float, factor: float) -> list[float]:
    """Return p50, p95 and p99 of the same run from the command line, with the service time changed."""
    config = configured(*VANILLA, f"arrivals.rate_rpm={60 * load * 2 / ALONE_S}", f"backend.service_factor={factor}")
    rows = simulate(config).requests
    arrival, finish = (rows[name].to_numpy()[100:] for name in ("arrival_s", "finish_s"))
    return [float(np.quantile(finish - arrival, q)) for q in (0.5, 0.95, 0.99)]


def stated(folder: Path, service_error: float | None, basis: str = "measured") -> Path:
    """Make the run in ``folder`` state its model, as a profile of that basis and error does."""
    summary = json.loads((folder / "summary.json").read_text())
    row = {"role": "large", "model": "z-image-turbo", "width": 1024, "height": 1024, "steps": 9, "precision": "bf16"}
    summary["models"] = [row | {"basis": basis, "service_error": service_error, "gpu": "h100", "source": "made up"}]
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize("error", [0.02, 0.21, None])
def test_sensitivity_band_is_the_profile_error_or_an_example(error: float | None, tmp_path: Path) -> None:
    share = EXAMPLE if error is None else error
    (each,) = sensitivities(load_runs([stated(made(tmp_path / "run", 0.7), error)]), inf)
    assert each.error == error
    assert each.baseline is not None
    assert each.baseline["p99"] == pytest.approx(each.run.number("latency_s", "p99"))  # the run's own, without warm-up
    for place, name in enumerate(("p50", "p95", "p99")):
        values = [rerun(0.7, factor)[place] for factor in (1 - share, 1.0, 1 + share)]
        assert each.bands[name] == pytest.approx((min(values), max(values)))
    page = write_report([tmp_path], tmp_path / "r.html", reruns_s=inf)[0].read_text()
    low, high = each.bands["p99"]
    assert f"{number(low, 3)} to {number(high, 3)}" in page
    assert (f"±{100 * share:.1f} %" if error else "not known; example ±10 %") in page


def test_sensitivity_band_is_wider_near_saturation(runs: Path) -> None:
    found = {round(each.run.load.rate_rpm or 0): each for each in sensitivities(load_runs([runs]), inf)}
    relaxed, loaded = (found[rate].bands["p99"] for rate in sorted(found))
    assert (loaded[1] - loaded[0]) / loaded[0] > 2 * (relaxed[1] - relaxed[0]) / relaxed[0]


def test_reruns_beyond_the_time_budget_are_skipped(runs: Path, tmp_path: Path) -> None:
    given = load_runs([runs])
    takes_s = [3 * (run.number("wall", "cpu_s") or 0.0) for run in given]
    assert [each.baseline is None for each in sensitivities(given, 0.0)] == [True, True]
    assert [each.baseline is None for each in sensitivities(given, 1.01 * min(takes_s))].count(False) == 1
    assert "--reruns-s inf" in write_report([runs], tmp_path / "r.html")[0].read_text()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("mezzotint.backends.profiled.Profiled -> sim.mine.Live", "it has no profile to change"),
        ("mezzotint.traces.sources.mix.Mix -> mine.Mix", "mine"),
        ("- 1", "expected a mapping; run it again"),
        ("warmup: 100 -> warmup: 1999", ""),
    ],
)
def test_run_without_a_sensitivity_says_why(tmp_path: Path, found: str, message: str) -> None:
    folder = made(tmp_path / "run", 0.5, "trace.requests=2000")
    config = folder / "config.yaml"
    (run,) = load_runs([folder])
    old, _, new = found.partition(" -> ")
    config.write_text(config.read_text().replace(old, new) if new else old)
    (each,) = sensitivities([run], inf)
    assert message in each.reason
    assert (each.baseline is None) == bool(message), "of one request only there are percentiles too"
