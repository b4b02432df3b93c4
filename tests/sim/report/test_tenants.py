"""Tenants in the report: shown where some run tells them apart."""

from pathlib import Path

import pytest

from mezzotint.sim.report import report
from mezzotint.sim.report.figures import charts
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.tenants import tail_latencies, tenants
from mezzotint.sim.run.simulate import write
from tests.sim.lab import simulated

BASE = ("models=sdxl", "cluster=h100", "cluster.count=1", "trace.requests=40", "scheduler=central")


def test_each_run_shows_its_tenants_beside_a_fair_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_FIGURES", {"tenants": report._FIGURES["tenants"]})  # noqa: SLF001 - the others take 6 s
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
    p95_s = tail_latencies(runs[0])
    assert p95_s is not None
    assert len(p95_s) == runs[0].summary["tenants"]["count"]
    assert {round(row["latency_s"]["p95"], 9) for row in rows} <= set(p95_s.round(9))
    page = report.write_report([tmp_path])[0].read_text(encoding="utf-8")
    assert rows[0]["user_id"] in page
