"""The study of autoscaling: what is compared."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers.autoscaling import study
from mezzotint.sim.papers.autoscaling.study import INPUTS, Day, busiest_day, cheapest, clusters, comparisons
from mezzotint.sim.papers.runs import Point, compose_point

TINY = (Day("tiny", ("trace.requests=150", "arrivals.rate_rpm=120")),)


def test_every_scaler_has_the_setting_of_its_file_among_its_values() -> None:
    for scaler in INPUTS.scalers:
        assert scaler.own in scaler.values
        found: Any = compose_point(Point("", {}, (f"controller={scaler.controller}",)))["controller"]
        for key in scaler.key.split("."):
            found = found[key]
        assert found == scaler.own


def test_start_up_times_vary_on_the_first_day_alone() -> None:
    planned = list(clusters(INPUTS.days, 16, quick=False))
    assert {cluster.startup_s for cluster in planned if cluster.day} == {None}
    assert {cluster.startup_s for cluster in planned if not cluster.day} == {None, *INPUTS.startups_s}
    assert {cluster.setting for cluster in planned if cluster.kind == "fixed"} == set(range(4, 17))
    words = [cluster.point.overrides for cluster in planned]
    assert len(set(words)) == len(words)


def test_busiest_day_has_the_most_requests_of_24_hours(tmp_path: Path) -> None:
    hours = np.r_[np.arange(0, 10), np.linspace(60, 83, 30), np.arange(100, 110)]
    table = tmp_path / "requests.csv"
    table.write_text("prompt,arrival_s\n" + "".join(f"a cat,{3600 * hour}\n" for hour in hours), encoding="utf-8")
    assert main(["trace", "import", "csv", str(table), "-o", str(tmp_path / "log.parquet")]) == 0
    day = busiest_day(tmp_path / "log.parquet", "log")
    assert {"trace.requests=40", "preload=10", "arrivals=trace"} < set(day.overrides)


def row(kind: str, setting: float, late: float, price: float, startup_s: float | None = None) -> dict[str, Any]:
    numbers = {"p95_s": 5.0, "gpu_h": 10.0, "busy": 0.5, "switches": 3}
    return {"kind": kind, "setting": setting, "startup_s": startup_s, "late": late, "usd_per_1000": price} | numbers


ROWS = [
    row("fixed", 6, 0.2, 5.0),
    row("fixed", 7, 0.01, 8.0),
    row("fixed", 8, 0.0, 9.0),
    row("utilisation", 0.7, 0.005, 6.0),
    row("utilisation", 0.7, 0.0, 1.0, 0.0),
    row("pending", 1.0, 0.3, 4.0),
    row("perfect knowledge", 0.0, 0.0, 6.5),
]


def test_prices_are_compared_where_few_are_late() -> None:
    assert {kind: found["usd_per_1000"] for kind, found in cheapest(ROWS).items()} == {
        "fixed": 8.0, "utilisation": 6.0, "perfect knowledge": 6.5
    }  # fmt: skip
    found = comparisons({"days": [{"title": "day", "rows": ROWS}]})
    assert {name: each.within_tolerance for name, each in found.items()} == {
        "day: utilisation over a fixed cluster": True,
        "day: perfect knowledge over a fixed cluster": True,
        "day: perfect knowledge over utilisation": False,
    }


def test_study_runs_and_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "INPUTS", replace(INPUTS, days=TINY))
    folders = ["-o", str(tmp_path), "--work", str(tmp_path / "runs")]
    words = ["reproduce", "autoscaling", "--quick", "--gpus", "4", *folders]
    assert main([*words, "--check"]) == 2, "there is nothing to compare with"
    assert main(words) == 0
    facts = json.loads((tmp_path / "autoscaling-quick.json").read_text())
    (day,) = facts["days"]
    kinds = {"fixed": 3, "utilisation": 1, "pending": 2, "queueing model": 1, "perfect knowledge": 2}
    assert Counter(found["kind"] for found in day["rows"]) == kinds
    assert facts["usd_per_gpu_h"] == 3.99
    for found in day["rows"]:
        assert found["usd_per_1000"] == pytest.approx(found["gpu_h"] * 3.99 * 1000 / 150)
    assert day["series"]["fixed"]["gpus"] == [4.0]
    assert main([*words, "--check"]) == 0
