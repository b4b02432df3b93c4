"""SwiftDiffusion's add-ons on real pipelines behind the engine: decisions are carried out, at the recorded times."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import TraceInputs, assemble, replay
from tests.sim.lab import configured

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.diffusers_.addons import library  # noqa: E402
from mezzotint.backends.diffusers_.addons.controlnet import inline  # noqa: E402
from mezzotint.backends.diffusers_.addons.library import AddOns  # noqa: E402
from mezzotint.backends.diffusers_.addons.lora import Loras, read_lora, write_random_lora  # noqa: E402

STEPS = 8
BOUND = 2
"""Levels of 255 by which a pixel may differ from the stock way: serial ControlNets, LoRAs fused by PEFT."""

LIVE = [
    "backend=live",
    "backend.device=cpu",
    "models.large.name=sdxl-tiny",
    "models.large.width=64",
    "models.large.height=64",
    f"models.large.steps={STEPS}",
    "trace=add-ons",
    "trace.lora_bytes=[]",
    "trace.gap_s=2",
    "arrivals=trace",
]
ASYNC = ["lora_loading=async", "lora_fetch=link", "lora_fetch.latency_s=0.06"]
SHARED = ["system=diffusers", *ASYNC, "controlnet_placement=shared", "allocation=controlnet-servers"]
STAGES = ["executor=stages", "~executor.max_batch"]
SWIFT = ["system=swiftdiffusion", "lora_fetch.latency_s=0.06", "~kernels"]


@pytest.fixture(scope="module")
def model() -> Any:
    """As the live backend builds it."""
    return build(ModelSpec("sdxl", scale="tiny"))


@pytest.fixture(autouse=True)
def _strong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make LoRAs strong enough to show in the pixels."""
    monkeypatch.setattr(library, "write_random_lora", partial(write_random_lora, std=0.1))


def served(images: Path, *words: str) -> tuple[pd.DataFrame, Any]:
    """Return the requests of a live run, and what the rows asked for."""
    images.mkdir()
    config = configured(*words, *LIVE, f"backend.images={images}")
    settings = check(config)
    made = assemble(settings)
    rows = replay(settings, made, config).requests.to_pandas()
    assert (rows.outcome == "completed").all()
    return rows, TraceInputs(made.trace)


def written_lora(model: Any, folder: Path, n: int) -> Any:
    """Return LoRA ``n`` as the live backend writes it, alone in ``folder``."""
    folder.mkdir(exist_ok=True)
    AddOns(model, folder).lora_bytes(f"lora-{n + 1}")
    (file,) = folder.glob("*.safetensors")
    return read_lora(file, f"style{n}")


def stock(model: Any, folder: Path, asked: Any, row: int, nets: int, loras: int, boundary: int) -> np.ndarray:
    """Make the image of ``row`` by diffusers' own way, its LoRAs fused after ``boundary`` steps."""
    beside, peft = AddOns(model, folder), Loras(model)
    seed, conditioning = asked.seed(row), model.encode([asked.prompt(row)])
    names = [f"controlnet-{n + 1}" for n in range(nets)]
    hints = {name: beside.hint(name, 64, 64, seed) for name in names}
    weights = [written_lora(model, folder / f"lora-{n + 1}", n) for n in range(loras)]

    def at(done: int, _: Any) -> None:
        if done == boundary and weights:
            peft.patch(weights)

    if boundary == 0 and weights:
        peft.patch(weights)
    controls = beside.controls(names, [hints], conditioning.guided)
    noise = model.noise(64, 64, [seed], STEPS)
    latents = model.denoise(conditioning, noise, STEPS, predict=inline(controls), on_step=at).latents
    peft.clear()
    return np.asarray(model.decode(latents)[0][0], np.int16)


@pytest.mark.parametrize(
    ("words", "nets", "loras"),
    [
        ([*SHARED, "allocation.servers=2", "cluster.count=3"], 2, 2),
        ([*SHARED, "allocation.servers=2", "cluster.count=4", "trace.gap_s=0.05"], 1, 1),  # workers take turns
        ([*SHARED, *STAGES, "allocation.servers=2", "cluster.count=4", "trace.gap_s=0.05"], 1, 1),
        (["system=diffusers", "lora_loading.create=true", "cluster.count=1"], 1, 2),
        ([*SWIFT, "cluster.count=3"], 2, 2),
        ([*SWIFT, "cluster.count=4", "trace.gap_s=0.05"], 1, 1),
        (["system=diffusers", *STAGES, *ASYNC, "cluster.count=1"], 1, 2),
    ],
)
def test_live_addon_images_equal_diffusers(words: list[str], nets: int, loras: int, model: Any, tmp_path: Path) -> None:
    asked_for = [f"trace.controlnets={nets}", f"trace.loras={loras}", "trace.requests=2"]
    rows, asked = served(tmp_path / "images", *words, *asked_for)
    swift = "lora_loading.create=true" not in words
    boundaries = rows.patch_step if swift else pd.Series(0, rows.index)
    if swift:
        assert (boundaries > 0).any(), "a LoRA comes in mid-run"
        assert rows.patch_s.gt(0).all()
    for row, boundary in boundaries.items():
        ours = np.asarray(Image.open(tmp_path / "images" / f"{row}.png"), np.int16)
        wanted = stock(model, tmp_path, asked, int(row), nets, loras, int(boundary))
        assert np.abs(ours - wanted).max() <= BOUND
    early, never = (stock(model, tmp_path, asked, 0, nets, each, 0) for each in (loras, 0))
    assert np.abs(early - never).max() > 10 * BOUND, "they are to be seen, unless they come with the last steps"
