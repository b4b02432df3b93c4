"""The H800 profile, calibrated on four settings of Katz's logs, predicts the others."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers.stages.page import render
from mezzotint.sim.papers.stages.replay import STAGES, STATISTICS, Setting, max_error, settings


@pytest.fixture(scope="module")
def predicted() -> list:
    return settings(lambda _, controlnets, loras: loras == 2)


def test_uncalibrated_settings_are_predicted_within_the_stated_error(predicted: list) -> None:
    """Stage by stage, with the errors of results/swiftdiffusion.md: a change that makes them larger fails."""
    assert {(each.system, each.name) for each in predicted} == {
        *(("diffusers", "3C/2L"), ("nirvana-10", "3C/2L"), ("nirvana-20", "3C/2L"), ("katz", "3C/2L")),
        *(("katz", "1C/2L"), ("distrifusion-add-ons", "1C/2L"), ("distrifusion-add-ons", "3C/2L")),
    }
    max_errors = {"latency_s": 0.05, "denoise_s": 0.05, "lora_s": 0.07, "other_s": 0.18, "patch_step": 2.5}
    for stage in STAGES:
        for statistic in STATISTICS:
            assert max_error(predicted, stage, statistic) <= max_errors[stage], (stage, statistic)


def test_stages_page_has_each_predicted_setting(predicted: list) -> None:
    page = render({"settings": [asdict(each) for each in predicted]})
    assert page.count("**predicted**") == 2 * len(predicted) + 1
    assert max(map(len, page.splitlines())) < 250


@pytest.mark.parametrize("system", ["diffusers", "katz"])
def test_calibrated_settings_are_reproduced(system: str) -> None:
    for each in settings(lambda name, nets, loras: name == system and (nets, loras) in ((0, 1), (3, 0))):
        for statistic in STATISTICS:
            assert abs(each.error("latency_s", statistic) or 0.0) < 0.01, (each.name, statistic)


def test_stages_command_reports_the_largest_predicted_error_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = dict.fromkeys(STAGES, 2.0)

    def setting(system: str, nets: int, loras: int, mean: dict[str, float], median: dict[str, float]) -> Setting:
        return Setting(system, nets, loras, dict.fromkeys(STATISTICS, alike), {"mean": mean, "median": median})

    made = [
        setting("diffusers", 0, 0, dict.fromkeys(STAGES, 9.0), dict.fromkeys(STAGES, 9.0)),  # calibrated
        setting("diffusers", 3, 2, alike | {"latency_s": 1.5}, alike),
        setting("katz", 3, 2, alike | {"latency_s": 2.2, "patch_step": 5.0}, alike | {"lora_s": 1.0}),
    ]
    monkeypatch.setattr("mezzotint.sim.papers.stages.replay.settings", lambda: made)
    words = ["reproduce", "stages", "-o", str(tmp_path)]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    off, medians = {"latency_s": "0.25", "patch_step": "3"}, {"lora_s": "0.5"}
    files = [tmp_path / f"swiftdiffusion.{kind}" for kind in ("md", "json")]
    assert lines == [
        *(
            f"{stage}: largest error of a predicted setting: mean {off.get(stage, '0')}, "
            f"median {medians.get(stage, '0')}"
            for stage in STAGES
        ),
        *map(str, files),
    ]
    assert files[0].read_text(encoding="utf-8") == render(json.loads(files[1].read_text()))
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_stages_check_fails_where_a_stage_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def both(mean: dict[str, float], median: dict[str, float]) -> dict[str, dict[str, float]]:
        return {"mean": mean, "median": median}

    logged = both({"latency_s": 2.0, "patch_step": 17.0}, {"latency_s": 1.9, "patch_step": 17.0})
    near = {"latency_s": 1.95, "patch_step": 17.0}
    made = [Setting("katz", 3, 2, logged, both({"latency_s": 2.05, "patch_step": 17.5}, near))]
    monkeypatch.setattr("mezzotint.sim.papers.stages.replay.settings", lambda: made)
    words = ["reproduce", "stages", "-o", str(tmp_path)]
    assert main([*words, "--check"]) == 2, "there is nothing to compare with"
    assert main(words) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*words, "--check"]) == 0
    lost = both({"latency_s": 2.2, "patch_step": 18.5}, near | {"latency_s": 2.1})
    made[:] = [Setting("katz", 3, 2, logged, lost)]
    capsys.readouterr()
    assert main([*words, "--check"]) == 1
    lost = ": no longer within tolerance:"
    assert capsys.readouterr().err.splitlines() == [
        f"mezzotint: katz 3C/2L, mean latency_s{lost} expected 2 within 5%, found 2.2, before 2.05",
        f"mezzotint: katz 3C/2L, mean patch_step{lost} expected 17 within 1 step, found 18.5, before 17.5",
        f"mezzotint: katz 3C/2L, median latency_s{lost} expected 1.9 within 5%, found 2.1, before 1.95",
    ]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
