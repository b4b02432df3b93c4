"""Scattered service times have the measured quantiles and depend only on the seed and the row."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from mezzotint.backends.base import Work, standalone_cost
from mezzotint.backends.profile import Point, Profile, read, write
from mezzotint.backends.profiled import Profiled
from mezzotint.backends.scatter import Around, Scatter, draw_uniform

SCATTER = Scatter(
    probabilities=[0.0, 0.5, 0.9, 1.0],
    around=[Around(seconds=5.0, factors=[0.8, 1.0, 1.5, 3.0]), Around(seconds=50.0, factors=[0.9, 1.0, 1.1, 1.2])],
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    profile = Profile(
        schema=1, model="m", gpu="g", source="a test", scatter=SCATTER,
        step=[Point(width=512, height=512, seconds=0.1), Point(width=1024, height=512, seconds=0.2)],
        vae_decode=[Point(width=512, height=512, seconds=1.0), Point(width=1024, height=512, seconds=2.0)],
    )  # fmt: skip
    write(profile, tmp_path / "g_m.yaml")
    assert read(tmp_path / "g_m.yaml") == profile
    return str(tmp_path)


def seconds(backend: Profiled, row: int, steps: int = 50) -> float:
    cost = standalone_cost(backend, Work("m", 512, 512, steps, row=row))
    return cost.denoise_s + cost.other_s


def test_scattered_times_have_the_measured_quantiles_and_mean(folder: str) -> None:
    backend = Profiled("g", folder=folder, seed=3)
    typical_s = backend.typical_s(Work("m", 512, 512, 50))
    assert typical_s == pytest.approx(6.0)
    drawn = np.array([seconds(backend, row) for row in range(20_000)]) / typical_s
    for probability in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(drawn, probability) == pytest.approx(SCATTER.quantile(typical_s, probability), rel=0.02)
    assert drawn.mean() == pytest.approx(SCATTER.mean(typical_s), rel=0.01)


def test_scattered_time_of_a_row_does_not_depend_on_other_rows(folder: str) -> None:
    one, other = Profiled("g", folder=folder, seed=3), Profiled("g", folder=folder, seed=3)
    rows = [5, 100_000, 5, 7]
    assert [seconds(one, row) for row in rows] == [seconds(other, row) for row in reversed(rows)][::-1]
    assert seconds(Profiled("g", folder=folder, seed=4), 5) != seconds(one, 5)
    assert all(0 <= draw_uniform(3, row) < 1 for row in range(5000))


def test_standalone_latency_and_batches_use_the_typical_time(folder: str) -> None:
    backend = Profiled("g", folder=folder, seed=3, extrapolate="warn")
    assert seconds(backend, -1) == pytest.approx(6.0)
    works = [Work("m", 512, 512, 50, row=row) for row in (1, 2)]
    assert backend.steps(works, 50).seconds == pytest.approx(2 * 5.0)


def test_single_steps_sum_to_all_steps_at_once(folder: str) -> None:
    backend = Profiled("g", folder=folder, seed=3)
    alone = [Work("m", 512, 512, 50, row=9)]
    once = backend.steps(alone, 50).seconds
    again = [Work("m", 512, 512, 50, row=9)]
    assert sum(backend.steps(again).seconds for _ in range(50)) == pytest.approx(once)


@pytest.mark.parametrize(
    ("probabilities", "factors"), [([0.0, 0.5], [1.0, 2.0]), ([0.0, 1.0], [2.0, 1.0]), ([0.0, 0.5, 1.0], [1.0, 2.0])]
)
def test_malformed_quantile_function_is_refused(probabilities: list[float], factors: list[float]) -> None:
    with pytest.raises(ValidationError):
        Scatter(probabilities=probabilities, around=[Around(seconds=1.0, factors=factors)])


def test_sd_beta_profile_has_the_medians_of_the_log() -> None:
    """Medians of the log: 512x512 and 512x768 at 50 and 150 steps."""
    backend = Profiled("sd-beta")
    for size, steps, median_s in ((512, 50, 4.94), (512, 150, 13.97), (768, 50, 8.99), (768, 150, 25.8)):
        assert backend.typical_s(Work("sd-v1", 512, size, steps)) == pytest.approx(median_s, rel=0.02)
    assert backend.by_row
    assert not Profiled("a10g").by_row
