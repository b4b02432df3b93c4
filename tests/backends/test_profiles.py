"""Profiles: times inside their grid, and refusals outside it."""

from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import mezzotint
from mezzotint.backends import profile
from mezzotint.backends.base import Asset, BackendError, Work, standalone_cost
from mezzotint.backends.profile import find, read, read_models
from mezzotint.backends.profiled import Profiled
from mezzotint.backends.table import Table
from mezzotint.files.document import parse

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
@pytest.mark.parametrize(("size", "edge"), [((832, 480, 81), (854, 480, 80)), ((1280, 720, 81), (1280, 720, 80))])
def test_usual_clips_of_wan_are_scaled_from_the_edge_and_named(
    size: tuple[int, int, int], edge: tuple[int, int, int]
) -> None:
    """They lie 1.3 % outside; what lies further outside is refused."""
    backend = Profiled("ascend-910b2")
    (width, height, frames), pixels = size, [at[0] * at[1] * at[2] for at in (size, edge)]
    clip, of_edge = (backend.steps([Work("wan2.2", *at[:2], 6, frames=at[2])], 6).seconds for at in (size, edge))
    assert clip == pytest.approx(of_edge * pixels[0] / pixels[1])
    (stated,) = (entry for entry in backend.assumptions() if "at the edge of the measured times" in entry.what)
    assert stated.value == [f"{width}x{height}x{frames}"]
    with pytest.raises(BackendError, match="outside the measured grid"):
        backend.steps([Work("wan2.2", 1280, 720, 6, frames=82)])


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
        ({"kernels": {"fused": 1e9}}, r"kernels\.fused"),
        ({"step": [{"width": 64, "height": 64, "seconds": "0.5"}]}, r"step\.0\.seconds"),
        ({"lora": LORA | {"spread": [1.1, 0.9]}}, r"lora\.spread"),
    ],
)
def test_malformed_profile_value_is_named(tmp_path: Path, change: dict[str, object], key: str) -> None:
    file = tmp_path / "g_m.yaml"
    file.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(BackendError, match=rf"g_m\.yaml: {key}"):
        read(file)


def test_day_without_quotes_is_the_day_in_them(tmp_path: Path) -> None:
    file = tmp_path / "g_m.yaml"
    for written in ("2026-11-01", "'2026-11-01'"):
        file.write_text(f"{yaml.safe_dump(GOOD)}date: {written}\n")
        assert read(file).date == "2026-11-01"


def test_folder_without_a_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g_m.json").write_text("{}")
    with pytest.raises(BackendError, match="found no profile"):
        Profiled("h100", folder=tmp_path)


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


def test_file_of_several_models_is_as_a_file_of_each(tmp_path: Path) -> None:
    content = yaml.safe_load(documented())
    own = {
        "first": {"step": content.pop("step")},
        "second": {"source": "another", "step": [{"width": 512, "height": 512, "seconds": 0.2}]},
    }
    del content["model"]
    (tmp_path / "both.yaml").write_text(yaml.safe_dump({**content, "models": own}))
    both = find("h100", [tmp_path])
    for name, keys in own.items():
        (tmp_path / "alone").mkdir(exist_ok=True)
        (tmp_path / "alone" / f"{name}.yaml").write_text(yaml.safe_dump({**content, "model": name, **keys}))
    assert both == find("h100", [tmp_path / "alone"])
    assert [both[name].source for name in own] == [content["source"], "another"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("{a: 1}", "several.yaml: models: expected the name of each model"),
        (
            "{a: {step: []}}\nmodel: b",
            "several.yaml: models: expected the name of each model with its own keys, and no",
        ),
        ("{a: {step: [{width: 8, height: 8, seconds: 1}], wrong: 1}}", "several.yaml: a: wrong"),
        ("{a: {step: []}}", "several.yaml: a: step: found no point"),
    ],
)
def test_wrong_model_of_several_is_named(tmp_path: Path, models: str, message: str) -> None:
    (tmp_path / "several.yaml").write_text(f"schema: 1\ngpu: h100\nsource: me\nmodels: {models}\n")
    with pytest.raises(BackendError, match=message):
        find("h100", [tmp_path])


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
    # The remedy is for what is outside: no other size makes a batch smaller.
    with pytest.raises(BackendError, match=r"batch 8 is outside the measured grid .*; lower max_batch"):
        seconds("step", side, side, 8)
    with pytest.raises(BackendError, match=r"batch 8 is outside the measured grid .*; use shapes=model"):
        seconds("step", 2048, side, 8)
    scaled = Profiled("h100", folder=tmp_path, extrapolate="warn")
    assert seconds("step", side, side, 8, scaled) == pytest.approx(0.68)
    assert seconds("step", 2048, side, 1, scaled) == pytest.approx(0.2)


def test_duplicate_profiles_are_refused_and_both_named(tmp_path: Path) -> None:
    for name in ("g_m.yaml", "mine.yml"):
        (tmp_path / name).write_text(yaml.safe_dump(GOOD))
    with pytest.raises(BackendError, match=r"g_m\.yaml and mine\.yml are both profiles of m on g"):
        Profiled("other", folder=str(tmp_path))


@given(content=st.binary(max_size=60) | st.text("schema:[]{}&*!-? \n\t'\"1.e9", max_size=60).map(str.encode))
def test_random_profile_bytes_are_refused_in_one_line(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "g_m.yaml").write_bytes(content)
    with pytest.raises(
        BackendError, match=r"g_m\.yaml: .*(restore|correct) or re-measure it, .*backend\.folder"
    ) as refused:
        find("g", [folder])
    assert "\n" not in str(refused.value)


def point(**values: float) -> dict[str, float]:
    return {"width": 64, "height": 64, "seconds": 0.5} | values


SAME_PIXELS = point(width=32, height=128)
APART = {"gpus": 1, "width": 64, "height": 64, "encoder_s": 0.1, "controlnet_s": 0.1, "receive_s": 0.1}


@pytest.mark.parametrize(
    ("name", "one", "other", "message"),
    [
        (
            "step",
            point(),
            point(seconds=0.7),
            r"step\.0 \(64x64, batch 1\) and step\.1 .*: found seconds of 0\.5 and of 0\.7",
        ),
        ("step", point(), SAME_PIXELS | {"seconds": 0.7}, r"\(64x64, batch 1\) and step\.1 \(32x128, batch 1\)"),
        ("gang_step", point(gpus=2), point(gpus=2, seconds=0.7), r"gang_step\.1 \(64x64, batch 1, gpus 2\)"),
        ("text_encode", {"batch": 2, "seconds": 0.1}, {"batch": 2, "seconds": 0.2}, r"text_encode\.0 \(batch 2\)"),
        ("vae_encode", point(frames=5), point(frames=5, seconds=0.7), r"vae_encode\.1 \(64x64x5"),
        ("vae_decode", point(), point(seconds=0.7), "vae_decode"),
        ("component", point(component="c"), point(component="c", seconds=0.7), "component c"),
        ("controlnet_step", point(nets=1), point(nets=1, seconds=0.7), "nets 1"),
        ("apart", APART, APART | {"receive_s": 0.2}, "found receive_s of 0.1 and of 0.2"),
        (
            "memory",
            {"width": 64, "height": 64, "batch": 1, "bytes": 7},
            {"width": 64, "height": 64, "batch": 1, "bytes": 8},
            r"operation step\).*found bytes of 7 and of 8",
        ),
        (
            "energy",
            {"width": 64, "height": 64, "batch": 1, "joules": 7.0},
            {"width": 64, "height": 64, "batch": 1, "joules": 8.0},
            "found joules of 7 and of 8",
        ),
    ],
)
def test_cell_has_one_value(
    name: str, one: dict[str, object], other: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "g_m.yaml"
    file.write_text(yaml.safe_dump(GOOD | {name: [one, other]}))
    with pytest.raises(BackendError, match=rf"g_m\.yaml: .*{message}.*; keep one"):
        read(file)
    file.write_text(yaml.safe_dump(GOOD | {name: [one, one]}))
    assert len(getattr(read(file), name)) == 2


@pytest.mark.parametrize("key", ["batch", "frames", "gpus", "nets"])
def test_points_that_differ_in_a_key_are_two_cells(key: str, tmp_path: Path) -> None:
    name = {"gpus": "gang_step", "nets": "controlnet_step"}.get(key, "step")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(GOOD | {name: [point(**{key: 2}), point(**{key: 3}, seconds=0.7)]}))
    assert len(getattr(read(tmp_path / "p.yaml"), name)) == 2


LARGER = point(width=128)


@pytest.mark.parametrize(
    ("name", "points", "message"),
    [
        ("step", [point(seconds=1e-9)], r"step\.0 \(64x64, batch 1\): found 1e-09 s, expected 1e-05 s or more"),
        ("step", [LARGER, point(seconds=0.0005)], r"step\.1 .* and step\.0 .*: found 0\.0005 and 0\.5 s, expected"),
        ("step", [point(), LARGER | {"seconds": 500}], "found 0.5 and 500 s, expected seconds within 100 times"),
        ("step", [point(), point(batch=2, seconds=600)], "found 0.5 and 600 s"),
        ("step", [point(), point(batch=4, seconds=0.3)], r"step\.1 \(64x64, batch 4\): found 0\.5 and 0\.3 s"),
        ("vae_decode", [point(batch=8, seconds=0.2), point()], "found 0.5 and 0.2 s, expected about as many or more"),
        ("gang_step", [point(gpus=2, seconds=0.0004)], r"gang_step\.0 .* and step\.0 .*: found 0\.0004 and 0\.5"),
        ("text_encode", [{"seconds": 1e-9}], r"text_encode\.0 \(batch 1\): found 1e-09"),
        ("controlnet_step", [point(nets=1), LARGER | {"nets": 1, "seconds": 500}], "found 0.5 and 500 s"),
        ("component", [point(component="c"), LARGER | {"component": "c", "seconds": 500}], "found 0.5 and 500 s"),
    ],
)
def test_seconds_out_of_proportion_need_to_be_confirmed(
    name: str, points: list[dict[str, object]], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "g_m.yaml"
    file.write_text(yaml.safe_dump(GOOD | {name: points}))
    with pytest.raises(BackendError, match=rf"g_m\.yaml: .*{message}.*confirmed: true"):
        read(file)
    file.write_text(yaml.safe_dump(GOOD | {name: [each | {"confirmed": True} for each in points]}))
    assert all(each.confirmed for each in getattr(read(file), name))


def test_small_images_may_take_as_long_as_large_ones(tmp_path: Path) -> None:
    """The seconds of small works are those of launching kernels, and those of large ones grow faster than pixels."""
    flat = [point(width=64 * 2**n) for n in range(8)]
    square = [point(width=64 * 2**n, seconds=0.5 * 4**n) for n in range(8)]
    for points in (flat, square):
        (tmp_path / "p.yaml").write_text(yaml.safe_dump(GOOD | {"step": points}))
        assert len(read(tmp_path / "p.yaml").step) == 8


def test_patches_are_in_proportion_to_whole_images(tmp_path: Path) -> None:
    patched = {"side": 64, "base_s": 0.0, "patch_s": 1e-4, "size_s": 0.0, "halo_s": 0.0, "source": "a test"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(GOOD | {"patched": patched}))
    with pytest.raises(BackendError, match=r"step\.0 .* and patched \(64x64, batch 1\) .*: found 0\.5 and 0\.0001 s"):
        read(tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(GOOD | {"patched": patched | {"patch_s": 0.01}}))
    assert read(tmp_path / "p.yaml").patched


def test_file_is_parsed_once_and_anew_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "h100_m.yaml"
    text = "schema: 1\nmodel: m\ngpu: h100\nsource: test\nstep: [{width: 64, height: 64, batch: 1, seconds: %s}]\n"
    file.write_text(text % 0.5)
    parsed: list[bytes] = []
    monkeypatch.setattr(profile, "parse", lambda content: (parsed.append(content), parse(content))[1])
    assert read_models(file) == read_models(file)
    assert len(parsed) == 1
    file.write_text(text % 0.25)
    assert read_models(file)[0].tables["step"].at(64 * 64, 1) == 0.25
    assert len(parsed) == 2
