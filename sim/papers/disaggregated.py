"""`mezzotint reproduce disaggregated`: disaggregated and colocated stages, compared with measurements of others."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from matplotlib.figure import Figure
from pydantic.dataclasses import dataclass

from mezzotint.figures.page import number
from mezzotint.figures.palette import COLOURS, GREY, house_style, panels, plain_numbers
from mezzotint.settings.ranges import Bandwidth, Count, Seconds, SomeShare
from mezzotint.sim.papers.runs import to_override
from mezzotint.sim.papers.study import DATA, RESULTS, Check, Comparison, Output, Results, Study, read_data
from mezzotint.sim.plan.capacity import CapacitySpec, measure_in, search
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.simulate import simulate

WIDTH, HEIGHT = 1664, 928
"""Size in pixels of every request: stage times hold for one size, and only a latent's bytes depend on it."""

DISAGFUSION, LIMIT_S, LATE = "wan-1-6-1", 136, 0.1
"""The setup whose capacity is searched, its limit (1.5 x 91.0 s, to whole seconds), and the share that may be late."""

REQUESTS = 2000
"""Requests of each run of that search."""


@dataclass(frozen=True)
class Setup:
    """A cluster and its load.

    Attributes:
        pools: component -> GPUs, or the component whose pool it shares; empty: all on every GPU.
        degrees: component -> parallel degree.
        outstanding: requests in flight; None sends 50 a second, more than any setup serves.
        handover_s, link_bytes_s: seconds of a hand-over, and bytes per second of the link.
    """

    profile: str
    gpus: Count
    steps: Count
    requests: Count
    outstanding: Count | None = None
    pools: Mapping[str, Count | str] = field(default_factory=dict)
    degrees: Mapping[str, Count] = field(default_factory=dict)
    handover_s: Seconds = 0.0
    link_bytes_s: Bandwidth = 0.0

    def overrides(self, gpu: str, memory_bytes: int | None) -> list[str]:
        """Return the overrides of `mezzotint run` besides the load and the folder of the profiles."""
        memory = "null" if memory_bytes is None else memory_bytes
        kind = f"{{name: {gpu}, memory_bytes: {memory}, active_w: null, idle_w: null, source: not used}}"
        return [
            f"system={'pools' if self.pools else 'colocated'}",
            f"cluster.pools=[{{gpu: {kind}, count: {self.gpus}}}]",
            "cluster=pools",
            "models=qwen-image-2512",
            f"models.large.name={self.profile}",
            f"models.large.steps={self.steps}",
            f"models.large.width={WIDTH}",
            f"models.large.height={HEIGHT}",
            *([f"group_policy.pools={to_override(self.pools)}"] if self.pools else []),
            *([f"group_policy.degrees={to_override(self.degrees)}"] if self.degrees else []),
            f"executor.migration_s={self.handover_s:g}",
            f"executor.link_bytes_s={self.link_bytes_s:g}",
            "quality=alpha",
            "run.dir=unused",
        ]

    @property
    def load(self) -> list[str]:
        """The overrides of its arrivals."""
        arrivals = ["arrivals=saturation", "arrivals.gap_s=0.02"]
        if self.outstanding is not None:
            arrivals = ["arrivals=closed", f"arrivals.outstanding={self.outstanding}"]
        return [*arrivals, f"trace.requests={self.requests}", "slo=[]"]

    @property
    def division(self) -> str:
        """The division of its GPUs, such as 1:6:1, in the order of the plan."""
        if not self.pools:
            return f"{self.gpus} colocated"
        sharing: dict[str, list[str]] = {}
        for name, shared in self.pools.items():
            sharing.setdefault(shared if isinstance(shared, str) else name, []).append(name)
        return ", ".join(f"{self.pools[first]} {' + '.join(names)}" for first, names in sharing.items())


@dataclass(frozen=True)
class Cell:
    """One measured value.

    Attributes:
        measure: rate (images a second), p50 or p95 (seconds), or busiest (the component with the busiest GPUs).
        over: the setup whose value divides that of ``setup``.
        expected: the measured value; a text is a component, or "< 1".
    """

    what: str
    setup: str
    measure: str
    expected: float | str
    over: str | None = None

    def value(self, setups: Mapping[str, Results]) -> float | str:
        """Return the simulated value from the results of the setups."""
        ours: float | str = setups[self.setup][self.measure]
        return ours / setups[self.over][self.measure] if self.over is not None else ours


@dataclass(frozen=True)
class Group:
    """Cells of one source; ``tolerance`` is relative."""

    group: str
    note: str
    cells: tuple[Cell, ...]
    tolerance: SomeShare = 0.1


@dataclass(frozen=True)
class Inputs:
    """conf/data/disaggregated.yaml: profiles by model, bytes of memory by GPU (None holds all), setups and cells."""

    profiles: Mapping[str, dict[str, Any]]
    gpus: Mapping[str, int | None]
    setups: Mapping[str, Setup]
    rows: tuple[Group, ...]
    sensitivity: Mapping[str, tuple[str, ...]]
    not_run: Mapping[str, str]


INPUTS: Inputs = read_data(DATA / "disaggregated.yaml", Inputs)


def compare(check: Check = False, output: Output = RESULTS) -> int:
    """Replay disaggregated and colocated stages, compare them with LightX2V's, DisagFusion's and vLLM-Omni's
    measurements, and write disaggregated.md, .json and .svg. It takes a minute.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    return STUDY.reproduce(lambda: measure(INPUTS), output, check=check)


def measure(inputs: Inputs) -> dict[str, Any]:
    """Run every setup of ``inputs``, and return the results as JSON."""
    with TemporaryDirectory() as folder:
        for model, costs in inputs.profiles.items():
            profile = {"schema": 1, "model": model, "basis": "published"} | costs
            (Path(folder) / f"{model}.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")

        def overrides(setup: Setup) -> list[str]:
            gpu = inputs.profiles[setup.profile]["gpu"]
            return [*setup.overrides(gpu, inputs.gpus[gpu]), f"backend.folder={folder}"]

        setups = {name: _measure([*overrides(setup), *setup.load]) for name, setup in inputs.setups.items()}
        capacity_hz = _capacity_hz(overrides(inputs.setups[DISAGFUSION]))
    return {
        "setups": setups,
        "rows": [
            {
                "group": group.group,
                "note": group.note,
                "tolerance": group.tolerance,
                "cells": [
                    {"what": cell.what, "expected": cell.expected, "ours": cell.value(setups)} for cell in group.cells
                ],
            }
            for group in inputs.rows
        ],
        "sensitivity": {
            title: [
                {
                    "division": inputs.setups[name].division,
                    "rate": setups[name]["rate"],
                    "busiest": setups[name]["busiest"] if inputs.setups[name].pools else "all",
                    "busy": max(setups[name]["busy"].values()),
                }
                for name in names
            ]
            for title, names in inputs.sensitivity.items()
        },
        "capacity_hz": capacity_hz,
        "limit_s": LIMIT_S,
        "late": LATE,
        "sources": {name: profile["source"] for name, profile in inputs.profiles.items()},
        "not_run": dict(inputs.not_run),
    }


def _measure(overrides: list[str]) -> dict[str, Any]:
    summary = simulate(resolve_config(compose_config(overrides))).summary
    busy = {name: part["busy_fraction"] for name, part in summary["stages"]["components"].items()}
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
    load = ["arrivals=poisson", "arrivals.rate_rpm=1", f"slo=[{LIMIT_S}s]", f"trace.requests={REQUESTS}"]
    config = compose_config([*overrides, *load])
    seeds = range(config.seed, config.seed + 3)
    spec = CapacitySpec(LATE, f"{LIMIT_S}s", from_rpm=1.0, to_rpm=6.0, seeds=seeds, tolerance=0.02)
    with TemporaryDirectory() as runs:
        return search(spec, measure_in(Path(runs), config, spec.slo)).rate_rpm.mean / 60


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare each cell of the JSON file with what was measured."""
    rows = {}
    for group in facts["rows"]:
        for cell in group["cells"]:
            ours, expected = cell["ours"], cell["expected"]
            if isinstance(ours, str):
                is_within = ours == expected
            elif isinstance(expected, str):
                is_within = ours < float(expected.removeprefix("<"))
            else:
                is_within = abs(ours / expected - 1) <= group["tolerance"]
            was, now = (value if isinstance(value, str) else number(value) for value in (expected, ours))
            rows[f"{group['group']}: {cell['what']}"] = Comparison(was, now, is_within)
    return rows


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw two panels: measured over simulated values of the cells, and throughput by the division of the GPUs."""
    figure, ((cells, rates),) = panels(2, 1, width=12.0, height=4.2, share_y=False)
    for group, colour in zip(facts["rows"], (*COLOURS, GREY), strict=False):
        pairs = [(cell["expected"], cell["ours"]) for cell in group["cells"] if isinstance(cell["expected"], float)]
        if pairs:
            expected, ours = zip(*pairs, strict=True)
            cells.plot(expected, ours, "o", color=colour, markersize=5, label=group["group"].partition(",")[0])
    ends = (0.015, 500)
    cells.plot(ends, ends, color=GREY, linewidth=0.8)
    cells.set(xscale="log", yscale="log", xlabel="measured (images a second, seconds, or ratio)", ylabel="simulated")
    for axis in (cells.xaxis, cells.yaxis):
        axis.set_major_formatter(plain_numbers())
    labels: list[str] = []
    for (title, rows), colour in zip(facts["sensitivity"].items(), COLOURS, strict=False):
        best = max(row["rate"] for row in rows)
        bars = range(len(labels), len(labels) + len(rows))
        rates.barh(bars, [row["rate"] / best for row in rows], 0.7, color=colour, label=title)
        labels += [*(row["division"] for row in rows), ""]
    rates.set_yticks(range(len(labels)), labels, fontsize=7)
    rates.invert_yaxis()
    rates.set_xlabel("throughput over the best division")
    rates.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, columnspacing=1)
    return {"": figure}


STUDY = Study("disaggregated", comparisons, draw, values=lambda facts: {"compared": comparisons(facts)})
