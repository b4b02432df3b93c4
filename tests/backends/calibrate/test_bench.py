"""Real calibrations of the five tiny families, read back by the simulator's backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import Asset, BackendError, Work, standalone_cost  # noqa: E402
from mezzotint.backends.calibrate import Cell, grid  # noqa: E402
from mezzotint.backends.calibrate.bench import Bench, ran_out_of_memory  # noqa: E402
from mezzotint.backends.calibrate.machine import machine  # noqa: E402
from mezzotint.backends.calibrate.session import complete  # noqa: E402
from mezzotint.backends.diffusers_ import build  # noqa: E402
from mezzotint.backends.diffusers_.networks.architectures import architecture  # noqa: E402
from mezzotint.backends.profile import read, shipped  # noqa: E402
from mezzotint.backends.profiled import Profiled  # noqa: E402

from .conftest import FAMILIES, files  # noqa: E402

LARGE = {"sd15": (128, 4), "sdxl": (128, 4), "sd3": (192, 4), "flux": (192, 4), "sana": (256, 8)}
"""Side and batch at which a step takes visibly longer than at 64 and 1; SANA's latents are 32 times smaller."""


@pytest.mark.parametrize("family", FAMILIES)
def test_calibrated_family_can_be_simulated(plan: Any, tmp_path: Path, family: str) -> None:
    side, batch = LARGE[family]
    wanted = plan(family, lora_rank=2, shapes=((64, 64, 1), (side, side, 1), (side, side, batch)))
    profile = complete(wanted, tmp_path, progress=False).profile
    assert read(tmp_path / f"cpu_{family}-tiny.yaml") == profile
    backend = Profiled("cpu", folder=str(tmp_path))
    backend.require(wanted.model)
    for operation in ("step", "vae_encode", "vae_decode"):
        low = backend.seconds(operation, wanted.model, 64, 64)
        high = backend.seconds(operation, wanted.model, side, side, batch)
        assert 0 < low < high, operation
    assert backend.seconds("text_encode", wanted.model, 64, 64) > 0
    full, tail = (standalone_cost(backend, Work(wanted.model, 64, 64, 10, skipped=k)).denoise_s for k in (0, 4))
    assert tail == pytest.approx(0.6 * full)
    with pytest.raises(BackendError, match="outside the measured grid"):
        standalone_cost(backend, Work(wanted.model, 512, 512, 10))
    assert profile.load_s is None, "weights that were drawn say nothing about loading"
    assert profile.lora is not None
    assert profile.lora.rank == 2
    lora = Asset("lora", "any", wanted.model)
    assert backend.load(lora).seconds == profile.lora.read_s + profile.lora.patch_s
    assert backend.bytes(lora) == profile.lora.bytes
    assert "processor time" in (profile.notes or "")
    assert profile.versions["torch"] == torch.__version__
    assert profile.memory == profile.energy == [], "a CPU reports neither"
    names = {f"cpu_{family}-tiny{end}" for end in (".yaml", ".md", ".journal.jsonl", "_step.png")}
    assert set(files(tmp_path)) == names


def test_controlnets_raise_the_step_time(plan: Any, tmp_path: Path) -> None:
    wanted = plan("sdxl", shapes=grid([(192, 192)], [2]), controlnets=(0, 1, 3), repeats=3, controlnet_batches=(2,))
    profile = complete(wanted, tmp_path, progress=False).profile
    extra = {nets: table.at(192 * 192, 2) for nets, table in profile.controlnet_tables.items()}
    assert set(extra) == {1, 3}
    assert 0 < extra[1] < extra[3]
    assert profile.controlnet is not None
    assert profile.weights_bytes is not None
    backend, nets = Profiled("cpu", folder=str(tmp_path)), ("one", "two", "three")
    plain, steered = (
        backend.steps([Work(wanted.model, 192, 192, 10, controlnets=nets[:n]) for _ in range(2)]).seconds
        for n in (0, 3)
    )
    assert steered - plain == pytest.approx(extra[3])
    asset = Asset("controlnet", "one", wanted.model)
    assert backend.load(asset).seconds == profile.controlnet.load_s > 0
    assert backend.bytes(asset) == profile.controlnet.bytes < profile.weights_bytes
    assert backend.bytes(Asset("model", wanted.model, wanted.model)) == profile.weights_bytes


def test_remote_controlnet_parts_and_in_place_loras_are_measured_and_used(plan: Any, tmp_path: Path) -> None:
    """SwiftDiffusion, 4.1 and 4.2; a denoiser without halves is skipped."""
    wanted = plan("sdxl", shapes=grid([(64, 64)], [1]), repeats=2, apart=True, lora_rank=4)
    profile = complete(wanted, tmp_path, progress=False).profile
    (parts,), lora = profile.apart, profile.lora
    assert min(parts.encoder_s, parts.controlnet_s, parts.receive_s) > 0
    assert parts.encoder_s < profile.tables["step"].at(64 * 64, 1)
    assert lora is not None
    assert lora.merge_s is not None
    assert lora.restore_s is not None
    backend = Profiled("cpu", folder=str(tmp_path))
    found = backend.remote_controlnet_costs(Work(wanted.model, 64, 64, 10, remote_controlnets=("one",)), 1, 1)
    assert (found.encoder_s, found.controlnet_s, found.receive_s) == (
        parts.encoder_s,
        parts.controlnet_s,
        parts.receive_s,
    )
    loras = [Asset("lora", name, wanted.model) for name in ("one", "two")]
    assert backend.merge_loras(loras).seconds == 2 * lora.merge_s
    assert backend.restore_weights(loras).seconds == lora.restore_s
    assert not [cell for cell in plan("sd3", apart=True).cells(True) if cell.operation == "apart"]


def test_family_without_controlnets_measures_none(plan: Any) -> None:
    assert not architecture("sana", scale="tiny").controlnets
    cells = plan("sana", controlnets=(0, 1, 3)).cells(has_controlnets=False)
    assert not [cell for cell in cells if cell.nets]


def test_measuring_a_lora_restores_the_weights(plan: Any) -> None:
    wanted = plan("sd15")
    model = build(wanted.spec)
    before = {name: each.clone() for name, each in model.denoiser.state_dict().items()}
    measured = Bench(wanted, machine("cpu"), model)(Cell(operation="lora", rank=3))
    assert set(measured.seconds) == {"read", "attach", "fuse", "unfuse", "patch", "merge", "restore"}
    assert all(len(times) == wanted.repeats and min(times) > 0 for times in measured.seconds.values())
    layers = [each for name, each in before.items() if name.endswith(("to_q.weight", "to_k.weight", "to_v.weight"))]
    layers += [each for name, each in before.items() if name.endswith("to_out.0.weight")]
    assert measured.facts["bytes"] > sum(3 * (rows + columns) * 4 for rows, columns in (w.shape for w in layers))
    for name, each in model.denoiser.state_dict().items():
        torch.testing.assert_close(each, before[name], rtol=0, atol=1e-6)


def test_built_model_is_reused(plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan("sana", shapes=((64, 64, 1),))
    model = build(wanted.spec)
    monkeypatch.setattr("mezzotint.backends.calibrate.bench.build", None)
    assert complete(wanted, tmp_path, progress=False, model=model).profile.step[0].seconds > 0


def test_loading_is_measured_from_a_folder_only(plan: Any, tmp_path: Path) -> None:
    wanted = plan("sana", shapes=((64, 64, 1),), load_from_disk=True)
    profile = complete(wanted, tmp_path, progress=False).profile
    assert profile.load_s is not None
    assert profile.load_s > 0
    assert (
        Profiled("cpu", folder=str(tmp_path)).load(Asset("model", "sana-tiny", "sana-tiny")).seconds == profile.load_s
    )


def test_cpu_profile_is_never_written_among_the_shipped_ones(plan: Any, stub: Any) -> None:
    folder = Path(str(shipped()))
    before = files(folder)
    with pytest.raises(BackendError, match="shipped profiles"):
        complete(plan(), folder, measure=stub())
    assert files(folder) == before


def test_out_of_memory_is_distinguished_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as real:
        torch.empty(2**60)
    assert ran_out_of_memory(real.value)
    assert ran_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))
    assert not ran_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_impossible_size_is_refused_before_building(plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.backends.calibrate.bench.build", None)
    with pytest.raises(BackendError, match="multiples of 32, not 80x64"):
        complete(plan("sana", shapes=((80, 64, 1),)), tmp_path)
