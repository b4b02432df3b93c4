"""The live backend in stages gives the same image, cut or whole, alone or in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

from mezzotint.backends.base import Asset, BackendError, Work, standalone_cost  # noqa: E402
from mezzotint.backends.diffusers_.denoise import Running  # noqa: E402
from mezzotint.backends.diffusers_.families import SD15, SDXL  # noqa: E402
from mezzotint.backends.diffusers_.serve import Live  # noqa: E402

FAMILIES = ("sd15", "sdxl", "sd3", "flux", "sana")
STEPS = 6


class Rows:
    """The prompts and seeds of a trace."""

    def prompt(self, row: int) -> str:
        return ["a red cat on a mat", "Ein Schloß, 雪の夜", "dog"][row % 3]

    def seed(self, row: int) -> int:
        return 100 + row


def live(store: Path | None = None) -> Live:
    models = {family: {"family": family, "scale": "tiny"} for family in FAMILIES}
    backend = Live(models, device="cpu", store=None if store is None else str(store))
    backend.open(Rows())
    return backend


@pytest.fixture(scope="module")
def backend() -> Live:
    """Treat as read-only; a LoRA changes a model."""
    return live()


def work(model: str, row: int = 0, side: int = 64, **more: Any) -> Work:
    return Work(model, side, side, STEPS, row=row, **more)


def image(backend: Live, work: Work) -> Any:
    standalone_cost(backend, work)
    return work.made


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Return whether two images differ only by rounding: batching reorders sums, so a pixel may move by two levels."""
    return bool(np.abs(ours.astype(int) - theirs.astype(int)).max() <= 2)


@pytest.mark.parametrize("model", FAMILIES)
def test_single_steps_give_the_bits_of_a_whole_request(backend: Live, model: str) -> None:
    wanted = image(backend, work(model))
    cut = work(model)
    costs = [backend.begin([cut]), *(backend.steps([cut]) for _ in range(STEPS)), backend.end([cut])]
    assert (cut.made == wanted).all()
    assert cut.done == STEPS
    assert cut.state is None, "nothing is held of a request that ended"
    assert all(cost.seconds > 0 for cost in costs)


@pytest.mark.parametrize("model", FAMILIES)
def test_request_joining_and_leaving_a_batch_gives_its_own_image(backend: Live, model: str) -> None:
    """Each request is at another step, of schedules of different lengths, while they run together."""
    alone = [image(backend, work(model, row)) for row in (1, 2)]
    alone.append(image(backend, Work(model, 64, 64, STEPS + 3, row=3)))
    one, other, longer = work(model, 1), work(model, 2), Work(model, 64, 64, STEPS + 3, row=3)
    backend.begin([one])
    backend.steps([one], 2)
    backend.begin([other, longer])
    backend.steps([other, one, longer])
    backend.steps([one, other, longer], 3)
    backend.end([one])
    backend.steps([longer, other], 2)
    backend.steps([longer], 3)
    backend.end([other, longer])
    assert all(close(each.made, wanted) for each, wanted in zip((one, other, longer), alone, strict=True))
    assert not close(one.made, other.made)


def test_batch_runs_once_per_size_and_model(backend: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    works = [work("sdxl", 0), work("sdxl", 1), work("sdxl", 2, side=128), work("sd15", 0), work("sdxl", 1)]
    backend.begin(works)
    backend.steps(works[4:], 1)
    ran = []

    class Watched(Running):
        def __init__(self, family: Any, pipe: Any, conditioning: Any, latents: Any, places: Any) -> None:
            ran.append((family, latents.shape[-1], [(place.done, place.rows) for place in places]))
            super().__init__(family, pipe, conditioning, latents, places)

    monkeypatch.setattr("mezzotint.backends.diffusers_.stages.Running", Watched)
    cost = backend.steps(works)
    assert ran == [(SDXL, 8, [(0, 2), (1, 1)]), (SDXL, 16, [(0, 1)]), (SD15, 8, [(0, 1)])]
    assert cost.seconds > 0
    assert [each.done for each in works] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("calls", [(STEPS,), (1,) * STEPS, (2, 4)])
def test_latents_are_kept_wherever_the_run_is_cut(backend: Live, calls: Sequence[int]) -> None:
    """A request that resumes from a kept latent ends in the same image."""
    kept = work("sd15", capture={1: 0, 10: 2, 20: 4})
    backend.begin([kept])
    for count in calls:
        backend.steps([kept], count)
    backend.end([kept])
    assert set(kept.made) == {1, 10, 20}
    full = image(backend, work("sd15"))
    for k, step in ((1, 0), (10, 2), (20, 4)):
        assert (image(backend, work("sd15", skipped=step, artifact=kept.made[k])) == full).all()


def test_refinement_in_a_batch_equals_refinement_alone(backend: Live) -> None:
    source = image(backend, work("sd15"))
    alone = [image(backend, work("sdxl", row, skipped=2, refine=True, artifact=source)) for row in (1, 2)]
    together = [work("sdxl", row, skipped=2, refine=True, artifact=source) for row in (1, 2)]
    backend.begin(together)
    backend.steps(together, STEPS - 2)
    backend.end(together)
    assert all(close(each.made, wanted) for each, wanted in zip(together, alone, strict=True))


def test_controlnets_steer_by_name_in_a_batch_as_alone(backend: Live) -> None:
    names = ("canny", "depth/v1.0")
    plain, steered, both = (image(backend, work("sdxl", controlnets=names[:n])) for n in range(3))
    assert not close(plain, steered)
    assert not close(steered, both)
    together = [work("sdxl", row, controlnets=names[:1]) for row in (0, 1)] + [work("sdxl", 0)]
    backend.begin(together)
    backend.steps(together, STEPS)
    backend.end(together)
    assert close(together[0].made, steered)
    assert not close(together[1].made, steered)
    assert close(together[2].made, plain)
    assert any(assumption.what == "ControlNets and LoRAs" for assumption in backend.assumptions())


def test_lora_affects_only_the_requests_that_ask_for_it() -> None:
    backend = live()
    plain = image(backend, work("sd15"))
    styled = work("sd15", loras=("a.b/style",))
    other = work("sd15")
    backend.begin([styled, other])
    for _ in range(STEPS):
        backend.steps([styled, other])
    backend.end([styled, other])
    assert close(other.made, plain), "taken out again, to rounding"
    assert not (styled.made == plain).all()
    assert backend.load(Asset("lora", "a.b/style", "sd15")).seconds > 0
    assert (backend.bytes(Asset("lora", "a.b/style", "sd15")) or 0) > 0


@pytest.mark.parametrize("stored", [False, True])
def test_loaded_assets_have_a_time_and_a_size(tmp_path: Path, stored: bool) -> None:
    backend = live(tmp_path if stored else None)
    for asset in (Asset("model", "sd15", "sd15"), Asset("controlnet", "canny", "sd15"), Asset("lora", "x", "sd15")):
        assert (backend.bytes(asset) or 0) > 0
        assert backend.load(asset).seconds > 0
        assert backend.load(asset).joules is None
    made = image(backend, work("sd15", controlnets=("canny",)))
    alone = image(live(tmp_path if stored else None), work("sd15", controlnets=("canny",)))
    assert close(made, alone), "the LoRA is taken out again, to rounding"
    assert bool(list(tmp_path.rglob("controlnet-*"))) == stored


def test_invalid_stage_call_is_refused(backend: Live) -> None:
    with pytest.raises(BackendError, match="sana has no ControlNet"):
        backend.begin([work("sana", controlnets=("canny",))])
    with pytest.raises(BackendError, match="no live model is called nosuch"):
        backend.load(Asset("lora", "x", "nosuch"))
    with pytest.raises(BackendError, match="starts from step 2 of an artifact that was not made"):
        backend.begin([work("sd15", skipped=2)])
    with pytest.raises(BackendError, match="starts from step 2 and is to keep"):
        backend.begin([work("sd15", skipped=2, artifact=0, capture={5: 1})])
    begun = work("sd15")
    backend.begin([begun])
    with pytest.raises(BackendError, match="decoded after 0 of 6 steps"):
        backend.end([begun])
    with pytest.raises(BackendError, match="cannot run steps 0 to 7 of 6"):
        backend.steps([begun], 7)
    assert backend.peak_bytes([begun]) is None


def test_video_is_refused_before_anything_is_made(backend: Live) -> None:
    with pytest.raises(BackendError, match=r"row 2 asks sdxl for a video, 64x64x49, and live pipelines make images"):
        backend.begin([work("sdxl", 2, frames=49)])
