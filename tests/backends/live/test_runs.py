"""Real pipelines as workers: tiny ones here; full-size ones run the same code on a GPU."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cli import main
from mezzotint.sim.core.request import Request
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble
from tests.sim.lab import configured, engine, simulated

pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

FAMILIES = ("sd1.5", "sdxl", "sd3", "flux", "sana")
PARTNER = dict(zip(FAMILIES, (*FAMILIES[1:], FAMILIES[0]), strict=True))
REQUESTS, FEW = 12, 8
LIVE = (
    "backend=live", "backend.device=cpu", "cluster=local", f"trace.requests={REQUESTS}", "arrivals.rate_rpm=12",
    "seed=3",
)  # fmt: skip


def live(system: str, family: str, images: Path, *more: str) -> Outcome:
    """Run requests of 10 steps at 64 pixels, in a trace whose users often repeat themselves."""
    shape = {"width": 64, "height": 64, "steps": 10}
    sizes = [f"models.{role}.{key}={value}" for role in ("large", "small") for key, value in shape.items()]
    names = [f"models.large.name={family}-tiny", f"models.small.name={PARTNER[family]}-tiny"]
    repeats = ["trace.users=3", "trace.repeat_share=0.3"]
    return simulated(f"system={system}", *LIVE, *sizes, *names, *repeats, f"backend.images={images}", *more)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", ["nirvana", "modm-fixed"])
def test_every_family_serves_a_trace(system: str, family: str, tmp_path: Path) -> None:
    """The run makes images, and its records have K, sources and measured seconds."""
    from PIL import Image

    outcome = live(system, family, tmp_path, f"trace.requests={FEW}")
    rows = outcome.requests.to_pandas()
    assert outcome.summary["requests"]["completed"] == FEW
    assert {(each["basis"], each["precision"]) for each in outcome.summary["models"]} == {("live", "float32")}
    hit = rows.source_id.notna()
    assert 2 <= hit.sum() < FEW
    assert (rows.skipped[hit] > 0).all()
    assert set(rows.model[~hit]) == {f"{family}-tiny"}
    assert set(rows.model[hit]) == {f"{family if system == 'nirvana' else PARTNER[family]}-tiny"}
    assert rows.denoise_s.gt(0).all()
    assert rows.denoise_s.nunique() == FEW, "seconds are measured, not looked up"
    assert rows.decode_s.gt(0).all()
    pictures = {file.stem: np.asarray(Image.open(file)) for file in tmp_path.glob("*.png")}
    assert pictures.keys() == {str(i) for i in range(FEW)}
    assert {picture.shape for picture in pictures.values()} == {(64, 64, 3)}
    in_full = {pictures[str(row)].tobytes() for row in rows.index[~hit]}
    assert len(in_full) == (~hit).sum()
    same = rows.index[rows.similarity == 1.0] if system == "nirvana" else []
    for row in same:  # the same prompt from the same latent is the same image, for every seed
        source = rows.index[rows.request_id == rows.source_id[row]][0]
        assert (pictures[str(row)] == pictures[str(source)]).all()


def test_fewer_steps_take_less_time(tmp_path: Path) -> None:
    rows = live("nirvana", "sdxl", tmp_path, "models.large.steps=20", "models.small.steps=20").requests.to_pandas()
    per_step = rows.denoise_s / (rows.steps - rows.skipped)
    assert rows.skipped.nunique() > 1
    assert per_step.max() < 3 * per_step.median()


def test_preloaded_artifacts_are_generated(tmp_path: Path) -> None:
    outcome = live("nirvana", "sdxl", tmp_path, "trace.requests=20", "preload=8")
    rows = outcome.requests.to_pandas()
    assert len(rows) == 12
    assert rows.source_id.isin([f"r{i:02d}" for i in range(8)]).any() or rows.source_id.notna().any()


def test_worker_that_switches_models_loads_them(tmp_path: Path) -> None:
    """One queue over both models: every model change is a real load with measured time."""
    one_queue = ("scheduler=fcfs", "allocation=uniform-large", "cluster.count=1")
    outcome = live("modm-fixed", "sd1.5", tmp_path / "images", *one_queue, f"backend.store={tmp_path / 'weights'}")
    rows = outcome.requests.to_pandas()
    changed = rows.sort_values("start_s").model.astype(str)
    switches = int((changed.to_numpy()[1:] != changed.to_numpy()[:-1]).sum())
    assert switches >= 2
    assert outcome.summary["gpu"]["switches"] == switches
    assert rows.load_s[rows.load_s > 0].nunique() == switches
    assert (tmp_path / "weights" / "sd1.5-tiny" / "model_index.json").is_file()


def test_live_quality_compares_hits_with_the_full_run(tmp_path: Path) -> None:
    """Only images that skipped steps have a factor; it is SSIM, and the summary names it and counts alpha."""
    words = ("+backend.quality._target_=mezzotint.backends.quality.Ssim", "backend.reference=${models.large.name}")
    outcome = live("nirvana", "sd1.5", tmp_path, *words)
    rows = outcome.requests.to_pandas()
    factor = rows.quality_factor
    assert (factor.notna() == rows.source_id.notna()).all()
    assert factor.dropna().between(-1, 1).all()
    quality = outcome.summary["quality"]
    assert quality["basis"] == "ssim against the full run of sd1.5-tiny, same seed"
    assert quality["factor_mean"] == pytest.approx(factor.mean())
    assert quality["below_alpha_share"] == pytest.approx((factor.dropna() < 0.9).mean())


def test_out_of_memory_fails_only_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from mezzotint.backends.diffusers_ import stages

    begin = stages.begin

    def full_once(model: Any, add_ons: Any, works: Any, asked: Any) -> float:
        if any(work.row == 5 for work in works):
            raise torch.cuda.OutOfMemoryError("tried to allocate too much")
        return begin(model, add_ons, works, asked)

    monkeypatch.setattr(stages, "begin", full_once)
    outcome = live("vanilla", "sd1.5", tmp_path)
    assert outcome.summary["requests"] == {
        "arrived": REQUESTS, "completed": REQUESTS - 1, "discarded": 0, "failed": 1,
    }  # fmt: skip
    failed = outcome.requests.to_pandas().query("outcome == 'failed'")
    assert list(failed.index) == [5]
    assert "ran out of memory" in failed.reason.iloc[0]


def test_latents_of_an_evicted_state_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache holds items, and as many tensors are alive after the run."""
    latents: list[weakref.ref[Any]] = []
    insert = ArtifactCache.insert

    def watched(self: ArtifactCache, request: Request, now_s: float) -> None:
        latents.extend(map(weakref.ref, request.made.values()))
        insert(self, request, now_s)

    monkeypatch.setattr(ArtifactCache, "insert", watched)
    small = ("trace.requests=12", "cache.capacity=7", f"backend.images={tmp_path}", "models.large.width=64")
    settings = check(configured("system=nirvana", *LIVE, *small, "models.large.height=64", "models.large.steps=10"))
    engine = assemble(settings).engine
    engine.run()
    cache = engine.frontend.cache  # type: ignore[attr-defined]
    gc.collect()
    assert len(latents) > 7
    assert sum(latent() is not None for latent in latents) == cache.items <= 7


def on_groups(policy: str, gpus: int, images: Path, *more: str) -> Outcome:
    """Run six requests of two sizes on groups of one GPU, at more than these can do."""
    parts = ("executor=stages", "scheduler=stages", f"group_policy={policy}", f"cluster.count={gpus}")
    asked = ("trace=mix", "trace.shapes=[[64,64,3,1],[128,128,3,1]]", "shapes=trace", "arrivals.rate_rpm=30000")
    live = ("models.large.name=sd1.5-tiny", f"backend.images={images}")
    return simulated(*LIVE, *parts, *asked, *live, "trace.requests=6", *more)


@pytest.fixture(scope="module")
def first_come(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """Requests on two groups of one GPU, first come first served, and the folder of their images."""
    images = tmp_path_factory.mktemp("images")
    return on_groups("fixed-degree", 2, images), images


def test_groups_of_one_serve_live_as_workers_whose_times_are_known(first_come: tuple[Outcome, Path]) -> None:
    """The seconds that the requests took, on the same GPUs at the same instants."""
    served = first_come[0].requests.to_pandas()
    assert served.denoise_s.nunique() == len(served) == 6
    known = engine(served.arrival_s, served.denoise_s + served.decode_s, 2)
    known.run()
    assert served.worker.nunique() == 2
    for name in ("worker", "start_s", "finish_s"):
        assert served[name].tolist() == pytest.approx(known.record.request_columns[name].tolist(), abs=1e-9), name


def test_preempted_requests_make_the_images_of_whole_ones(first_come: tuple[Outcome, Path], tmp_path: Path) -> None:
    beliefs = ("estimates=table", "estimates.seconds={64x64: 1, 128x128: 4}", "group_policy.groups=1x1")
    rows = on_groups("fixed-groups", 1, tmp_path, *beliefs, "group_policy.order=srtf").requests
    assert sum(rows["pauses"].to_pylist()) > 0
    for row in range(6):
        assert (first_come[1] / f"{row}.png").read_bytes() == (tmp_path / f"{row}.png").read_bytes()


BAD = [
    (["backend.models.sdxl-tiny.family=sdxxl"], "sdxxl"),
    (["backend.models.sdxl-tiny.colour=red"], "backend.models"),
    (["+backend.models.sdxl-tiny.weights=/nowhere"], "/nowhere"),
    (["+backend.models.sdxl-tiny.scheduler=DPMSolverMultistepScheduler"], "DPMSolverMultistepScheduler"),
    (["models.large.name=unheard-of"], "no live model is called unheard-of"),
    (["backend.device=cuda:77"], "cuda:77"),
    (["backend.dtype=float8"], "float8"),
    (["models.large.width=100"], "multiples of"),
    (["backend.store=/dev/null/x"], "/dev/null/x: cannot be made a folder"),
    (["backend.threads=0"], "backend.threads"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_invalid_live_setting_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", *LIVE, *words, f"run.dir={tmp_path}"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("mezzotint: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_model_that_does_not_fit_is_refused_before_it_is_built(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from mezzotint.backends.diffusers_ import device

    monkeypatch.setattr(device, "available_bytes", lambda device: 2**20)
    assert main(["run", *LIVE, "models.large.name=sd3.5-large", f"run.dir={tmp_path}"]) == 2
    assert "GiB for its weights" in capsys.readouterr().err
