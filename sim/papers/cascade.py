"""`mezzotint reproduce cascade`: DiffServe beside its models alone, and DiffServe's claims about them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mezzotint.figures.palette import COLOURS, house_style, panels
from mezzotint.sim.papers.runs import Finished, Point, RunOptions, command_of
from mezzotint.sim.papers.study import DATA, Comparison, Results, Study, read_data


@dataclass(frozen=True, slots=True)
class Pair:
    """A light and a heavy model: ``models`` by name, and the FID of all images by the share of light answers."""

    models: str
    fid: list[float]


@dataclass(frozen=True, slots=True)
class Changing:
    """A rate that changes: its mean, the relative levels in turn, and the seconds of each."""

    mean_rps: float
    levels: list[float]
    every_s: float


@dataclass(frozen=True, slots=True)
class Inputs:
    """Constant rates, and a changing one, in requests per second; the cluster, the deadline and the cascades."""

    rates_rps: list[float]
    changing: Changing
    gpus: int
    slo_s: float
    requests: int
    cascades: dict[str, Pair]


INPUTS: Inputs = read_data(DATA / "cascade.yaml", Inputs)

DESIGNS: Mapping[str, tuple[str, ...]] = {
    "light alone": ("controller=none", "allocation=uniform-large", "allocation.role=light", "frontend.threshold=0"),
    "heavy alone": ("controller=none", "allocation=uniform-large", "allocation.role=heavy", "frontend=direct-large",
                    "frontend.role=heavy"),
    "fixed cascade": ("controller=none",),
    "DiffServe": (),
    "DiffServe, by arrivals": ("controller.demand=arrivals",),
}  # fmt: skip
"""Overrides of system=diffserve by design. Fixed: the threshold and the split of the configuration."""

OURS = ("DiffServe", "DiffServe, by arrivals")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a cascade's models, a design, and a rate; None is the changing one."""

    cascade: str
    design: str
    rate_rps: float | None
    point: Point


def cells(quick: bool) -> Iterator[Cell]:
    """Yield every run; ``quick`` takes a tenth of the requests of every third rate, of the first cascade."""
    common = ("system=diffserve", "cluster=a100", f"cluster.count={INPUTS.gpus}", f"slo=[{INPUTS.slo_s:g}s]",
              f"trace.requests={INPUTS.requests // (10 if quick else 1)}", "quality=alpha")  # fmt: skip
    for name, pair in list(INPUTS.cascades.items())[: 1 if quick else None]:
        for design, words in DESIGNS.items():
            for rate in (*INPUTS.rates_rps[:: 3 if quick else 1], None):
                cascade = (f"frontend=cascade-{name}", f"models={pair.models}", *_arrivals(rate))
                yield Cell(name, design, rate, Point("cascade", {}, (*common, *cascade, *words)))


def _arrivals(rate_rps: float | None) -> tuple[str, ...]:
    if rate_rps is not None:
        return (f"arrivals.rate_rpm={60 * rate_rps:g}",)
    load = INPUTS.changing
    levels = ",".join(f"{level:g}" for level in load.levels)
    return ("arrivals=fluctuating", f"arrivals.rate_rpm={60 * load.mean_rps:g}", f"arrivals.levels=[{levels}]",
            f"arrivals.every_s={load.every_s:g}")  # fmt: skip


def measure_run(cell: Cell, run: Finished) -> dict[str, Any]:
    """Return the results of one run: its violations, the share that the light model answered, and the FID of that."""
    pair, requests = INPUTS.cascades[cell.cascade], run.summary["requests"]
    answered = [model for model in run.requests("model").column("model").to_pylist() if model is not None]
    light = sum(model != "sd1.5" for model in answered) / max(len(answered), 1)
    return {
        "cascade": cell.cascade,
        "design": cell.design,
        "rate_rps": cell.rate_rps,
        "late": run.number("slo", f"{INPUTS.slo_s:g}s", "violation_rate"),
        "light": light,
        "fid": float(np.interp(light, np.linspace(0, 1, len(pair.fid)), pair.fid)),
        "dropped": requests["discarded"] / requests["arrived"],
    }


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the direction of DiffServe's claims with the runs under the changing load.

    The paper prints ranges over several loads and cascades, and the artifact's trace is not at hand, so that how large
    a difference is cannot be compared.
    """
    claims = {}
    for name in dict.fromkeys(row["cascade"] for row in facts["rows"]):
        rows = {row["design"]: row for row in facts["rows"] if row["cascade"] == name and row["rate_rps"] is None}
        for ours in OURS:
            for design in ("heavy alone", "fixed cascade"):
                cut = 1 - rows[ours]["late"] / rows[design]["late"] if rows[design]["late"] else 0.0
                claims[f"{name}, {ours}: fewer violations than {design}"] = Comparison(
                    "19 % to 70 %", f"{cut:.0%}", cut > 0
                )
            gain = 1 - rows[ours]["fid"] / rows["light alone"]["fid"]
            claims[f"{name}, {ours}: better FID than the light model alone"] = Comparison(
                "up to 24 %", f"{gain:.0%}", gain > 0
            )
    return claims


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw violations and FID by rate, a row for each cascade."""
    names = list(dict.fromkeys(row["cascade"] for row in facts["rows"]))
    figure, grid = panels(2, len(names), width=10.0, height=3.4 * len(names), share_y=False)
    for (late, fid), name in zip(grid, names, strict=True):
        for design, colour in zip(DESIGNS, COLOURS, strict=False):
            rows = [row for row in facts["rows"] if (row["cascade"], row["design"]) == (name, design)]
            rows = [row for row in rows if row["rate_rps"]]
            rates = [row["rate_rps"] for row in rows]
            late.plot(rates, [100 * row["late"] for row in rows], color=colour, marker="o", label=design)
            fid.plot(rates, [row["fid"] for row in rows], color=colour, marker="o", label=design)
        late.set(xlabel="requests per second", ylabel=f"late or dropped, {INPUTS.slo_s:g} s [%]", title=name)
        fid.set(xlabel="requests per second", ylabel="FID of all images (lower is better)", title=name)
        late.set_ylim(0, None)
    grid[0][0].legend(fontsize=8)
    return {"": figure}


STUDY = Study(
    "cascade",
    comparisons,
    draw,
    values=lambda facts: {"claims": comparisons(facts), "inputs": INPUTS},
    lines=lambda facts: [f"{name}: {row.ours} (paper: {row.expected})" for name, row in comparisons(facts).items()],
)


@command_of(STUDY)
def compare(options: RunOptions) -> Results:
    """Compare DiffServe's cascades with their models alone, and write cascade.md, .json and .svg.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    planned = list(cells(options.quick))
    runs = options.finish([cell.point for cell in planned])
    return {"rows": [measure_run(cell, run) for cell, run in zip(planned, runs, strict=True)]}
