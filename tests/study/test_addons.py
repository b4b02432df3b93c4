"""The page on add-ons, on a small part of the services."""

import json
from pathlib import Path

import pytest

from sim.cli import main
from sim.study.addons.caches import Curve, errors


def test_the_page_has_every_measured_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.study.addons.command.QUICK", 0.01)
    monkeypatch.setattr("sim.study.addons.command.ROWS", 100)
    monkeypatch.setattr("sim.study.addons.served.RATES_RPM", (30.0,))
    monkeypatch.setattr("sim.study.addons.served.ROUTERS", {"by add-on": ("router=by-addons",)})
    asked = ["scorecard", "addons", "--quick", "--sizes", "1,3", "-o", str(tmp_path), "--work", str(tmp_path / "runs")]
    assert main(asked) == 0
    facts = json.loads((tmp_path / "addons-quick.json").read_text())
    text = (tmp_path / "addons-quick.md").read_text()
    for curve in facts["caches"]["curves"]:
        assert curve["sizes"] == [1, 2, 3, 4, 5, 8, 10]
        assert all(f"{load:.3f}" in text for load in curve["measured"].values())
        assert curve["made"]["lru"] == sorted(curve["made"]["lru"], reverse=True)
    assert (tmp_path / "addons-quick.png").stat().st_size > 10_000
    assert len(facts["served"]["routing"]) == 1
    solved, *naive = facts["served"]["placement"]
    assert max(solved["load"]) < 1 < min(max(each["load"]) for each in naive)
    assert "service A" not in capsys.readouterr().err


def test_errors_are_those_of_the_measured_sizes() -> None:
    curve = Curve("A", "loras", (1, 2, 3), {1: 1.0, 3: 0.5}, {"lru": [1.1, 9.0, 0.5]}, [2.0, 9.0, 0.5], 0.1)
    assert errors([curve]) == pytest.approx({"mean": 0.05, "largest": 0.1, "fitted_mean": 0.5, "fitted_largest": 1.0})


@pytest.mark.parametrize("sizes", ["0", "a", "1,,2", "-1"])
def test_sizes_that_are_none(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scorecard", "addons", f"--sizes={sizes}"]) == 2
    assert "--sizes: found" in capsys.readouterr().err
