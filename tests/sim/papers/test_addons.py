"""The study of add-ons, on a small part of the services."""

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers import addons
from mezzotint.sim.papers.addons import SERVED, Curve, errors, of_trace
from mezzotint.traces.table.trace import Trace, make, write


def two_nodes(**columns: Any) -> Trace:
    """One node gets a, b, a, b, the other c and nothing, c and nothing, with one request a second."""
    names = [f"s/{node}/{row}" for row, node in enumerate("11112222")]
    return make({"request_id": names, "arrival_s": [float(row) for row in range(8)]} | columns, name="n", source="s")


ASKED = [["a"], ["b"], ["a"], ["b"], ["c"], [], ["c"], []]


def test_study_has_every_measured_point_and_the_curves_of_user_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(addons, "QUICK", 0.01)
    monkeypatch.setattr(addons, "ROWS", 100)
    monkeypatch.setitem(SERVED["routing"], "rates_rpm", [30.0])
    monkeypatch.setitem(SERVED["routing"], "routers", {"by add-on": ["router=by-addons"]})
    log = write(two_nodes(loras=ASKED), tmp_path / "log.parquet").path
    options = ["--quick", "--sizes", "1,3", "--trace", str(log), "-o", str(tmp_path), "--work", str(tmp_path / "runs")]
    assert main(["reproduce", "addons", *options]) == 0
    results = json.loads((tmp_path / "addons-quick.json").read_text())
    text = (tmp_path / "addons-quick.md").read_text()
    *services, mine = results["caches"]["curves"]
    for curve in services:
        assert curve["sizes"] == [1, 2, 3, 4, 5, 8, 10]
        assert all(f"{load:.3f}" in text for load in curve["measured"].values())
        assert curve["made"]["lru"] == sorted(curve["made"]["lru"], reverse=True)
    assert (mine["service"], mine["measured"], mine["fitted"]) == ("log", {}, {})
    assert len(results["served"]["routing"]) == 1
    solved, *naive = results["served"]["placement"]
    assert max(solved["load"]) < 1 < min(max(row["load"]) for row in naive)
    assert main(["reproduce", "addons", *options, "--check"]) == 0
    assert "0 lost" in capsys.readouterr().out


def test_curve_errors_are_those_of_the_measured_sizes() -> None:
    curve = Curve("A", "loras", (1, 2, 3), {1: 1.0, 3: 0.5}, {"lru": [1.1, 9.0, 0.5]}, {"lru": [2.0, 9.0, 0.5]}, 0.1)
    assert errors([curve]) == pytest.approx({"mean": 0.05, "largest": 0.1, "fitted_mean": 0.5, "fitted_largest": 1.0})


@pytest.mark.parametrize("sizes", ["0", "a", "1,,2", "-1"])
def test_malformed_sizes_are_refused(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "addons", f"--sizes={sizes}"]) == 2
    assert "--sizes: found" in capsys.readouterr().err


def test_user_trace_has_the_miss_curves_of_caches_on_its_nodes() -> None:
    """With a capacity of one, a and b evict each other and c stays; with two, each is loaded once."""
    (curve,) = of_trace(two_nodes(controlnets=ASKED, loras=[[]] * 8), "mine", (2, 1))
    assert (curve.service, curve.kind, curve.sizes, curve.measured) == ("mine", "controlnets", (1, 2), {})
    assert curve.made == {"lru": [5 / 8, 3 / 8], "lfu": [5 / 8, 3 / 8]}
    assert curve.all == 3 / 8
    assert of_trace(two_nodes(), "mine") == []
