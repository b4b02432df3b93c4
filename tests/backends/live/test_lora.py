"""LoRAs: fused and unfused, several at once, patched between two steps of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import build  # noqa: E402
from mezzotint.backends.diffusers_.addons.lora import Loras, read_lora, write_random_lora  # noqa: E402

STEPS = 6


@pytest.fixture
def own(model: Any) -> Any:
    """A model of the test's own, since LoRAs change it."""
    return build(replace(model.spec))


def _file(model: Any, folder: Path, seed: int) -> Any:
    path = folder / f"style{seed}.safetensors"
    write_random_lora(model, path, rank=4, seed=seed, std=0.3)
    return read_lora(path, f"style{seed}")


def _run(model: Any, **extra: Any) -> Any:
    return model.denoise(model.encode(["a fox"]), model.noise(64, 64, [1], STEPS), STEPS, **extra)


def _weights(model: Any) -> dict[str, Any]:
    return {name: each.clone() for name, each in model.denoiser.state_dict().items()}


def test_fused_lora_equals_the_side_branch_and_unfusing_restores_the_weights(own: Any, tmp_path: Path) -> None:
    before, plain = _weights(own), _run(own).latents
    loras = Loras(own)
    assert loras.attach(_file(own, tmp_path, 1)) > 0
    attached = _run(own).latents
    assert not torch.allclose(attached, plain, atol=1e-3)
    assert loras.fuse() > 0
    torch.testing.assert_close(_run(own).latents, attached, rtol=1e-3, atol=1e-3)
    assert loras.unfuse() > 0
    torch.testing.assert_close(_run(own).latents, attached, rtol=1e-3, atol=1e-3)
    loras.fuse()
    loras.clear()
    after = _weights(own)
    assert after.keys() == before.keys()
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-6)
    torch.testing.assert_close(_run(own).latents, plain, rtol=1e-4, atol=1e-4)


def test_fusing_two_loras_does_not_depend_on_their_order(own: Any, tmp_path: Path) -> None:
    """Fusing two adds both low-rank products: the result does not depend on their order."""
    one, two = _file(own, tmp_path, 1), _file(own, tmp_path, 2)
    loras = Loras(own)
    results = []
    for order in ([one, two], [two, one], [one]):
        loras.patch(order)
        results.append(_run(own).latents)
        loras.clear()
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-3)
    assert not torch.allclose(results[0], results[2], atol=1e-3)


def test_mid_run_lora_patch_applies_from_the_next_step(own: Any, tmp_path: Path) -> None:
    """Latents up to the patched step are the very bits of a run without it (SwiftDiffusion, section 4.2)."""
    patched_after, every = 3, range(1, STEPS + 1)
    plain = _run(own, capture=every)
    loras, weights = Loras(own), _file(own, tmp_path, 1)

    def patch(done: int, latents: Any) -> None:
        if done == patched_after:
            loras.patch([weights])

    patched = _run(own, capture=every, on_step=patch)
    for step in every:
        same = torch.equal(plain.captured[step], patched.captured[step])
        assert same == (step <= patched_after)
    loras.clear()


def test_unfit_or_unreadable_lora_is_refused(tiny: dict[str, Any], tmp_path: Path) -> None:
    own, other = build(replace(tiny["sd3"].spec)), _file(tiny["flux"], tmp_path, 3)
    loras, plain = Loras(own), _run(own).latents
    with pytest.raises(BackendError, match=r"style3.*does not fit sd3"):
        loras.attach(other)
    assert torch.equal(_run(own).latents, plain)
    with pytest.raises(BackendError, match="no LoRA file"):
        read_lora(tmp_path / "absent.safetensors", "absent")
    (tmp_path / "half.safetensors").write_bytes(b"\x00\x01")
    with pytest.raises(BackendError, match="not a readable safetensors"):
        read_lora(tmp_path / "half.safetensors", "half")
