"""A profile fitted on the seconds in a log predicts requests that it has not seen."""

from pathlib import Path

import numpy as np
import pytest

from backends.profile import read
from sim.cli import main
from sim.study.generation.fit import LEAST_AROUND, fit
from sim.study.generation.observed import Observed, observed
from traces.table.trace import Trace, make, write

SIZES = ((512, 512), (512, 768), (1024, 512), (1024, 1024))


def service(requests: int = 40_000) -> Trace:
    """Requests of a service whose law is known: affine in the steps, with a tail that is longer for short ones."""
    rng = np.random.default_rng(5)
    width, height = np.array(SIZES)[rng.integers(len(SIZES), size=requests)].T
    steps = rng.choice([25, 50, 100, 150], requests)
    typical_s = width * height * (1e-6 + 3e-7 * steps)
    late_s = np.where(rng.random(requests) < 0.2, rng.exponential(0.2, requests), 0.0)
    gen_s = typical_s * np.exp(rng.normal(0.0, 0.01, requests)) + late_s
    columns = {
        "request_id": np.arange(requests).astype(str), "arrival_s": np.arange(requests, dtype=float),
        "width": width, "height": height, "steps": steps, "gen_s": gen_s,
    }  # fmt: skip
    return make(columns, name="service", source="a law")


def test_mean_and_slowest_tenth_of_what_was_held_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(service(), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main([*words, "--page", str(tmp_path / "page.md")]) == 0
    assert "within 5 % in 16 of 16 cells" in capsys.readouterr().out
    assert "16 of 16 cells" in read(tmp_path / "g_m.yaml").source
    assert (tmp_path / "page.md").read_text().count("| held |") == 16


def test_the_law_is_found() -> None:
    fitted, held_out = observed(service())
    assert len(held_out) == pytest.approx(8_000, rel=0.05)
    profile = fit(fitted, gpu="g", model="m", source="a law")
    assert profile.basis == "measured"
    for point in profile.step:
        assert point.seconds == pytest.approx(3e-7 * point.pixels, rel=0.02)
    for decoding in profile.vae_decode:
        assert decoding.seconds == pytest.approx(1e-6 * decoding.pixels, rel=0.35)  # the smallest part by far


def test_a_trace_without_seconds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(make({"request_id": ["a"], "arrival_s": [0.0]}, name="n", source="s"), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main(words) == 2
    assert "0 of 1 requests have a size, steps and seconds" in capsys.readouterr().err


def test_a_run_serves_the_log_s_own_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(service(300), tmp_path / "t.parquet").path
    words = ["cluster=sd-beta", "models=sd-v1", "trace=file", f"trace.path={path}", "shapes=trace", "arrivals=trace"]
    assert main(["run", *words, f"run.dir={tmp_path / 'out'}"]) == 0
    import pyarrow.parquet as pq

    took = pq.read_table(tmp_path / "out" / "requests.parquet").to_pandas()
    alike = took[(took.width == 512) & (took.height == 512) & (took.steps == 50)]
    assert (alike.denoise_s + alike.decode_s).nunique() == len(alike)


def seen(*groups: tuple[int, int, int, float]) -> Observed:
    """So many requests each of a width (by 1), steps and seconds."""
    width, steps, seconds = (np.repeat([each[at] for each in groups], [each[0] for each in groups]) for at in (1, 2, 3))
    return Observed(width, np.ones_like(width), steps, seconds)


def test_what_does_not_depend_on_the_steps_is_told_by_sizes_of_several_numbers_of_steps_alone() -> None:
    """At width 100 an image takes 1 s and 0.1 s a step; width 200 was asked for with 50 steps alone, in 16 s."""
    several = [(50, 100, steps, 1 + 0.1 * steps) for steps in (10, 20, 40)]
    profile = fit(seen(*several, (50, 200, 50, 16.0)), gpu="g", model="m", source="s")
    assert [point.seconds for point in profile.vae_decode] == pytest.approx([1.0, 1.0])
    assert [point.seconds for point in profile.step] == pytest.approx([0.1, 0.3])
    for few in (several[:2], [several[0], (50, 100, 12, 2.2), (50, 100, 15, 2.5)]):  # too few, too near each other
        alone = fit(seen(*few, (50, 200, 50, 16.0)), gpu="g", model="m", source="s")
        assert [point.seconds for point in alone.vae_decode] == [1e-6, 1e-6]  # all of it is the steps'
        assert alone.step[1].seconds == pytest.approx(0.32)


def test_every_scatter_rests_on_enough_requests_that_take_alike() -> None:
    many = LEAST_AROUND + 500
    apart = fit(seen((many, 100, 1, 1.0), (many, 200, 1, 5.0)), gpu="g", model="m", source="s").scatter
    assert apart is not None
    assert [around.seconds for around in apart.around] == [1.0, 5.0]
    rest = fit(seen((many, 100, 1, 1.0), (300, 200, 1, 4.0)), gpu="g", model="m", source="s").scatter
    assert rest is not None
    assert [around.seconds for around in rest.around] == [1.5]  # too few of the slow ones: all together
    equal = seen((1, 100, 1, 1.0), (20 * LEAST_AROUND, 200, 1, 1.2), (LEAST_AROUND, 300, 1, 1.2000001))
    once = fit(equal, gpu="g", model="m", source="s").scatter
    assert once is not None
    assert [around.seconds for around in once.around] == [1.2]  # five digits do not tell the next from it


def test_a_profile_goes_into_a_folder_that_is_there_and_needs_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(service(2_000), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "--least", "10", "-o"]
    assert main([*words, str(tmp_path / "nowhere")]) == 2
    assert f"{tmp_path / 'nowhere'}: is no folder; make it" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    assert main([*words, str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "out" / "g_m.yaml")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["g_m.yaml"]
