"""SGLang's performance baselines, read as a profile."""

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.backends.base import BackendError, Work, standalone_cost
from mezzotint.backends.baselines import read
from mezzotint.backends.profile import file_name
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cli import main

SCENARIO: dict[str, Any] = {
    "expected_load_ms": 40799.72,
    "stages_ms": {
        "TextEncodingStage": 200.0, "ImageVAEEncodingStage": 50.0, "DenoisingStage": 999.0,
        "LatentPreparationStage": 1.0, "DecodingStage": 20.0,
    },
    "denoise_step_ms": {"0": 1.0, "1": 900.0, "2": 100.0, "10": 102.0, "3": 101.0},
    "expected_e2e_ms": 1200.0,
}  # fmt: skip


def written(folder: Path, scenario: Any = SCENARIO) -> Path:
    path = folder / "h100.json"
    path.write_text(json.dumps({"scenarios": {"a_t2i": scenario}}))
    return path


def test_sglang_scenario_becomes_a_profile(tmp_path: Path) -> None:
    """The first two steps are launch artefacts and are left out; step keys are sorted as numbers."""
    profile = read(written(tmp_path), "a_t2i", "g", "m", (512, 768))
    assert profile.step[0].seconds == pytest.approx(0.101)
    assert (profile.step[0].width, profile.step[0].height) == (512, 768)
    assert profile.text_encode[0].seconds == pytest.approx(0.2)
    assert profile.vae_encode[0].seconds == pytest.approx(0.05)
    assert profile.vae_decode[0].seconds == pytest.approx(0.02)
    assert profile.load_s == pytest.approx(40.79972)
    assert (profile.basis, profile.service_error) == ("published", None)


def test_sglang_profile_can_be_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["calibrate", "sglang", str(written(tmp_path)), "--scenario", "a_t2i", "--gpu", "g", "--model", "m"]
    assert main([*command, "-o", str(tmp_path / "mine")]) == 0
    backend = Profiled("g", folder=tmp_path / "mine")
    found = standalone_cost(backend, Work("m", 1024, 1024, 5))
    assert found.denoise_s + found.other_s == pytest.approx(5 * 0.101 + 0.22)
    assert main([*command, "--size", "huge"]) == 2
    assert main([*command, "--size", "512,768"]) == 2
    assert main(["calibrate", "sglang", "nowhere.json", *command[3:]]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("gpu", "model"), [("a_b", "m"), (".g", "m"), ("g", "a/b"), ("", "m")])
def test_names_that_make_no_file_name_are_refused(gpu: str, model: str) -> None:
    with pytest.raises(BackendError, match="cannot name a profile file"):
        file_name(gpu, model)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({**SCENARIO, "denoise_step_ms": {}}, r"a_t2i: denoise_step_ms: .*at least 1 item"),
        ({**SCENARIO, "denoise_step_ms": {"0": "fast"}}, r"denoise_step_ms\.0: .*, found 'fast'"),
        ({**SCENARIO, "stages_ms": None}, "stages_ms: .*valid dictionary"),
        (5, r"scenarios\.a_t2i: .*an object, found 5"),
    ],
)
def test_malformed_scenario_is_refused(tmp_path: Path, scenario: Any, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        read(written(tmp_path, scenario), "a_t2i", "g", "m", (64, 64))


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]"])
def test_malformed_baseline_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(BackendError, match=r"b\.json: a_t2i: \w"):
        read(tmp_path / "b.json", "a_t2i", "g", "m", (64, 64))
