"""How MoDM's numbers are measured, on made-up runs with a known answer."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint.sim.papers.runs import Finished, Point, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.measures.modm import FRESH_S, SIZES, fresh, lag, smallest_from_rpm, sustained_rpm


def run(system: str, folder: Path = Path("nowhere"), late: float = 0.0, **choices: Any) -> tuple[Point, Finished]:
    chosen = {"system": system, **{name.replace("__", "."): str(value) for name, value in choices.items()}}
    point = Point("an-experiment", chosen, ())
    summary = {"system": system, "slo": {"2x": {"violation_rate": late}}}
    return point, Finished(point, {}, folder, summary)


def at_rates(**late: list[float]) -> Runs:
    """Two seeds at 10, 20, 30, ... requests a minute, one slightly later than nominal, the other equally earlier."""
    return Runs(
        tuple(
            run(system, late=share + off, arrivals__rate_rpm=10 * nth, seed=seed)
            for system, shares in late.items()
            for nth, share in enumerate(shares, start=1)
            for seed, off in ((1, 0.005), (2, -0.005))
        )
    )


def test_sustained_rate_is_interpolated_at_five_per_cent_late() -> None:
    runs = at_rates(quality=[0.01, 0.02, 0.14], throughput=[0.01, 0.09, 0.5])
    assert sustained_rpm(runs, ["quality"], "2x") == pytest.approx(20 + 10 * 0.03 / 0.12)
    assert sustained_rpm(runs, ["throughput"], "2x") == pytest.approx(10 + 10 * 0.04 / 0.08)
    assert sustained_rpm(runs, ["quality", "throughput"], "2x") == pytest.approx(22.5), "the best of them"
    assert sustained_rpm(at_rates(never=[0.01, 0.02, 0.03]), ["never"], "2x") == 30.0, "the highest that was run"
    with pytest.raises(Unmeasured, match=r"more than 5% of the requests are late at 10/min already"):
        sustained_rpm(at_rates(always=[0.06, 0.5]), ["always"], "2x")


@pytest.mark.parametrize(
    ("ages_s", "share"), [([0.0, FRESH_S, FRESH_S + 1, None], 2 / 3), ([FRESH_S + 1], 0.0), ([None, None], None)]
)
def test_hit_is_fresh_by_the_age_of_its_image(tmp_path: Path, ages_s: list[float | None], share: Any) -> None:
    """A request without a hit has no age and counts on neither side."""
    pq.write_table(pa.table({"source_age_trace_s": pa.array(ages_s, pa.float64())}), tmp_path / "requests.parquet")
    runs = Runs((run("modm-quality", tmp_path, admission="cache-all", cache__capacity=SIZES[-1]),))
    if share is None:
        with pytest.raises(Unmeasured, match="no hit, or a trace without times"):
            fresh(runs)
    else:
        assert fresh(runs) == pytest.approx(share)


def test_rate_that_needs_the_smallest_model_is_the_mean_of_the_ten_minutes_before(tmp_path: Path) -> None:
    minutes = range(60)
    pq.write_table(
        pa.table({"arrival_s": [60.0 * n for n in minutes for _ in range(n)]}), tmp_path / "requests.parquet"
    )
    on = [0] * 30 + [1] + [0] * 10 + [2] * 19  # first after half an hour, and again later
    pq.write_table(pa.table({"time_s": [60.0 * n for n in minutes], "gpus_smallest": on}), tmp_path / "cluster.parquet")
    runs = Runs((run("modm-quality", tmp_path),))
    assert smallest_from_rpm(runs) == sum(range(21, 31)) / 10
    pq.write_table(pa.table({"time_s": [0.0, 60.0], "gpus_smallest": [0, 0]}), tmp_path / "cluster.parquet")
    with pytest.raises(Unmeasured, match="never needed the smallest model"):
        smallest_from_rpm(runs)


def changing(folder: Path, levels: list[int], stretches: int, late: int) -> Finished:
    """Stretches of 100 s at each level in turn; the last ``late`` requests of a high stretch end in the next."""
    arrival, finish = [], []
    for n in range(stretches):
        many = levels[n % len(levels)]
        for k in range(many):
            at = 100.0 * n + 50.0 * (k + 1) / many
            arrival.append(at)
            finish.append(at + 100.0 if many == max(levels) and k >= many - late else at)
    arrival.append(100.0 * stretches + 1)
    finish.append(arrival[-1])
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"arrival_s": arrival, "finish_s": finish}), folder / "requests.parquet")
    config = {"arrivals": {"levels": levels, "every_s": 100}}
    return Finished(Point("an-experiment", {}, ()), config, folder, {"system": "vanilla"})


def test_requests_left_by_a_peak_are_served_in_the_trough(tmp_path: Path) -> None:
    """Of 40 requests at the peak, 10 are served in the trough of 20 after it: both sides count the same requests."""
    assert lag(changing(tmp_path, [20, 40], 4, late=10)) == pytest.approx((10 / 40, 10 / 20))
    assert lag(changing(tmp_path, [20, 40], 4, late=0)) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize(("levels", "stretches"), [([20, 40], 1), ([20, 40], 2), ([20, 30, 40, 30], 4)])
def test_trace_without_a_rise_and_fall_gives_no_lag(tmp_path: Path, levels: list[int], stretches: int) -> None:
    with pytest.raises(Unmeasured, match="ends before the rate has risen and fallen"):
        lag(changing(tmp_path, levels, stretches, late=0))
