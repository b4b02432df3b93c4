"""Profiles: times inside their grid, and refusals outside it."""

from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import mezzotint
from backends import profile
from backends.base import Asset, BackendError, Work, standalone_cost
from backends.profile import find, read
from backends.profiled import Profiled
from backends.table import Table

SDXL = Asset("model", "sdxl", "sdxl")


def table(points: dict[tuple[int, int], float]) -> Table:
    return Table((pixels, batch, seconds) for (pixels, batch), seconds in points.items())


GRID = {(100, 1): 1.0, (400, 1): 4.0, (100, 4): 3.0, (400, 4): 12.0, (400, 16): 44.0}


@pytest.mark.parametrize(("at", "seconds"), GRID.items())
def test_measured_points_are_returned_as_measured(at: tuple[int, int], seconds: float) -> None:
    assert table(GRID).covers(*at)
    assert table(GRID).at(*at) == seconds


@given(pixels=st.integers(100, 400), batch=st.integers(1, 4))
def test_time_inside_the_grid_lies_between_its_corners(pixels: int, batch: int) -> None:
    grid = table(GRID)
    assert grid.covers(pixels, batch)
    seconds = grid.at(pixels, batch)
    assert 1.0 <= seconds <= 12.0
    assert grid.at(min(pixels + 10, 400), batch) >= seconds
    assert grid.at(pixels, min(batch + 1, 4)) >= seconds


@pytest.mark.parametrize("at", [(99, 1), (401, 1), (400, 17), (400, 0), (100, 8)])
def test_points_outside_the_grid_are_not_covered(at: tuple[int, int]) -> None:
    """(100, 8) lies between batches 4 and 16, but 16 was not measured at 100 pixels."""
    assert not table(GRID).covers(*at)


@pytest.mark.parametrize(
    ("gpu", "model", "size", "steps", "seconds"),
    [
        ("a10g", "nirvana-large", 768, 50, 8.59),
        ("a10g", "nirvana-small", 768, 50, 3.05),
        ("mi210", "sd3.5-large", 1024, 50, 91.5),
        ("mi210", "sdxl", 1024, 50, 16.5),
        ("mi210", "sana-1.6b", 1024, 50, 6.5),
        ("h800", "sdxl", 1024, 50, 2.88),
    ],
)
def test_shipped_profiles_give_published_latency(gpu: str, model: str, size: int, steps: int, seconds: float) -> None:
    cost = standalone_cost(Profiled(gpu), Work(model, size, size, steps))
    assert cost.denoise_s + cost.other_s == pytest.approx(seconds, abs=0.005)


def test_refinement_encodes_the_image_first() -> None:
    """Katz artifact: Nirvana-10 without add-ons takes 2.38 s, 0.07 s of it encoding the cached image."""
    cost = standalone_cost(Profiled("h800"), Work("sdxl", 1024, 1024, 50, skipped=10, refine=True))
    assert cost.denoise_s + cost.other_s == pytest.approx(2.38, rel=0.02)


@pytest.mark.invariant(9)
def test_time_outside_the_grid_is_refused_with_the_grid() -> None:
    with pytest.raises(
        BackendError, match=r"sdxl on mi210: step at 512x512 .* grid .batch 1: 1048576 .*extrapolate=warn"
    ):
        standalone_cost(Profiled("mi210"), Work("sdxl", 512, 512, 50))


@pytest.mark.invariant(9)
def test_extrapolation_scales_by_pixels_and_is_stated() -> None:
    backend = Profiled("mi210", extrapolate="warn")
    assert standalone_cost(backend, Work("sdxl", 512, 512, 50)).denoise_s == pytest.approx(16.5 / 4)
    assert standalone_cost(backend, Work("sdxl", 2048, 1024, 50)).denoise_s == pytest.approx(33.0)
    assumptions = {assumption.what: assumption.value for assumption in backend.assumptions()}
    assert assumptions["sizes whose step time of sdxl on mi210 is extrapolated"] == 2


def test_unpublished_load_time_is_stated_as_an_assumption() -> None:
    backend = Profiled("mi210", unpublished_load_s=12.5)
    assert not [assumption for assumption in backend.assumptions() if "load time" in assumption.what]
    assert backend.load(SDXL).seconds == 12.5
    assert [
        assumption.value for assumption in backend.assumptions() if assumption.what == "load time of sdxl on mi210 [s]"
    ] == [12.5]


@pytest.mark.parametrize("gpu", ["v100", "nosuch"])
def test_gpu_without_profiles_is_refused(gpu: str) -> None:
    with pytest.raises(BackendError, match=rf"no profile of sdxl on {gpu} \(profiles of {gpu}: none yet\)"):
        Profiled(gpu).require("sdxl")


GOOD = {
    "schema": 1,
    "model": "m",
    "gpu": "g",
    "source": "a test",
    "step": [{"width": 64, "height": 64, "batch": 1, "seconds": 0.5}],
}

LORA = {"bytes": 1} | dict.fromkeys(("read_s", "attach_s", "fuse_s", "unfuse_s", "patch_s"), 1.0)


def test_folder_of_profiles_replaces_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "mi210_sdxl.yaml").write_text(yaml.safe_dump(GOOD | {"model": "sdxl", "gpu": "mi210", "load_s": 3.0}))
    backend = Profiled("mi210", folder=str(tmp_path))
    assert standalone_cost(backend, Work("sdxl", 64, 64, 10)).denoise_s == 5.0
    assert backend.load(SDXL).seconds == 3.0
    assert "sana-1.6b" in backend.profiles


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"step": []}, "step"),
        ({"step": [{"width": 64, "height": 64, "seconds": float("nan")}]}, r"step\.0\.seconds"),
        ({"step": [{"width": 64, "height": 64, "second": 1}]}, r"step\.0\.second"),
        ({"schema": 2}, "schema"),
        ({"colour": "red"}, "colour"),
        ({"basis": "guessed"}, "basis"),
        ({"load_s": True}, "load_s"),
        ({"step": [{"width": 64, "height": 64, "seconds": "0.5"}]}, r"step\.0\.seconds"),
        ({"lora": LORA | {"spread": [1.1, 0.9]}}, r"lora\.spread"),
    ],
)
def test_malformed_profile_value_is_named(tmp_path: Path, change: dict[str, object], key: str) -> None:
    file = tmp_path / "g_m.yaml"
    file.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(BackendError, match=rf"g_m\.yaml: {key}"):
        read(file)


NAMES = st.text("abcDEF09 -é().", min_size=1, max_size=12).filter(lambda name: not name.startswith("."))


@given(
    profiles=st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), st.integers(1, 9), min_size=1),
    names=st.lists(NAMES, min_size=4, max_size=4, unique_by=str.lower),
    suffix=st.sampled_from([".yaml", ".yml", ".YAML"]),
)
def test_profile_is_found_by_its_content_and_not_its_file_name(
    profiles: dict[tuple[str, str], int], names: list[str], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    for name, ((gpu, model), load_s) in zip(names, profiles.items(), strict=False):
        profile = GOOD | {"gpu": gpu, "model": model, "load_s": float(load_s)}
        (folder / f"{name}{suffix}").write_text(yaml.safe_dump(profile))
    (folder / ".hidden.yaml").write_text("{")
    (folder / "notes.txt").write_text("{")
    for gpu in "ab":
        found = {model: profile.load_s for model, profile in find(gpu, [folder]).items()}
        assert found == {model: load_s for (its, model), load_s in profiles.items() if its == gpu}


def documented() -> str:
    """Return the smallest profile, as the documentation of the format prints it."""
    text = profile.__doc__ or ""
    lines = text.partition("::\n\n")[2].split("\n\n``model``")[0]
    return dedent(lines)


def test_documented_profile_serves_at_its_step_time(tmp_path: Path) -> None:
    (tmp_path / "any name.yaml").write_text(documented())
    run = mezzotint.run(
        "models=sdxl",
        "models.large.name=my-model",
        "cluster=h100",
        f"backend.folder='{tmp_path}'",
        "trace.requests=4",
        "arrivals.rate_rpm=1",
    )
    assert run.requests.denoise_s.tolist() == pytest.approx([50 * 0.1] * 4)
    assert run.summary["requests"]["completed"] == 4


def test_documented_rules_scale_a_profile(tmp_path: Path) -> None:
    """Times are interpolated in pixels and batch. Outside the grid they are refused, or its edge is scaled. Decoding
    scales with the images."""
    content = yaml.safe_load(documented())
    batched = {"width": 1024, "height": 1024, "batch": 4, "seconds": 0.34}
    small = {"width": 512, "height": 512, "seconds": 0.04}
    content["step"] += [batched, small]
    content["vae_decode"] = [{"width": 1024, "height": 1024, "batch": 2, "seconds": 0.2}]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content))
    backend = Profiled("h100", folder=tmp_path)
    side, pixels = 1024, 1024**2

    def seconds(operation: str, width: int, height: int, batch: int, backend: Profiled = backend) -> float:
        return backend.seconds(operation, "my-model", width, height, batch)

    assert seconds("step", side, side, 2) == pytest.approx(0.1 + (0.34 - 0.1) / 3)
    share = (768 * side - pixels / 4) / (pixels * 3 / 4)
    assert seconds("step", 768, side, 1) == pytest.approx(0.04 + 0.06 * share)
    assert seconds("text_encode", 1, 1, 1) == 0.0
    assert seconds("vae_decode", side, side, 6) == pytest.approx(0.6)
    with pytest.raises(BackendError, match="outside the measured grid"):
        seconds("step", side, side, 8)
    scaled = Profiled("h100", folder=tmp_path, extrapolate="warn")
    assert seconds("step", side, side, 8, scaled) == pytest.approx(0.68)
    assert seconds("step", 2048, side, 1, scaled) == pytest.approx(0.2)


def test_duplicate_profiles_are_refused_and_both_named(tmp_path: Path) -> None:
    for name in ("g_m.yaml", "mine.yml"):
        (tmp_path / name).write_text(yaml.safe_dump(GOOD))
    with pytest.raises(BackendError, match=r"g_m\.yaml and mine\.yml are both profiles of m on g"):
        Profiled("other", folder=str(tmp_path))


def test_malformed_profile_is_not_skipped(tmp_path: Path) -> None:
    """Otherwise the built-in profile would be used silently."""
    (tmp_path / "mi210-sdxl.yaml").write_text(yaml.safe_dump(GOOD | {"colour": "red"}))
    with pytest.raises(BackendError, match=r"mi210-sdxl\.yaml: colour"):
        Profiled("mi210", folder=str(tmp_path))


@given(content=st.binary(max_size=60) | st.text("schema:[]{}&*!-? \n\t'\"1.e9", max_size=60).map(str.encode))
def test_random_profile_bytes_are_refused_in_one_line(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "g_m.yaml").write_bytes(content)
    with pytest.raises(
        BackendError, match=r"g_m\.yaml: .*(restore|correct) or re-measure it, .*backend\.folder"
    ) as refused:
        find("g", [folder])
    assert "\n" not in str(refused.value)
