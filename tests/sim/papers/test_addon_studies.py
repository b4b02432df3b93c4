"""The results page on add-ons, on a small part of the services."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.addons import caches
from mezzotint.sim.papers.addons.caches import SIZES, Curve, errors
from mezzotint.sim.papers.addons.page import draw
from mezzotint.sim.papers.addons.served import STUDY, run_studies
from mezzotint.sim.papers.runs import Runs
from mezzotint.traces.table.trace import Trace, make, write


def test_addons_page_has_every_measured_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mezzotint.sim.papers.addons.command.QUICK", 0.01)
    monkeypatch.setattr("mezzotint.sim.papers.addons.command.ROWS", 100)
    monkeypatch.setitem(STUDY["routing"], "rates_rpm", [30.0])
    monkeypatch.setitem(STUDY["routing"], "routers", {"by add-on": ["router=by-addons"]})
    asked = ["reproduce", "addons", "--quick", "--sizes", "1,3", "-o", str(tmp_path), "--work", str(tmp_path / "runs")]
    assert main(asked) == 0
    results = json.loads((tmp_path / "addons-quick.json").read_text())
    text = (tmp_path / "addons-quick.md").read_text()
    for curve in results["caches"]["curves"]:
        assert curve["sizes"] == [1, 2, 3, 4, 5, 8, 10]
        assert all(f"{load:.3f}" in text for load in curve["measured"].values())
        assert curve["made"]["lru"] == sorted(curve["made"]["lru"], reverse=True)
    assert (tmp_path / "addons-quick.svg").stat().st_size > 5_000
    assert len(results["served"]["routing"]) == 1
    solved, *naive = results["served"]["placement"]
    assert max(solved["load"]) < 1 < min(max(each["load"]) for each in naive)
    assert "service A" not in capsys.readouterr().err


def test_curve_errors_are_those_of_the_measured_sizes() -> None:
    curve = Curve("A", "loras", (1, 2, 3), {1: 1.0, 3: 0.5}, {"lru": [1.1, 9.0, 0.5]}, {"lru": [2.0, 9.0, 0.5]}, 0.1)
    assert errors([curve]) == pytest.approx({"mean": 0.05, "largest": 0.1, "fitted_mean": 0.5, "fitted_largest": 1.0})


@pytest.mark.parametrize("sizes", ["0", "a", "1,,2", "-1"])
def test_malformed_sizes_are_refused(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "addons", f"--sizes={sizes}"]) == 2
    assert "--sizes: found" in capsys.readouterr().err


def two_nodes(**columns: Any) -> Trace:
    """One node gets a, b, a, b, the other c and nothing, c and nothing, with one request a second."""
    names = [f"s/{node}/{row}" for row, node in enumerate("11112222")]
    return make({"request_id": names, "arrival_s": [float(row) for row in range(8)]} | columns, name="n", source="s")


ASKED = [["a"], ["b"], ["a"], ["b"], ["c"], [], ["c"], []]


def test_user_trace_has_the_miss_curves_of_caches_on_its_nodes() -> None:
    """With a capacity of one, a and b evict each other and c stays; with two, each is loaded once."""
    (curve,) = caches.of_trace(two_nodes(controlnets=ASKED, loras=[[]] * 8), "mine", (2, 1))
    assert (curve.service, curve.kind, curve.sizes, curve.measured) == ("mine", "controlnets", (1, 2), {})
    assert curve.made == {"lru": [5 / 8, 3 / 8], "lfu": [5 / 8, 3 / 8]}
    assert curve.all == 3 / 8
    assert caches.of_trace(two_nodes(), "mine") == []


def test_addons_page_has_curves_of_user_traces_without_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = {"lru": [0.625, 0.5], "lfu": [0.625, 0.5]}
    known = Curve("A", "loras", (1, 2), {1: 0.5}, {"lru": [0.75, 0.5], "lfu": [0.75, 0.5]}, fitted, 0.25)
    tried: list[tuple[int, ...]] = []
    monkeypatch.setattr(caches, "curves", lambda sizes, share: tried.append(tuple(sizes)) or [known])
    row = {"name": "r", "rate_rpm": 1.0, "mean_s": 1.0, "p95_s": 2.0, "load": [0.5], "turns_s": 0.0}
    row["loads_per_request"] = {"controlnet": 0.5, "lora": 0.5}
    monkeypatch.setattr(
        "mezzotint.sim.papers.addons.served.run_studies",
        lambda work, jobs, rows, launcher: {"rows": rows, "routing": [row], "placement": [row]},
    )
    files = [write(two_nodes(loras=ASKED), tmp_path / name).path for name in ("one.parquet", "two.parquet")]
    words = ["reproduce", "addons", "--trace", str(files[0]), "--trace", str(files[1]), "--name", "first"]
    assert main([*words, "-o", str(tmp_path / "all")]) == 0
    assert tried == [SIZES]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A, loras, LRU, loads per request by size (measured): 1: 0.750 (0.500), 2: 0.500"
    assert lines[1].startswith("first, loras, LRU, loads per request by size (measured): 1: 0.625, 2: 0.375, 3: 0.375")
    assert lines[2].startswith("two, loras, ")

    assert main([*words, "--sizes", "1,2", "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "addons.md").read_text(encoding="utf-8")
    results = json.loads((tmp_path / "out" / "addons.json").read_text())
    assert results["caches"]["points"] == 1
    assert results["caches"]["error"] == {"mean": 0.25, "largest": 0.25, "fitted_mean": 0.125, "fitted_largest": 0.125}
    assert [curve["service"] for curve in results["caches"]["curves"]] == ["A", "first", "two"]
    ours, theirs = page.split("**Service first, LoRAs**")
    assert "measured, LRU |" in ours
    assert "fitted, LRU |" in ours
    assert "measured, LRU" not in theirs
    assert "fitted, LRU" not in theirs
    assert theirs.count("| 0.625 | 0.375 | 0.375 |") == 4


def test_addons_check_fails_where_a_measured_point_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def curve(made: float, fitted: float) -> Curve:
        return Curve(
            "A", "loras", (1, 2), {1: 0.5}, {"lru": [made, 0.5], "lfu": [made, 0.5]}, {"lru": [fitted, 0.5]}, 0.25
        )

    found = [curve(0.54, 0.51)]
    monkeypatch.setattr(caches, "curves", lambda sizes, share: list(found))
    monkeypatch.setattr(
        "mezzotint.sim.papers.addons.served.run_studies", lambda *_: {"rows": 1, "routing": [], "placement": []}
    )
    monkeypatch.setattr("mezzotint.sim.papers.addons.page.render", lambda *_: "")
    monkeypatch.setattr("mezzotint.sim.papers.addons.page.draw_served", lambda _: Figure())
    words = ["reproduce", "addons", "-o", str(tmp_path)]
    assert main([*words, "--check"]) == 2, "there is nothing to compare with"
    assert main(words) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*words, "--check"]) == 0
    found[:] = [curve(0.56, 0.51)]
    capsys.readouterr()
    assert main([*words, "--check"]) == 1
    assert capsys.readouterr().err == (
        "mezzotint: service A, loras, LRU of 1, made: no longer within tolerance: expected 0.5 loads per request "
        "within 0.05, found 0.56, before 0.54\n"
    )
    found[:] = [curve(0.54, 0.51)]
    found[0].measured.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(caches, "errors", lambda _: {})
    assert main([*words, "--check"]) == 1
    assert "LRU of 1, fitted: was within tolerance, and the row is missing now" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_unmeasured_points_are_not_drawn() -> None:
    made = {"lru": [0.75, 0.5], "lfu": [0.75, 0.25]}
    known = Curve("A", "loras", (1, 2), {1: 0.5}, made, {"lru": [0.625, 0.5]}, 0.25)
    left, right = draw([known, Curve("mine", "loras", (1, 2), {}, made, {}, 0.25)]).axes
    shown = [[line.get_label() for line in panel.lines if line.get_label()[0] != "_"] for panel in (left, right)]
    assert shown == [["LRU, fitted", "LFU, made", "LRU, made", "LRU, measured"], ["LFU, made", "LRU, made"]]
    assert [panel.get_title(loc="left") for panel in (left, right)] == ["Service A: LoRAs", "mine: LoRAs"]


def test_failed_addon_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mezzotint.sim.papers.addons.served.finish",
        lambda points, work, jobs, launcher: Runs(tuple((point, "lost") for point in points)),
    )
    with pytest.raises(ConfigError, match=r"a run failed: lost \(mezzotint run system=diffusers .*router=random"):
        run_studies(tmp_path, 1, 10)
