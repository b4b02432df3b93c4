"""Frames as the third dimension of a request's shape, from the trace to the report."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.backends.base import BackendError, Work, standalone_cost
from mezzotint.backends.profile import Point, Profile, read, write
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.sim.run.simulate import write as write_run
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.mix import Mix
from mezzotint.traces.table.trace import make
from mezzotint.traces.table.trace import write as write_trace
from tests.conftest import ORACLES
from tests.sim.lab import configured, simulated

WAN = ("models=wan2.2", "cluster=ascend-910b2")
SDXL = ("models=sdxl-mlperf", "cluster=l40s")
SHORT, MEDIUM, LONG = (854, 480, 80, 3), (854, 480, 120, 4), (1280, 720, 80, 6)
SERVICE_S = {SHORT: (106.1, 68.6, 46.5), MEDIUM: (221.7, 132.7, 86.9), LONG: (627.7, 357.1, 188.7)}
"""Measured seconds on 1, 2 and 4 NPUs."""

wan = Profiled("ascend-910b2", extrapolate="warn")


def service_s(width: int, height: int, frames: int, steps: int, backend: Profiled = wan) -> float:
    cost = standalone_cost(backend, Work("wan2.2", width, height, steps, frames=frames))
    return cost.denoise_s + cost.other_s


def mix(*shapes: tuple[int, ...], requests: int = 40) -> tuple[str, ...]:
    rows = ",".join(f"[{','.join(map(str, shape))},1]" for shape in shapes)
    return "trace=mix", f"trace.shapes=[{rows}]", f"trace.requests={requests}", "shapes=trace"


def of_trace(folder: Path, **columns: Any) -> tuple[str, ...]:
    """Return the words of a run of a trace with these columns, a request every 10,000 s."""
    count = len(next(iter(columns.values())))
    times = {"request_id": [f"r{row}" for row in range(count)], "arrival_s": np.arange(count) * 10_000.0}
    path = write_trace(make({**times, **columns}, name="t", source="s"), folder / "t.parquet").path
    return "trace=file", f"trace.path={path}", "shapes=trace"


def test_video_of_one_frame_is_an_image() -> None:
    image = simulated(*SDXL, *mix((1024, 1024, 20)), "trace.requests=20")
    video = simulated(*SDXL, *mix((1024, 1024, 1, 20)), "trace.requests=20")
    assert video.requests.equals(image.requests)
    assert "frames" not in image.requests.column_names


@given(
    sides=st.tuples(st.integers(60, 200), st.integers(60, 200)),
    frames=st.lists(st.integers(1, 400), min_size=2, max_size=2, unique=True).map(sorted),
    steps=st.integers(1, 50),
)
def test_more_frames_never_cost_less(sides: tuple[int, int], frames: list[int], steps: int) -> None:
    few, many = (service_s(8 * sides[0], 8 * sides[1], each, steps) for each in frames)
    assert few < many


@given(frames=st.integers(80, 179))
def test_cost_depends_on_the_pixels_of_all_frames(frames: int) -> None:
    """Between measured points it is interpolated, and twice the frames at half the height are the same pixels."""
    assert service_s(854, 480, frames, 4) == service_s(854, 240, 2 * frames, 4)
    points = [854 * 480 * 80, 854 * 480 * 120, 1280 * 720 * 80]
    step_s = np.interp(854 * 480 * frames, points, [31.027, 50.595, 99.98])
    assert wan.seconds("step", "wan2.2", 854, 480, 1, frames) == pytest.approx(step_s)


@pytest.mark.parametrize("shape", SERVICE_S, ids=("short", "medium", "long"))
def test_wan_takes_the_measured_seconds_at_every_parallel_degree(shape: tuple[int, int, int, int]) -> None:
    width, height, frames, steps = shape
    cost = standalone_cost(wan, Work("wan2.2", width, height, steps, frames=frames))
    for gpus, measured_s in zip((1, 2, 4), SERVICE_S[shape], strict=True):
        step = wan.group_step(Work("wan2.2", width, height, steps, frames=frames), gpus)
        assert step is not None
        assert steps * step.seconds + cost.other_s == pytest.approx(measured_s, abs=0.01)


@pytest.mark.parametrize("gpus", [2, 4])
def test_group_of_gpus_serves_a_video_with_the_speedup_of_its_shape(gpus: int) -> None:
    words = ("system=xdit", f"group_policy.degree={gpus}", "cluster.count=8", "arrivals.rate_rpm=0.01")
    rows = simulated(*WAN, *mix(SHORT, LONG, requests=12), *words).requests.to_pandas()
    took_s = (rows.denoise_s + rows.decode_s).to_numpy()
    expected_s = [SERVICE_S[SHORT if frames == 3 else LONG][gpus // 2] for frames in rows.steps]
    assert took_s == pytest.approx(expected_s, abs=0.01)


def test_run_of_videos_has_a_column_of_frames(tmp_path: Path) -> None:
    by_trace = simulated(*WAN, *mix(SHORT, MEDIUM)).requests.to_pandas()
    assert set(zip(by_trace.width, by_trace.height, by_trace.frames, by_trace.steps, strict=True)) == {SHORT, MEDIUM}
    by_model = simulated(*WAN, *mix(SHORT), "shapes=model").requests.to_pandas()
    assert set(zip(by_model.width, by_model.height, by_model.frames, by_model.steps, strict=True)) == {LONG}
    partly = simulated(*WAN, *of_trace(tmp_path, frames=[120, None], width=[854] * 2, height=[480] * 2))
    assert partly.requests.column("frames").to_pylist() == [120, 80], "null is the model's own number"


def test_batch_holds_videos_of_one_number_of_frames(tmp_path: Path) -> None:
    """Two of one shape share a step of a batch of two; of different frames each takes its own."""
    step = [
        Point(width=64, height=64, frames=frames, batch=batch, seconds=seconds)
        for frames, batch, seconds in ((10, 1, 1.0), (20, 1, 2.0), (10, 2, 1.2), (20, 2, 2.4))
    ]
    write(Profile(schema=1, model="v", gpu="g", source="made up", step=step), tmp_path / "v.yaml")
    backend = Profiled("g", folder=tmp_path)

    def step_s(*frames: int) -> float:
        return backend.steps([Work("v", 64, 64, 5, frames=each) for each in frames]).seconds

    assert step_s(10, 10) == 1.2
    assert step_s(10, 20) == 3.0
    assert read(tmp_path / "v.yaml").step == step


def test_profile_of_images_is_written_without_frames(tmp_path: Path) -> None:
    point = Point(width=64, height=64, seconds=1.0)
    write(Profile(schema=1, model="m", gpu="g", source="made up", step=[point]), tmp_path / "m.yaml")
    assert "frames" not in (tmp_path / "m.yaml").read_text()


def test_latent_is_resumed_only_by_a_video_of_as_many_frames(tmp_path: Path) -> None:
    """Three requests of one prompt and size: the second has other frames, the third those of the first."""
    words = ("system=nirvana-no-predictor", "index=immediate", "cluster.count=1")
    video = {"prompt": ["a cat walks"] * 3, "width": [854] * 3, "height": [480] * 3, "steps": [50] * 3}
    rows = simulated(*WAN, *words, *of_trace(tmp_path, **video, frames=[120, 80, 120])).requests.to_pandas()
    assert rows.skipped.tolist() == [0, 0, 25]


def test_shortest_remaining_prefers_the_video_of_fewer_frames(tmp_path: Path) -> None:
    """Three arrive while the only GPU is busy; all have the same size and steps."""
    path = write_trace(
        make(
            {
                "request_id": list("abcd"), "arrival_s": [0.0, 1.0, 2.0, 3.0], "width": [854] * 4,
                "height": [480] * 4, "steps": [3] * 4, "frames": [80, 120, 100, 80],
            },
            name="t", source="s",
        ), tmp_path / "t.parquet",
    ).path  # fmt: skip
    words = ("scheduler=per-worker", "router=round-robin", "discipline=shortest-remaining", "latency_predictor=known")
    batched = ("executor=continuous-batching", "executor.max_batch=1", "batching=same-size", "cluster.count=1")
    rows = simulated(*WAN, "trace=file", f"trace.path={path}", "shapes=trace", *words, *batched).requests.to_pandas()
    assert rows.sort_values("finish_s").request_id.tolist() == ["a", "d", "c", "b"]


def test_size_of_a_video_names_its_frames_in_reports_and_errors(tmp_path: Path) -> None:
    outcome = simulated(*WAN, *mix(SHORT), "shapes=model")
    write_run(outcome, tmp_path / "run")
    (run,) = load_runs([tmp_path / "run"])
    assert str(run.models[0].images).startswith("wan2.2, 1280x720x80, 6 steps")
    with pytest.raises(BackendError, match=r"step at 854x480x81 \(33203520 pixels of all frames\), batch 2"):
        Profiled("ascend-910b2").steps([Work("wan2.2", 854, 480, 3, frames=81)] * 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("models.large.frames=0",), "models: wan2.2: expected 1 to 100,000 frames, found 0"),
        (("feature_cache=patch-level", "executor=continuous-batching", "batching=same-size"), "found videos"),
        (("executor=continuous-batching", "batching=patched"), "nobody measured patches of a video"),
        ((*mix((854, 480, 10, 3)),), "at 854x480x10 .4099200 pixels of all frames"),
    ],
    ids=("no frames", "block cache", "patches", "outside the grid"),
)
def test_video_that_cannot_be_served_is_refused_in_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises((ConfigError, BackendError), match=message):
        simulated(*WAN, *mix(SHORT), *words)


def test_mix_takes_shapes_with_or_without_frames_and_no_others() -> None:
    rng = np.random.default_rng(0)
    image = Mix(shapes=[[512, 768, 20, 1.0]], requests=3).load(rng)
    video = Mix(shapes=[[512, 768, 49, 20, 1.0]], requests=3).load(rng)
    assert image.column("frames").tolist() == [-1] * 3
    assert video.column("frames").tolist() == [49] * 3
    assert video.column("steps").tolist() == [20] * 3
    for wrong in ([[512, 768, 1.0]], [[512, 768, 49, 20, 1.0], [512, 768, 20, 1.0]], [[512, 768, 49, 20, 7, 1.0]]):
        with pytest.raises(TraceError, match=r"expected rows of 3 or 4 positive whole numbers"):
            Mix(shapes=wrong)


def test_model_is_an_image_model_unless_it_names_frames() -> None:
    assert Model("m", 50, 512, 512).frames == 1


def test_logged_npu_workload_is_drawn_again_from_its_seed() -> None:
    """Sizes and arrivals of a real run of 100 videos; the profile's seconds are within 3 % of the logged compute."""
    with (ORACLES / "wan22_npu" / "8xusp1_n100_r0.03_tailgate.csv").open() as file:
        logged = list(csv.DictReader(file))
    outcome = _logged_workload()
    rows = outcome.requests.to_pandas()
    assert rows.arrival_s.tolist() == pytest.approx([float(row["arrival_s_from_seed"]) for row in logged], abs=1e-3)
    names = {SHORT: "short", MEDIUM: "medium", LONG: "long"}
    drawn = [names[shape] for shape in zip(rows.width, rows.height, rows.frames, rows.steps, strict=True)]
    assert drawn == [row["size"] for row in logged]
    compute_s = defaultdict(list)
    for row in logged:
        compute_s[row["size"]].append(float(row["compute_s"]))
    for shape, name in names.items():
        assert service_s(*shape) == pytest.approx(np.mean(compute_s[name]), rel=0.03)


def _logged_workload() -> Outcome:
    shapes = ",".join(
        f"[{','.join(map(str, shape))},{weight}]" for shape, weight in ((SHORT, 0.15), (MEDIUM, 0.25), (LONG, 0.6))
    )
    words = ("trace=mix", f"trace.shapes=[{shapes}]", "trace.requests=100", "shapes=trace")
    return simulate(configured(*WAN, *words, "arrivals=expovariate", "arrivals.rate_rpm=1.8", "arrivals.seed=42"))
