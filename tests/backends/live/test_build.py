"""Building: published sizes, round trips through a folder, and one clear error for each bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.diffusers_.families import FAMILIES  # noqa: E402
from mezzotint.backends.diffusers_.networks.architectures import architecture, part  # noqa: E402
from mezzotint.backends.diffusers_.networks.build import folder_weight_bytes  # noqa: E402
from mezzotint.backends.diffusers_.networks.random_weights import count_parameters, weight_bytes  # noqa: E402
from mezzotint.extras import remedy  # noqa: E402

PUBLISHED = yaml.safe_load(files("mezzotint.backends.diffusers_.networks").joinpath("architectures.yaml").read_text())


@pytest.mark.parametrize(
    "name", [name for name, each in PUBLISHED["components"].items() if each.get("parameters_millions") is not None]
)
def test_full_network_has_the_published_number_of_parameters(name: str) -> None:
    network = part(name)
    assert round(count_parameters(network) / 1e6, 2) == network.parameters_millions


def test_full_variant_needs_the_published_memory() -> None:
    expected_gib = {"sd15": 1.99, "sdxl": 6.46, "sd35_large": 25.55, "flux_dev": 31.42, "sana_1600m": 8.44}
    for family, entry in FAMILIES.items():
        shape = architecture(family)
        assert shape.variant == entry.default
        needed = weight_bytes(shape.parts.values(), torch.bfloat16)
        assert needed / 2**30 == pytest.approx(expected_gib[entry.default], abs=0.01)


def test_equal_specs_build_equal_models_and_seeds_differ(model: Any) -> None:
    same, other = build(model.spec), build(replace(model.spec, seed=8))
    ours, theirs, others = (each.denoiser.state_dict() for each in (model, same, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert any(not torch.equal(ours[name], others[name]) for name in ours)


def test_saved_model_round_trips(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path)
    stored = build(ModelSpec(model.spec.family, weights=str(tmp_path), scale="tiny"))
    noise = model.noise(64, 64, [1], 3)
    ours = model.denoise(model.encode(["x"]), noise, 3).latents
    theirs = stored.denoise(stored.encode(["x"]), noise, 3).latents
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    values = sum(each.numel() for each in model.denoiser.state_dict().values())
    assert folder_weight_bytes(tmp_path / model.family.denoiser, torch.bfloat16) == 2 * values


def test_planned_memory_covers_only_the_loaded_files(tiny: dict[str, Any], tmp_path: Path) -> None:
    """A hub folder also holds single-file checkpoints and copies in half precision."""
    tiny["sd15"].save(tmp_path)
    weights = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    before = folder_weight_bytes(tmp_path / "unet", torch.float32)
    (tmp_path / "unet" / "diffusion_pytorch_model.fp16.safetensors").write_bytes(weights.read_bytes())
    (tmp_path / "all_in_one.safetensors").write_bytes(b"not read")
    assert folder_weight_bytes(tmp_path / "unet", torch.float32) == before
    build(ModelSpec("sd15", weights=str(tmp_path), scale="tiny"))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(BackendError, match=r"diffusion_pytorch_model\.safetensors is not a whole"):
        build(ModelSpec("sd15", weights=str(tmp_path)))
    weights.write_bytes(b"\xff" * 64)
    with pytest.raises(BackendError, match="not a whole safetensors"):
        build(ModelSpec("sd15", weights=str(tmp_path)))


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BackendError, match=r"unknown model family .dalle.; .*flux, sana, sd15, sd3, sdxl"):
        build(ModelSpec("dalle"))
    with pytest.raises(BackendError, match=r"no full variant 'sdxl' *; choose one of flux_dev, flux_schnell"):
        build(ModelSpec("flux", variant="sdxl"))
    with pytest.raises(BackendError, match="'tiny' or 'full'"):
        build(ModelSpec("flux", scale="huge"))  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="float32, float16, bfloat16"):
        build(ModelSpec("flux", scale="tiny", dtype="int8"))  # type: ignore[arg-type]


def test_malformed_pipeline_folder_is_refused(tmp_path: Path) -> None:
    spec = ModelSpec("sdxl", weights=str(tmp_path))
    with pytest.raises(BackendError, match="no model_index"):
        build(spec)
    with pytest.raises(BackendError, match="is not a folder"):
        build(ModelSpec("sdxl", weights=str(tmp_path / "absent")))
    index = tmp_path / "model_index.json"
    index.write_text('{"_class_name": "Stable', encoding="utf-8")
    with pytest.raises(BackendError, match="not a readable pipeline index"):
        build(spec)
    index.write_text(json.dumps({"_class_name": "FluxPipeline"}), encoding="utf-8")
    with pytest.raises(BackendError, match=r"holds a FluxPipeline, family 'sdxl' needs a StableDiffusionXLPipeline"):
        build(spec)
    index.write_text(json.dumps({"_class_name": "StableDiffusionXLPipeline"}), encoding="utf-8")
    with pytest.raises(BackendError, match="could not be loaded as StableDiffusionXLPipeline"):
        build(spec)


def test_solver_with_history_in_a_folder_is_refused_or_replaced(tiny: dict[str, Any], tmp_path: Path) -> None:
    """SD1.5's own folder names PNDM."""
    tiny["sd15"].save(tmp_path)
    config = tmp_path / "scheduler" / "scheduler_config.json"
    stored = json.loads(config.read_text(encoding="utf-8"))
    stored["_class_name"] = "PNDMScheduler"
    config.write_text(json.dumps(stored), encoding="utf-8")
    index = json.loads((tmp_path / "model_index.json").read_text(encoding="utf-8"))
    index["scheduler"] = ["diffusers", "PNDMScheduler"]
    (tmp_path / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(BackendError, match="PNDMScheduler keeps"):
        build(ModelSpec("sd15", weights=str(tmp_path)))
    model = build(ModelSpec("sd15", weights=str(tmp_path), scheduler="DDIMScheduler"))
    assert model.denoise(model.encode(["x"]), model.noise(64, 64, [1], 2), 2).latents.isfinite().all()


def test_missing_live_extra_is_named_and_backends_still_imports() -> None:
    """A process in which torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['diffusers'] = None\n"
        "import mezzotint.backends\n"
        "try:\n    import mezzotint.backends.diffusers_\n"
        "except ImportError as error:\n    print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip().endswith(remedy("live"))
