"""Replay of every reference table through our configuration, compared request by request.

The clock counts milliseconds: a profile of "seconds" that are milliseconds keeps sums of the tables' times exact, so
that events of one instant stay events of one instant.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from mezzotint.sim.core.plan import DENOISER, WHOLE
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.papers.elastic import reference
from mezzotint.sim.papers.elastic.policies import GPUS, PRIORITIES, overrides
from mezzotint.sim.papers.elastic.reference import Row, StepCost, Workload
from mezzotint.sim.papers.study import Comparison, Results
from mezzotint.sim.run.config.compose import composed
from mezzotint.sim.run.config.options import resolved
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make

TOLERANCE_MS = 1e-6

NO_PAUSE_MS = 0.02
"""A gap of launch delays between two steps, which the tables count as no pause."""

PUBLISHED_STAGES = (
    "[{component: text-encoder, max_degree: 1},{component: prepare, steps: 2},{component: denoiser},"
    "{component: vae, max_degree: 1},{component: finalize, max_degree: 1}]"
)
"""The tasks of a request in the published rows; their two prepares are printed as one sum."""

PUBLISHED_STEPS = {"S": 25, "M": 50, "L": 100}
"""Steps of a request of each size class in the published workloads."""

PRINTED = ("S_met_pct", "S_p95_s", "M_met_pct", "M_p95_s", "L_met_pct", "L_p95_s", "makespan_s")


@dataclass(frozen=True, slots=True)
class Served:
    """One request as a simulator served it, in milliseconds; NaN where it never started or finished."""

    start: float
    finish: float
    pauses: int
    moves: int
    degree_changes: int
    gpu: float


@dataclass(slots=True)
class Table:
    """The comparison of one table.

    Attributes:
        requests: rows of the table.
        same: requests whose start, finish and pauses are equal.
        same_groups: requests whose moves, degree changes and GPU time are equal too, where the table has them.
        first: the first request in time that differs, in words; empty if none does.
        unfinished: requests that end as failed in our run.
        per_cpu_s: requests of our run per CPU-second.
        skipped: why there was nothing to compare; empty if there was.
    """

    workload: str
    policy: str
    agreement: str
    requests: int = 0
    same: int = 0
    same_groups: int = 0
    first: str = ""
    unfinished: int = 0
    per_cpu_s: float = 0.0
    skipped: str = ""


@dataclass(slots=True)
class PublishedRow:
    """A printed row, and ours in the same digits where a digit is printed."""

    workload: str
    policy: str
    printed: dict[str, str] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)


def tables(folder: Path) -> Iterator[Table]:
    """Replay the tables of ``folder``, and yield each comparison. Raises ConfigError if the folder cannot be read."""
    found = reference.read(folder)
    sizes = {name: f"{side}x{side}" for name, side in found.sides.items()}
    with TemporaryDirectory() as temporary:
        plain, staged = Path(temporary) / "plain", Path(temporary) / "stages"
        write_profile(plain, found.sides, found.costs, {})
        if found.stages_ms:
            write_profile(staged, found.sides, found.costs, found.stages_ms)
        for workload in found.workloads.values():
            for policy, agreement in found.agreement.items():
                table = Table(workload.name, policy, agreement)
                words, expected = overrides(policy, sizes), found.table(workload.name, policy)
                if agreement == "order":
                    table.skipped = "for order only"
                elif expected is None:
                    table.skipped = "no table"
                elif words is None:
                    table.skipped = "no such policy here"
                elif policy.endswith("_stages") and not found.stages_ms:
                    table.skipped = "no stages.csv"
                else:
                    profile = staged if policy.endswith("_stages") else plain
                    engine, cpu_s = run(workload, found.sides, words, profile)
                    compare(table, workload, expected, served(engine))
                    table.per_cpu_s = len(workload.rows) / cpu_s
                yield table


def published_rows(folder: Path) -> Iterator[PublishedRow]:
    """Replay the printed rows that are marked as exact, and yield each comparison."""
    costs, rows, workloads = reference.published(folder)
    if not rows:
        return
    sides = reference.sides([{"size_class": each.size_class} for each in costs])
    sizes = {name: f"{side}x{side}" for name, side in sides.items()}
    with TemporaryDirectory() as temporary:
        write_profile(Path(temporary), sides, *_apart(costs))
        for row in rows:
            words = overrides(row["policy"], sizes)
            if not row["rebuilt"].startswith("exact") or words is None:
                continue
            workload = workloads[row["workload"]]
            words.append(f"executor.stages={PUBLISHED_STAGES}")
            engine, _ = run(workload, sides, words, Path(temporary))
            yield printed(row, workload, served(engine))


def _apart(costs: Sequence[StepCost]) -> tuple[list[StepCost], dict[str, dict[str, float]]]:
    """Return step costs and stages of the published costs, whose VAE differs a little by degree.

    A stage takes what it takes on one GPU, and the difference goes to the steps of that degree. The two prepares are
    printed as one sum, which the plan halves.
    """
    alone = {each.size_class: each.stages_ms for each in costs if each.gpus == 1}
    fitted = []
    for each in costs:
        more = sum(each.stages_ms.values()) - sum(alone[each.size_class].values())
        step_ms = each.step_ms + more / PUBLISHED_STEPS[each.size_class]
        fitted.append(StepCost(each.size_class, each.gpus, step_ms, {}))
    return fitted, {name: {**stages, "prepare": stages["prepare"] / 2} for name, stages in alone.items()}


def write_profile(
    folder: Path, sides: Mapping[str, int], costs: Sequence[StepCost], stages_ms: Mapping[str, Mapping[str, float]]
) -> None:
    """Write a profile of ``costs`` in milliseconds, and of the other stages if there are any."""
    degrees = sorted({each.gpus for each in costs})
    points = [
        {"width": sides[each.size_class], "height": sides[each.size_class], "seconds": each.step_ms, "gpus": each.gpus}
        for each in costs
    ]
    profile: dict[str, Any] = {
        "schema": 1,
        "model": "qwen-image",
        "gpu": "h20",
        "source": "reference tables, in milliseconds",
        "step": [
            {name: value for name, value in each.items() if name != "gpus"} for each in points if each["gpus"] == 1
        ],
        "gang_step": [each for each in points if each["gpus"] > 1],
    }
    for size_class, parts in stages_ms.items():
        side = {"width": sides[size_class], "height": sides[size_class]}
        for stage, milliseconds in parts.items():
            if stage == "text_encode":
                profile["text_encode"] = [{"seconds": milliseconds}]
            elif stage == "vae_decode":
                profile.setdefault("vae_decode", []).append({**side, "seconds": milliseconds})
            else:
                profile.setdefault("component", []).extend(
                    {**side, "component": stage, "gpus": gpus, "seconds": milliseconds} for gpus in degrees
                )
    folder.mkdir(exist_ok=True)
    (folder / "profile.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")


def run(workload: Workload, sides: Mapping[str, int], words: Sequence[str], profile: Path) -> tuple[Engine, float]:
    """Serve ``workload`` to its end; return the engine and the CPU-seconds that it took."""
    rows = workload.rows
    pixels = [sides[row["size_class"]] for row in rows]
    columns: dict[str, Any] = {
        "request_id": [row["request_id"] for row in rows],
        "arrival_s": [float(row["arrival_ms"]) for row in rows],
        "width": pixels,
        "height": pixels,
        "steps": [int(row["steps"]) for row in rows],
    }
    trace = make(columns, name=workload.name, source="reference tables, in milliseconds")
    shared = (
        *("arrivals=trace", "models=qwen-image", "cluster=h100", "cluster.gpu.name=h20", "shapes=trace", "slo=[]"),
        *(f"cluster.count={GPUS}", f"backend.folder={profile}", "quality=alpha", "sample_s=60000", "run.dir=unused"),
    )
    assembled = assemble(check(resolved(composed([*words, *shared]))), trace=trace)
    deadlines = (float(row["deadline_ms"]) - float(row["arrival_ms"]) for row in rows)
    assembled.engine.workload.limit_s[:] = array("d", deadlines)
    _, cpu_s = assembled.engine.run()
    return assembled.engine, cpu_s


def served(engine: Engine) -> list[Served]:
    """Return how each request was served; pauses and moves count between steps, not between other stages."""
    columns, attempts = engine.record.request_columns, engine.record.attempts
    assert attempts is not None
    counted = _between_steps(attempts, len(columns))
    gpu, is_finished = columns["gpu_s"], columns["outcome"] == COMPLETED
    first = np.full(len(columns), np.inf)
    np.minimum.at(first, attempts.row, attempts.from_s)  # a request that fails has no start in its record
    start = np.where(is_finished, columns["start_s"], np.where(gpu > 0, first, np.nan))
    finish = np.where(is_finished, columns["finish_s"], np.nan)
    rows = zip(start.tolist(), finish.tolist(), counted, gpu.tolist(), strict=True)
    return [Served(begin, end, *of_row, gpu_ms) for begin, end, of_row, gpu_ms in rows]


def _between_steps(attempts: AttemptLog, requests: int) -> list[tuple[int, int, int]]:
    """Return pauses, moves and degree changes between the steps of each request."""
    found = [[0, 0, 0] for _ in range(requests)]
    last: list[tuple[float, tuple[int, ...]] | None] = [None] * requests
    for place in sorted(range(len(attempts)), key=attempts.from_s.__getitem__):
        if attempts.component[place] not in (WHOLE, DENOISER):
            continue
        row, gpus = attempts.row[place], attempts.gpus[place]
        before = last[row]
        if before is not None:
            found[row][0] += attempts.from_s[place] - before[0] > NO_PAUSE_MS
            found[row][1] += gpus != before[1]
            found[row][2] += len(gpus) != len(before[1])
        last[row] = attempts.until_s[place], gpus
    return [(pauses, moves, changes) for pauses, moves, changes in found]


def compare(table: Table, workload: Workload, expected: Mapping[str, Row], ours: Sequence[Served]) -> None:
    """Fill ``table`` with the comparison of each request."""
    differing: list[tuple[float, str]] = []
    table.requests = len(workload.rows)
    for row, here in zip(workload.rows, ours, strict=True):
        there = expected.get(row["request_id"])
        if there is None:
            differing.append((float(row["arrival_ms"]), f"{row['request_id']}: not in the table"))
            continue
        table.unfinished += isnan(here.finish)
        wrong = list(_differences(here, there, ("start_ms", "finish_ms", "pauses")))
        if not wrong:
            table.same += 1
            also = ("moves", "width_changes", "gpu_ms")
            table.same_groups += not list(_differences(here, there, also))
        else:
            differing.append(
                (float(there["start_ms"] or row["arrival_ms"]), f"{row['request_id']}: {'; '.join(wrong)}")
            )
    if differing:
        table.first = min(differing)[1]


def _differences(here: Served, there: Row, names: Sequence[str]) -> Iterator[str]:
    values = {
        "start_ms": here.start,
        "finish_ms": here.finish,
        "pauses": here.pauses,
        "moves": here.moves,
        "width_changes": here.degree_changes,
        "gpu_ms": here.gpu,
    }
    for name in names:
        if name not in there:
            continue
        ours, cell = values[name], there[name]
        if (not cell and not isnan(ours)) or (cell and not abs(ours - float(cell)) <= TOLERANCE_MS):
            yield f"{name} {cell or 'never'}, ours {ours}"


def printed(row: Row, workload: Workload, ours: Sequence[Served]) -> PublishedRow:
    """Return a printed row and ours, to the printed digits."""
    found = PublishedRow(row["workload"], row["policy"], {name: row[name] for name in PRINTED if row.get(name)})
    finish = np.array([each.finish for each in ours])
    arrival, deadline = (
        np.array([float(each[name]) for each in workload.rows]) for name in ("arrival_ms", "deadline_ms")
    )
    classes = np.array([each["size_class"] for each in workload.rows])
    values = {"makespan_s": finish.max() / 1000}
    for name in PRIORITIES:
        of_class = classes == name
        if of_class.any():
            values[f"{name}_met_pct"] = 100 * (finish <= deadline)[of_class].mean()
            values[f"{name}_p95_s"] = np.percentile((finish - arrival)[of_class], 95) / 1000
    for name, text in found.printed.items():
        decimals = len(text.partition(".")[2])
        found.ours[name] = f"{values[name]:.{decimals}f}"
    return found


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare every table and every printed row of the JSON file."""
    found = {}
    for each in facts["tables"]:
        if not each["skipped"]:
            requests = f"{each['requests']} requests equal"
            ours = f"{each['same']} equal" + (f"; first {each['first']}" if each["first"] else "")
            found[f"{each['workload']} {each['policy']}"] = Comparison(requests, ours, each["same"] == each["requests"])
    for each in facts["published"]:
        name = f"published {each['workload']} {each['policy']}"
        found[name] = Comparison(str(each["printed"]), str(each["ours"]), each["printed"] == each["ours"])
    return found
