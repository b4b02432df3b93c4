"""A profile fitted on logged seconds predicts requests outside the fit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mezzotint.backends.profile import read
from mezzotint.sim.cli import main
from mezzotint.sim.fit.profile.cells import Cell, judge_windows, longest, measure_cells, split
from mezzotint.sim.fit.profile.command import backend
from mezzotint.sim.fit.profile.fit import FIXED_PART, MIN_SCATTER, NO_FIXED_PART, fit
from mezzotint.sim.fit.profile.observed import first_arrival, observe, period
from mezzotint.traces.table.trace import Trace, make, write
from tests.sim.fit.measured.lab import served

SIZES = ((512, 512), (512, 768), (1024, 512), (1024, 1024))


def service(requests: int = 40_000, slow: float = 0.0) -> Trace:
    """A service with a known law: affine in the steps, with a longer tail for few steps. The first ``slow`` share of
    the requests took a quarter longer, with a tail five times as long."""
    rng = np.random.default_rng(5)
    width, height = np.array(SIZES)[rng.integers(len(SIZES), size=requests)].T
    steps = rng.choice([25, 50, 100, 150], requests)
    typical_s = width * height * (1e-6 + 3e-7 * steps)
    late_s = np.where(rng.random(requests) < 0.2, rng.exponential(0.2, requests), 0.0)
    then = np.arange(requests) < slow * requests
    typical_s, late_s = np.where(then, 1.25, 1.0) * typical_s, np.where(then, 5.0, 1.0) * late_s
    gen_s = typical_s * np.exp(rng.normal(0.0, 0.01, requests)) + late_s
    columns = {
        "request_id": np.arange(requests).astype(str), "arrival_s": np.arange(requests, dtype=float),
        "width": width, "height": height, "steps": steps, "gen_s": gen_s,
    }  # fmt: skip
    notes = {"first_arrival": "2022-08-09T12:00:00+00:00"}
    return make(columns, name="service", source="a law", notes=notes)


def fitted_cells(seen: pd.DataFrame, later: pd.DataFrame) -> list[Cell]:
    return measure_cells(later, backend(fit(seen, gpu="g", model="m", source="s")), "m", 100)


def test_fit_predicts_held_out_mean_and_slowest_tenth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(service(), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main([*words, "--page", str(tmp_path / "page.md")]) == 0
    assert "within 5 % in 16 of 16 cells" in capsys.readouterr().out
    profile = read(tmp_path / "g_m.yaml")
    validation, worst = profile.validation or "", profile.service_error
    assert worst is not None
    assert 0.0 < worst <= 0.05
    assert f"worst {100 * worst:.1f} %" in validation
    assert validation.endswith("service_error: the worst cell")
    page = (tmp_path / "page.md").read_text()
    assert "16 of 16 cells" in validation
    for text in (validation, page):
        assert "the last fifth of the log, 2022-08-09 20:53 to 2022-08-09 23:06" in text  # 32,000 to 39,999 s
    assert page.count("| within |") == 16


def test_service_that_became_faster_is_fitted_on_later_requests() -> None:
    """A fit on the whole log pools both laws and mispredicts the last fifth."""
    training, held_out = split(observe(service(slow=0.4)))

    def check(seen: pd.DataFrame, later: pd.DataFrame) -> list[Cell]:
        assert (
            later["arrival_s"].max() < held_out["arrival_s"].min()
        )  # the window is chosen without the held-out requests
        return fitted_cells(seen, later)

    window = longest(judge_windows(training, check))
    assert 0.4 * 40_000 <= window.start <= 0.5 * 40_000
    pooled, recent = (fitted_cells(training[start:], held_out) for start in (0, window.start))
    assert sum(cell.is_within_tolerance for cell in pooled) <= 4
    assert sum(cell.is_within_tolerance for cell in recent) == len(recent) == 16


def test_short_log_is_fitted_whole() -> None:
    for requests in (2, 300):
        training, held_out = split(observe(service(requests)))
        assert training["arrival_s"].max() < held_out["arrival_s"].min()
        assert longest(judge_windows(training, lambda seen, later: [])).start == 0


def test_trace_without_a_first_arrival_reports_hours() -> None:
    trace = service(7_201)
    assert period(observe(trace), first_arrival(trace)) == "2022-08-09 12:00 to 2022-08-09 14:00"
    for notes in ({}, {"first_arrival": "noon"}, {"first_arrival": 5}):
        plain = make(trace.table, name="t", source="s", notes=notes)
        assert period(observe(plain), first_arrival(plain)) == "hours 0.0 to 2.0 of the trace"


def test_fit_recovers_the_planted_law() -> None:
    fitted, _ = split(observe(service()))
    profile = fit(fitted, gpu="g", model="m", source="a law")
    assert profile.basis == "measured"
    for point in profile.step:
        assert point.seconds == pytest.approx(3e-7 * point.pixels, rel=0.02)
    for decoding in profile.vae_decode:
        assert decoding.seconds == pytest.approx(1e-6 * decoding.pixels, rel=0.35)  # the smallest part by far


def test_trace_without_service_times_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(make({"request_id": ["a"], "arrival_s": [0.0]}, name="n", source="s"), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main(words) == 2
    assert "0 of 1 requests have a size, steps and seconds" in capsys.readouterr().err


def seen(*groups: tuple[int, int, int, float]) -> pd.DataFrame:
    """Build ``count`` requests for each width, number of steps and service time."""
    rows = np.repeat(np.array(groups)[:, 1:], [group[0] for group in groups], axis=0)
    table = pd.DataFrame(rows, columns=["width", "steps", "seconds"]).astype({"width": int, "steps": int})
    return table.assign(arrival_s=0.0, height=1, frames=1, pixels=table["width"])


def test_fixed_seconds_are_fitted_on_sizes_with_several_step_counts() -> None:
    """At width 100 an image takes 1 s plus 0.1 s per step; width 200 has only 50 steps, in 16 s."""
    several = [(50, 100, steps, 1 + 0.1 * steps) for steps in (10, 20, 40)]
    profile = fit(seen(*several, (50, 200, 50, 16.0)), gpu="g", model="m", source="s")
    assert [point.seconds for point in profile.vae_decode] == pytest.approx([1.0, 1.0])
    assert [point.seconds for point in profile.step] == pytest.approx([0.1, 0.3])
    # Two numbers of steps, and three close ones: seconds without scatter tell the parts apart.
    for few in (several[:2], [several[0], (50, 100, 12, 2.2), (50, 100, 15, 2.5)]):
        close = fit(seen(*few, (50, 200, 50, 16.0)), gpu="g", model="m", source="s")
        assert [point.seconds for point in close.vae_decode] == pytest.approx([1.0, 1.0])
        assert close.notes == FIXED_PART


@pytest.mark.parametrize(("steps", "scatter"), [([28], 0.01), ([28, 30], 0.05), ([20, 30], 0.8)])
def test_fixed_seconds_that_the_log_cannot_tell_apart_are_said(steps: list[int], scatter: float) -> None:
    rng = np.random.default_rng(1)
    rows = [(1, 100, count, (1 + 0.1 * count) * np.exp(rng.normal(0.0, scatter))) for count in steps for _ in range(40)]
    profile = fit(seen(*rows), gpu="g", model="m", source="s", notes="mine")
    assert profile.vae_decode == []
    assert profile.notes == f"mine; {NO_FIXED_PART}"


@pytest.mark.parametrize("steps", [(20, 30), (28, 50)])
def test_two_numbers_of_steps_tell_the_fixed_seconds_apart(steps: tuple[int, int]) -> None:
    """As a service with a default and a setting of quality logs them; steps of 0.1 s, and 1 s beside them."""
    rng = np.random.default_rng(2)
    rows = [(1, 100, count, (1 + 0.1 * count) * np.exp(rng.normal(0.0, 0.03))) for count in steps for _ in range(400)]
    profile = fit(seen(*rows), gpu="g", model="m", source="s")
    assert [point.seconds for point in profile.vae_decode] == pytest.approx([1.0], abs=0.15)
    assert profile.step[0].seconds == pytest.approx(0.1, rel=0.05)
    assert profile.scatter is not None
    assert profile.scatter.around[0].factors[-2] < 1.15


def test_every_scatter_group_has_enough_similar_requests() -> None:
    many = MIN_SCATTER + 500
    both = fit(seen((many, 100, 1, 1.0), (many, 200, 1, 5.0)), gpu="g", model="m", source="s").scatter
    assert both is not None
    assert [around.seconds for around in both.around] == [1.0, 5.0]
    rest = fit(seen((many, 100, 1, 1.0), (300, 200, 1, 4.0)), gpu="g", model="m", source="s").scatter
    assert rest is not None
    assert [around.seconds for around in rest.around] == [1.5]  # too few slow requests: one pooled class
    equal = seen((1, 100, 1, 1.0), (20 * MIN_SCATTER, 200, 1, 1.2), (MIN_SCATTER, 300, 1, 1.2000001))
    once = fit(equal, gpu="g", model="m", source="s").scatter
    assert once is not None
    assert [around.seconds for around in once.around] == [1.2]  # five digits cannot distinguish it from the next value


def test_quiet_requests_of_a_result_give_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A serial server of 10 and 30 ms a step: requests that waited take longer, and take no part."""
    rng = np.random.default_rng(6)
    arrival_s, is_large = np.cumsum(rng.exponential(1.0, 400)), rng.random(400) < 0.5
    side, service_s = np.where(is_large, 512, 256), np.where(is_large, 0.6, 0.2)
    trace = served(arrival_s, service_s, width=side, height=side, steps=np.full(400, 20))
    write(trace, tmp_path / "m.parquet")
    words = ["calibrate", "log", str(tmp_path / "m.parquet"), "--quiet", "--gpu", "g", "--model", "m"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    fitted = read(tmp_path / "g_m.yaml")
    assert {point.width: point.seconds for point in fitted.step} == pytest.approx({256: 0.01, 512: 0.03})
    assert "requests that began when no other was in flight" in fitted.source
    (tmp_path / "m.json").write_text('{"latency_mean": 1.0}')
    assert main([*words[:2], str(tmp_path / "m.json"), *words[3:], "-o", str(tmp_path)]) == 2
    assert "m.json: has aggregates alone, expected the requests" in capsys.readouterr().err
    (tmp_path / "m.csv").write_text("arrival_s,latency_s,size,steps\n0,9,512x512,20\n1,9,512x512,20\n2,9,512x512,20\n")
    assert main([*words[:2], str(tmp_path / "m.csv"), *words[3:], "-o", str(tmp_path)]) == 2
    assert "1 of 3 requests began when no other was in flight, expected 3 or more" in capsys.readouterr().err


def test_a_log_is_fitted_as_it_is_and_requests_without_seconds_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{row},512x512,20,{'' if row == 3 else 2}\n" for row in range(10))
    (tmp_path / "m.csv").write_text(f"arrival_s,size,steps,gen_s\n{rows}")
    words = ["calibrate", "log", str(tmp_path / "m.csv"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main(words) == 0
    assert "9 of 10 requests have a size, steps and seconds (gen_s); left out: the others" in capsys.readouterr().err
    assert [point.seconds for point in read(tmp_path / "g_m.yaml").step] == [0.1]
    (tmp_path / "m.csv").write_text(f"arrival_s,shape,steps,gen_s\n{rows}")
    assert main(words) == 2
    assert "none has width, height, expected 2 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "usual", "other", "said"),
    [
        ("images", 1, 4, "20 of several images"),
        ("guidance", 7.0, 1.0, "20 of other guidance"),
        ("base_model", "sdxl", "flux", "20 of other base_model"),
        ("loras", ["a"], [], "20 of other loras"),
        ("controlnets", [], ["canny"], "20 of other controlnets"),
        ("strength", None, 0.4, "20 of other strength"),
        ("input_images", None, 1, "20 of other input_images"),
    ],
)
def test_profile_is_of_requests_of_one_kind(
    column: str, usual: object, other: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step takes .1 s; a third of the requests ask for more, and take three times as long."""
    is_other = np.arange(60) % 3 == 2
    columns = {
        "request_id": np.arange(60).astype(str), "arrival_s": np.arange(60, dtype=float),
        "width": np.full(60, 512), "height": np.full(60, 512), "steps": np.where(np.arange(60) % 2, 20, 40),
        column: [other if each else usual for each in is_other],
    }  # fmt: skip
    columns["gen_s"] = np.where(is_other, 3.0, 1.0) * 0.1 * columns["steps"]
    seen = observe(make(columns, name="mixed", source="a law"))
    assert len(seen) == 40
    assert np.allclose(seen["seconds"], 0.1 * seen["steps"])
    assert f"mixed: 40 of 60 requests are of one kind; left out: {said}" in capsys.readouterr().err


def test_check_on_too_few_requests_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(service(400), tmp_path / "t.parquet")
    words = ["calibrate", "log", str(tmp_path / "t.parquet"), "--gpu", "g", "--model", "m", "-o", str(tmp_path)]
    assert main(words) == 0
    assert "not checked: no size and number of steps" in capsys.readouterr().out
    assert read(tmp_path / "g_m.yaml").service_error is None
