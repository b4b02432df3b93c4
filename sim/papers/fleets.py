"""`mezzotint reproduce fleets`: several base models on one fleet, by number, residency, placement and router."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from mezzotint.figures.palette import COLOURS, house_style, panels
from mezzotint.settings.choice import choice
from mezzotint.sim.papers.runs import Finished, Point, RunOptions, command_of
from mezzotint.sim.papers.study import DATA, Comparison, Results, Study, read_data


@dataclass(frozen=True, slots=True)
class Inputs:
    """The numbers of base models, the cluster, the load, and the target (conf/data/fleets.yaml)."""

    models: list[int]
    gpus: int
    rate_rpm: float
    requests: int
    warmup: int
    target: float
    late: float
    too_few_gpus: int
    max_gpus: int


INPUTS: Inputs = read_data(DATA / "fleets.yaml", Inputs)

RESIDENCIES: Mapping[str, str] = {"one-model": "A GPU holds one model", "by-memory": "A GPU holds what fits"}

DESIGNS: Mapping[str, tuple[str, ...]] = {
    "on demand, first come": ("scheduler=fcfs",),
    "on demand, resident first": ("scheduler=resident-first",),
    "on demand, least requests": ("scheduler=per-worker", "router=least-requests", "discipline=fifo"),
    "on demand, by model": ("scheduler=per-worker", "router=by-model", "discipline=fifo"),
    "4 pinned": ("allocation=pinned", "scheduler=resident-first"),
    "static": ("allocation=static-by-popularity", "scheduler=resident-first"),
}
"""Overrides by design: a placement of models, and who chooses the GPU of a request."""

BEST, BLIND = "on demand, resident first", "on demand, first come"

SEARCHED = (BLIND, BEST, "on demand, by model", "static")
"""Designs of which the fewest GPUs for the target are searched."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of base models, a residency and a design."""

    models: int
    residency: str
    design: str

    def point(self, gpus: int, requests: int, warmup: int) -> Point:
        """Return the run on ``gpus`` GPUs."""
        shares = ",".join(map(str, choice("trace", "synthetic-gentd26")["base_models"][: self.models]))
        words = (
            "trace=synthetic-gentd26", f"trace.base_models=[{shares}]", f"trace.requests={requests}",
            f"warmup={warmup}", f"arrivals.rate_rpm={INPUTS.rate_rpm:g}", f"slo=[{INPUTS.target:g}x]",
            "models=sdxl", "models.large.steps=30", "cluster=h100", "backend.gpu=h100-diffusers",
            f"cluster.count={gpus}", "++cluster.gpu.gpus_per_instance=8", "frontend=by-base-model",
            f"residency={self.residency}", *DESIGNS[self.design],
        )  # fmt: skip
        return Point("fleets", {}, words)


def cells(quick: bool) -> Iterator[Cell]:
    """Yield one model, and every combination of more; ``quick`` has the most models and the designs of the claims."""
    one, *several = INPUTS.models
    yield Cell(one, "one-model", BLIND)
    for models in several[-1:] if quick else several:
        for residency in RESIDENCIES:
            for design in (BLIND, BEST) if quick else DESIGNS:
                yield Cell(models, residency, design)


def measure_run(cell: Cell, run: Finished) -> dict[str, Any]:
    """Return latency, swaps and residency of one run; ``swapping_gpus`` is the mean number of GPUs that load."""
    fleet, gpu = run.summary["fleet"], run.summary["gpu"]
    return {
        "models": cell.models,
        "residency": cell.residency,
        "design": cell.design,
        "p50_s": run.number("latency_s", "p50"),
        "p95_s": run.number("latency_s", "p95"),
        "late": run.number("slo", f"{INPUTS.target:g}x", "violation_rate"),
        "hit_rate": fleet["hit_rate"],
        "swaps": {source: of["count"] for source, of in fleet["swaps"].items()},
        "swap_busy_share": fleet["swap_busy_share"],
        "swapping_gpus": gpu["switch_s"] / (gpu["seconds"] / gpu["count"]),
        "replicas": [of["replicas"] for of in list(fleet["models"].values())[:3]],
    }


def fewest_gpus(planned: Sequence[Cell], run: Any) -> dict[Cell, int]:
    """Return the fewest GPUs that meet the target, by bisection of all cells at once; 0 above ``max_gpus``."""
    bounds = dict.fromkeys(planned, (INPUTS.too_few_gpus, INPUTS.max_gpus + 1))  # too few, enough
    while is_open := {cell: (low + high) // 2 for cell, (low, high) in bounds.items() if high - low > 1}:
        for (cell, gpus), of in zip(is_open.items(), run(list(is_open.items())), strict=True):
            low, high = bounds[cell]
            meets = of.number("slo", f"{INPUTS.target:g}x", "violation_rate") <= INPUTS.late
            bounds[cell] = (low, gpus) if meets else (gpus, high)
    return {cell: 0 if high > INPUTS.max_gpus else high for cell, (_, high) in bounds.items()}


def _row(facts: Results, models: int, residency: str, design: str) -> Mapping[str, Any]:
    wanted = (models, residency, design)
    return next(row for row in facts["rows"] if (row["models"], row["residency"], row["design"]) == wanted)


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the answers of the page with the runs."""
    many = max(row["models"] for row in facts["rows"])
    blind, best, memory = (
        _row(facts, many, *of) for of in (("one-model", BLIND), ("one-model", BEST), ("by-memory", BEST))
    )
    one = _row(facts, 1, "one-model", BLIND)

    def share(row: Mapping[str, Any]) -> float:
        return float(row["swap_busy_share"])

    return {
        "one model swaps nothing": Comparison("0", f"{share(one):.0%}", share(one) == 0.0),
        f"{many} models: who knows the residency swaps less": Comparison(
            f"below {share(blind):.1%}", f"{share(best):.1%}", share(best) < share(blind)
        ),
        f"{many} models: memory for several swaps less than half of it": Comparison(
            f"below {share(best) / 2:.1%}", f"{share(memory):.1%}", share(memory) < share(best) / 2
        ),
    }


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw p95 and the GPUs that swap by the number of models, a column for each residency."""
    figure, grid = panels(2, 2, width=10.0, height=6.4, share_y=False)
    for column, (residency, title) in enumerate(RESIDENCIES.items()):
        for design, colour in zip(DESIGNS, COLOURS, strict=False):
            rows = [row for row in facts["rows"] if (row["residency"], row["design"]) == (residency, design)]
            rows = [facts["rows"][0], *(row for row in rows if row is not facts["rows"][0])]
            names = [str(row["models"]) for row in rows]
            for line, key in enumerate(("p95_s", "swapping_gpus")):
                values = [row[key] for row in rows]
                grid[line][column].plot(names, values, color=colour, marker="o", label=design)
        grid[0][column].set(ylabel="p95 latency [s]", title=title)
        grid[0][column].set_ylim(0, max(row["p95_s"] for row in facts["rows"]) * 1.05)
        grid[1][column].set(xlabel="base models", ylabel=f"GPUs of {INPUTS.gpus} that load a model")
        grid[1][column].set_ylim(0, max(row["swapping_gpus"] for row in facts["rows"]) * 1.1)
    grid[0][1].legend(fontsize=8)
    return {"": figure}


STUDY = Study(
    "fleets",
    comparisons,
    draw,
    values=lambda facts: {"inputs": INPUTS, "residencies": RESIDENCIES, "rows": comparisons(facts)},
)


@command_of(STUDY)
def compare(options: RunOptions) -> Results:
    """Compare placements and routers of a fleet of several base models, and write fleets.md, .json and .svg.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    scale = 5 if options.quick else 1
    requests, warmup = INPUTS.requests // scale, INPUTS.warmup // scale

    def run(pairs: Sequence[tuple[Cell, int]]) -> list[Finished]:
        return options.finish([cell.point(gpus, requests, warmup) for cell, gpus in pairs])

    planned = list(cells(options.quick))
    runs = run([(cell, INPUTS.gpus) for cell in planned])
    rows = [measure_run(cell, of) for cell, of in zip(planned, runs, strict=True)]
    needed = {} if options.quick else fewest_gpus([cell for cell in planned if cell.design in SEARCHED], run)
    return {"rows": [row | {"gpus": needed.get(cell)} for cell, row in zip(planned, rows, strict=True)]}
