"""Tenants in the report: shown where some run tells them apart."""

from pathlib import Path

from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.tenants import tenants
from mezzotint.sim.run.simulate import write
from tests.sim.lab import simulated

BASE = ("models=sdxl", "cluster=h100", "cluster.count=1", "trace.requests=40", "scheduler=central")


def test_each_run_shows_its_tenants_beside_a_fair_one(tmp_path: Path) -> None:
    for name in ("fifo", "fair"):
        write(simulated(*BASE, f"discipline={name}"), tmp_path / name)
    assert tenants(load_runs([tmp_path / "fifo"])).empty
    assert charts.tenants(load_runs([tmp_path / "fifo"])) == []
    runs = load_runs([tmp_path])
    shown = tenants(runs)
    assert shown.series.nunique() == 2
    rows = runs[0].summary["tenants"]["rows"]
    assert shown[shown.series == runs[0].series].p95.tolist() == [row["latency_s"]["p95"] for row in rows]
    assert len(charts.tenants(runs)) == 1
    page = write_report([tmp_path])[0].read_text(encoding="utf-8")
    assert rows[0]["user_id"] in page
