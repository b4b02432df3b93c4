"""The designs that are compared, and DiffServe's claims about them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.sim.papers.scorecard.runs.finished import Finished
from mezzotint.sim.papers.scorecard.runs.points import Point
from mezzotint.sim.papers.scorecard.targets import read_data
from mezzotint.sim.papers.verdicts import Comparison, Results

NAME = "cascade"


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
class Study:
    """Constant rates, and a changing one, in requests per second; the cluster, the deadline and the cascades."""

    rates_rps: list[float]
    changing: Changing
    gpus: int
    slo_s: float
    requests: int
    cascades: dict[str, Pair]


STUDY: Study = read_data(Path(str(files("mezzotint.conf"))) / "data" / "cascade.yaml", Study)

DESIGNS: Mapping[str, tuple[str, ...]] = {
    "light alone": ("controller=none", "allocation=uniform-large", "allocation.role=light", "frontend.threshold=0"),
    "heavy alone": ("controller=none", "allocation=uniform-large", "allocation.role=heavy", "frontend=direct-large",
                    "frontend.role=heavy"),
    "fixed cascade": ("controller=none",),
    "DiffServe": (),
    "DiffServe, in flight": ("controller.demand=in-flight",),
}  # fmt: skip
"""Overrides of system=diffserve by design. Fixed: the threshold and the split of the configuration."""

OURS = ("DiffServe", "DiffServe, in flight")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a cascade's models, a design, and a rate; None is the changing one."""

    cascade: str
    design: str
    rate_rps: float | None
    point: Point


def cells(quick: bool) -> Iterator[Cell]:
    """Yield every run; ``quick`` takes a tenth of the requests of every third rate, of the first cascade."""
    common = ("system=diffserve", "cluster=a100", f"cluster.count={STUDY.gpus}", f"slo=[{STUDY.slo_s:g}s]",
              f"trace.requests={STUDY.requests // (10 if quick else 1)}", "quality=alpha")  # fmt: skip
    for name, pair in list(STUDY.cascades.items())[: 1 if quick else None]:
        for design, words in DESIGNS.items():
            for rate in (*STUDY.rates_rps[:: 3 if quick else 1], None):
                own = (f"frontend=cascade-{name}", f"models={pair.models}", *_arrivals(rate))
                yield Cell(name, design, rate, Point(NAME, {}, (*common, *own, *words)))


def _arrivals(rate_rps: float | None) -> tuple[str, ...]:
    if rate_rps is not None:
        return (f"arrivals.rate_rpm={60 * rate_rps:g}",)
    load = STUDY.changing
    levels = ",".join(f"{each:g}" for each in load.levels)
    return ("arrivals=fluctuating", f"arrivals.rate_rpm={60 * load.mean_rps:g}", f"arrivals.levels=[{levels}]",
            f"arrivals.every_s={load.every_s:g}")  # fmt: skip


def measured(cell: Cell, run: Finished) -> dict[str, Any]:
    """Return the results of one run: its violations, the share that the light model answered, and the FID of that."""
    pair, requests = STUDY.cascades[cell.cascade], run.summary["requests"]
    model = run.requests("model").column("model").to_pylist()
    answered = [each for each in model if each is not None]
    light = sum(each != "sd1.5" for each in answered) / max(len(answered), 1)
    return {
        "cascade": cell.cascade,
        "design": cell.design,
        "rate_rps": cell.rate_rps,
        "late": run.number("slo", f"{STUDY.slo_s:g}s", "violation_rate"),
        "light": light,
        "fid": float(np.interp(light, np.linspace(0, 1, len(pair.fid)), pair.fid)),
        "dropped": requests["discarded"] / requests["arrived"],
    }


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare DiffServe's claims with the runs under the changing load."""
    found = {}
    for name in dict.fromkeys(row["cascade"] for row in facts["rows"]):
        rows = {row["design"]: row for row in facts["rows"] if row["cascade"] == name and row["rate_rps"] is None}
        for ours in OURS:
            for design in ("heavy alone", "fixed cascade"):
                cut = 1 - rows[ours]["late"] / rows[design]["late"] if rows[design]["late"] else 0.0
                found[f"{name}, {ours}: fewer violations than {design}"] = Comparison(
                    "19 % to 70 %", f"{cut:.0%}", 0.19 <= cut <= 0.70
                )
            gain = 1 - rows[ours]["fid"] / rows["light alone"]["fid"]
            found[f"{name}, {ours}: better FID than the light model alone"] = Comparison(
                "up to 24 %", f"{gain:.0%}", 0 < gain <= 0.245
            )
    return found
