"""The shipped profiles: listed with their sources, and what they can and cannot answer."""

from pathlib import Path

import pytest

from mezzotint.backends.base import Asset, BackendError, Work, standalone_cost
from mezzotint.backends.profile import Profile, read, read_models, shipped, within
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.choices import engine_models

SHIPPED = within(shipped())
MODEL = Asset("model", "z-image-turbo", "z-image-turbo")


def test_every_shipped_profile_is_listed_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == len(SHIPPED) > 50
    for profile, line in zip(sorted(SHIPPED, key=lambda each: (each.gpu, each.model)), lines, strict=True):
        assert line.split()[:2] == [profile.gpu, profile.model]
        assert " ".join(profile.source.split()) in line
        assert not profile.source.startswith("MLPerf") or "not verified by MLCommons" in line


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda each: f"{each.gpu}_{each.model}")
def test_every_shipped_profile_states_its_basis_and_error_source(profile: Profile) -> None:
    assert profile.basis is not None
    assert len(profile.source) > 20
    if profile.service_error is not None:
        assert "service_error: " in (profile.validation or "")
    assert (profile.basis in ("assumed", "scaled")) == ("assumed" in profile.source)


def test_shipped_profile_files_are_named_by_gpu_and_model() -> None:
    """A run reads only the files of its GPU, by their names; a file of several models names the GPU alone."""
    files = {entry.name: read_models(entry) for entry in shipped().iterdir() if entry.name.endswith(".yaml")}
    for name, profiles in files.items():
        assert {profile.gpu for profile in profiles} == {name.partition("_")[0]}
        assert len(profiles) > 1 or "_engines" in name or name == f"{profiles[0].gpu}_{profiles[0].model}.yaml"


def test_every_model_on_an_engine_has_a_profile_that_serves_it() -> None:
    for name, node in engine_models().items():
        model = build(node["large"], "models.large", Model)
        servers = [profile for profile in SHIPPED if profile.model == name]
        assert servers, name
        sizes = {(at.width, at.height, at.frames) for profile in servers for at in profile.step}
        assert (model.width, model.height, model.frames) in sizes


def test_user_profile_folder_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(
        "{schema: 1, model: m, gpu: a-gpu, source: me, step: [{width: 8, height: 8, batch: 2, seconds: 1}]}"
    )
    assert main(["list", "profiles", "--folder", str(tmp_path)]) == 0
    assert "a-gpu" in capsys.readouterr().out
    (tmp_path / "mine.yaml").write_text("nothing")
    assert main(["list", "profiles", "--folder", str(tmp_path)]) == 2
    assert main(["list", "eviction", "--folder", str(tmp_path)]) == 2


@pytest.mark.parametrize("factor", [0.98, 1.03])
def test_service_factor_scales_seconds_and_joules_but_not_loads(factor: float) -> None:
    plain, moved = Profiled("h100"), Profiled("h100", service_factor=factor)
    work = Work("z-image-turbo", 1024, 1024, 9)
    one, other = standalone_cost(plain, work), standalone_cost(moved, Work("z-image-turbo", 1024, 1024, 9))
    assert other.denoise_s == pytest.approx(factor * one.denoise_s)
    assert other.other_s == pytest.approx(factor * one.other_s)
    assert moved.load(MODEL).seconds == plain.load(MODEL).seconds
    assert [assumption.value for assumption in moved.assumptions() if "times" in assumption.what] == [factor]
    assert not [assumption for assumption in plain.assumptions() if assumption.value == factor]


@pytest.mark.parametrize("factor", [0.0, 1e7, float("nan")])
def test_invalid_service_factor_is_refused(factor: float) -> None:
    node = {"_target_": "mezzotint.backends.profiled.Profiled", "gpu": "h100", "service_factor": factor}
    with pytest.raises(ConfigError, match=r"backend\.service_factor"):
        build(node, "backend")


@pytest.mark.parametrize(("gpus", "seconds"), [(2, 2.68), (4, 1.63)])
def test_group_takes_the_measured_time_of_its_size(gpus: int, seconds: float) -> None:
    step = Profiled("h100").group_step(Work("flux-dev-xdit", 1024, 1024, 28), gpus)
    assert step is not None
    assert 28 * step.seconds == pytest.approx(seconds, rel=1e-4)


def test_profile_of_a_vae_alone_serves_nothing() -> None:
    backend = Profiled("rtx-4090")
    assert backend.profiles["sdxl"].tables["vae_decode"].at(512 * 512, 1) == 0.057
    with pytest.raises(BackendError, match="nobody measured how long a step takes"):
        backend.require("sdxl")


@pytest.mark.parametrize("profile", SHIPPED, ids=lambda each: f"{each.gpu}_{each.model}")
def test_every_shipped_profile_gives_its_measured_times_back(profile: Profile) -> None:
    for operation in ("step", "text_encode", "vae_encode", "vae_decode"):
        for at in getattr(profile, operation):
            assert profile.tables[operation].at(at.pixels, at.batch) == at.seconds


HELD_OUT = {
    "sdxl": {"step": 0.12, "text_encode": 0.11, "vae_encode": 0.04, "vae_decode": 0.04},
    "sd1.5": {"step": 0.12, "text_encode": 0.58, "vae_encode": 0.03, "vae_decode": 0.02},
}
"""Largest error by operation. Text encoding and short steps wait for the host."""


@pytest.mark.parametrize(
    ("model", "operation"), [(model, each) for model, errors in HELD_OUT.items() for each in errors]
)
def test_h100_profile_predicts_sizes_and_batches_that_were_left_out(model: str, operation: str) -> None:
    """Measured some minutes later into a profile of their own; results/validation-h100.md has the tables."""
    held_out = read(Path(__file__).parent / "held_out" / f"h100-diffusers_{model}.yaml")
    (ours,) = (each for each in SHIPPED if (each.gpu, each.model) == (held_out.gpu, held_out.model))
    # Of one cell the repeats were a third apart: the host stalled.
    steady = [at for at in getattr(held_out, operation) if at.spread_s < 0.25 * at.seconds]
    assert len(steady) >= 2
    for at in steady:
        expected_s = pytest.approx(at.seconds, rel=HELD_OUT[model][operation])
        assert ours.tables[operation].at(at.pixels, at.batch) == expected_s


def test_measured_patches_save_less_the_larger_the_batch() -> None:
    """As PatchedServe's Figure 14 says; results/validation-h100.md has what was measured, 48 to 1 %."""
    (ours,) = (each for each in SHIPPED if each.gpu == "h100-slow-host")
    assert ours.patched is not None
    sizes = [(512, 512), (768, 768), (1024, 1024)]
    saved = []
    for images in (1, 2, 3, 4):
        turns = sum(ours.tables["step"].at(w * h, images) for w, h in sizes)
        saved.append(1 - ours.patched.step_s(sizes * images, 256) / turns)
    assert saved == sorted(saved, reverse=True)
    assert saved[0] == pytest.approx(0.48, abs=0.06)
    assert saved[-1] == pytest.approx(0.01, abs=0.06)
