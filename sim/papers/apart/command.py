"""`mezzotint reproduce apart`: stages on GPUs of their own or together, compared with measurements of others."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mezzotint.sim.papers.apart.rows import Study, comparisons, study, value_of
from mezzotint.sim.papers.study import RESULTS, Check, Output, read_committed, report_lost
from mezzotint.sim.report.pages import write_study
from mezzotint.sim.run.config.compose import composed
from mezzotint.sim.run.config.options import resolved
from mezzotint.sim.run.simulate import simulate

NAME = "apart"

DISAGFUSION, LIMIT_S, LATE = "wan-1-6-1", 136, 0.1
"""The setup whose capacity is searched, its limit (1.5 x 91.0 s, to whole seconds), and the share that may be late."""

REQUESTS = 2000
"""Requests of each run of that search."""


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Replay stages on GPUs of their own and together, compare them with LightX2V's, DisagFusion's and vLLM-Omni's
    measurements, and write apart.md, .json and .svg. It takes a minute.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    from mezzotint.sim.papers.apart import page  # importing matplotlib takes a second

    before = read_committed(output / f"{NAME}.json", comparisons) if check else {}
    facts = run_setups(study())
    for name, row in comparisons(facts).items():
        print(f"{name}: expected {row.expected}, found {row.ours}{'' if row.within_tolerance else ', outside'}")
    if check:
        return report_lost(before, comparisons(facts))
    write_study(output, NAME, facts, page.render, page.draw)
    return 0


def run_setups(given: Study) -> dict[str, Any]:
    """Run every setup of ``given``, and return the results as JSON."""
    with TemporaryDirectory() as folder:
        for model, times in given.profiles.items():
            (Path(folder) / f"{model}.yaml").write_text(times.profile(model), encoding="utf-8")
        setups = {name: _measured(_overrides(given, name, folder)) for name in given.setups}
        capacity_hz = _capacity_hz(_overrides(given, DISAGFUSION, folder))
    return {
        "setups": setups,
        "rows": [
            {
                "group": group.group,
                "note": group.note,
                "tolerance": group.tolerance,
                "cells": [
                    {"what": cell.what, "expected": cell.expected, "ours": value_of(cell, setups)}
                    for cell in group.cells
                ],
            }
            for group in given.rows
        ],
        "sensitivity": {
            title: [
                {
                    "division": given.setups[name].division,
                    "rate": setups[name]["rate"],
                    "busiest": setups[name]["busiest"] if given.setups[name].pools else "all",
                    "busy": max(setups[name]["busy"].values()),
                }
                for name in names
            ]
            for title, names in given.sensitivity.items()
        },
        "capacity_hz": capacity_hz,
        "limit_s": LIMIT_S,
        "late": LATE,
        "sources": {name: times.source for name, times in given.profiles.items()},
        "not_run": dict(given.not_run),
    }


def _overrides(given: Study, name: str, folder: str) -> list[str]:
    setup = given.setups[name]
    gpu = given.profiles[setup.profile].gpu
    return [*setup.overrides(gpu, given.gpus[gpu]), f"backend.folder={folder}", "run.dir=unused"]


def _measured(overrides: list[str]) -> dict[str, Any]:
    summary = simulate(resolved(composed(overrides))).summary
    components: Mapping[str, Any] = summary["stages"]["components"]
    busy = {name: part["busy_fraction"] for name, part in components.items()}
    return {
        "rate": summary["throughput_rpm"] / 60,
        "p50": summary["latency_s"]["p50"],
        "p95": summary["latency_s"]["p95"],
        "busiest": max(busy, key=lambda name: busy[name]),
        "busy": busy,
        "component_loads": summary["stages"]["component_loads"],
    }


def _capacity_hz(overrides: list[str]) -> float:
    """Return the highest Poisson rate, per second, at which at most ``LATE`` take longer than ``LIMIT_S``."""
    from mezzotint.sim.plan.capacity import CapacitySpec, measure_in, search

    words = [each for each in overrides if not each.startswith(("arrivals", "slo", "run.dir", "trace.requests"))]
    config = composed(
        [
            *words,
            "arrivals=poisson",
            "arrivals.rate_rpm=1",
            f"slo=[{LIMIT_S}s]",
            f"trace.requests={REQUESTS}",
            "run.dir=unused",
        ]
    )
    seeds = range(config.seed, config.seed + 3)
    spec = CapacitySpec(LATE, f"{LIMIT_S}s", from_rpm=1.0, to_rpm=6.0, seeds=seeds, tolerance=0.02)
    with TemporaryDirectory() as runs:
        return search(spec, measure_in(Path(runs), config, spec.slo)).rate_rpm.mean / 60
