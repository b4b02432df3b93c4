"""A profile fitted on the seconds in a log predicts requests that it has not seen."""

from pathlib import Path

import numpy as np
import pytest

from backends.profile import read
from sim.cli import main
from sim.study.generation.fit import fit
from sim.study.generation.observed import observed
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


def test_where_it_is_written_is_looked_at_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["calibrate", "log", "absent.parquet", "--gpu", "g", "--model", "m", "-o", str(tmp_path / "no")]
    assert main(words) == 2
    assert f"{tmp_path / 'no'}: is no folder; make it" in capsys.readouterr().err


def test_what_does_not_follow_from_the_steps_needs_runs_of_different_steps(tmp_path: Path) -> None:
    """Where all ran the same steps nothing tells it apart from them: all is steps, and the whole is right."""
    whole = service()
    same = whole.table.filter(whole.table["steps"].to_numpy() == 50)
    fitted, _ = observed(make(same.select(["request_id", "arrival_s", "width", "height", "steps", "gen_s"]),
                              name="service", source="a law"))  # fmt: skip
    profile = fit(fitted, gpu="g", model="m", source="a law")
    assert [decoding.seconds for decoding in profile.vae_decode] == pytest.approx([1e-6] * len(profile.vae_decode))
    for point in profile.step:
        assert 50 * point.seconds == pytest.approx(point.pixels * (1e-6 + 50 * 3e-7), rel=0.02)


def test_without_a_page_only_the_profile_is_written(tmp_path: Path) -> None:
    write(service(4_000), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main(words) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g_m.yaml", "t.parquet"]
