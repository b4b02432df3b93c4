"""GF-DiT's reference tables: their rows, and a replay of a workload under one of their policies.

The clock counts milliseconds: a profile of "seconds" that are milliseconds keeps sums of the tables' times exact, so
that events of one instant stay events of one instant.
"""

import re
from array import array
from collections.abc import Mapping, Sequence
from math import inf, isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from mezzotint.settings.ranges import Count, Seconds, SomeSeconds
from mezzotint.sim.core.plan import DENOISER, WHOLE
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.papers.runs import Point, composed
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make

GPUS = 8
"""GPUs of every table."""

PRIORITIES = {"S": 100, "M": 50, "L": 0}
"""Priority by size class."""

LAUNCH_MS, MOVE_MS = 0.005, 3.0
"""Launch delay and migration of the tables with stages."""

NO_PAUSE_MS = 0.02
"""A gap of launch delays between two steps, which the tables count as no pause."""

STAGES = (
    "[{component: text-encoder, max_degree: 1},{component: dit_prepare},{component: timestep_prepare},"
    "{component: denoiser},{component: vae, max_degree: 1},{component: finalize, max_degree: 1}]"
)
"""The tasks of a request in the tables with stages."""

TOKEN_PIXELS = 16
"""Pixels of a side of the image for each token of a side of the latent."""

SOURCE = "reference tables, in milliseconds"

TEXTS = ConfigDict(coerce_numbers_to_str=True)
"""A Parquet file may have names that are numbers."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a step of a size class on some GPUs; of the published rows those of the other stages, too."""

    size_class: str
    gpus: Count
    step_ms: SomeSeconds
    tokens: Count | None = None
    text_encode_ms: Seconds = 0.0
    prepare_ms: Seconds = 0.0
    vae_decode_ms: Seconds = 0.0
    finalize_ms: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Milliseconds of a stage besides the steps."""

    stage: str
    size_class: str
    ms: SomeSeconds


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, and how exactly its tables can be expected to agree, in the folder's words."""

    policy: str
    agreement: str


@dataclass(frozen=True, slots=True, config=TEXTS)
class Request:
    """A request of a workload; times in milliseconds."""

    request_id: str
    size_class: str
    arrival_ms: Seconds
    deadline_ms: Seconds
    steps: Count


@dataclass(frozen=True, slots=True, config=TEXTS)
class Served:
    """One request as a simulator served it, in milliseconds; infinite where it never started or finished.

    What a table does not have is None. Pauses, moves and changes of degree are those between steps.
    """

    request_id: str
    start_ms: float = inf
    finish_ms: float = inf
    pauses: int | None = None
    moves: int | None = None
    width_changes: int | None = None
    gpu_ms: float | None = None


def sides(costs: Sequence[Cost]) -> dict[str, int]:
    """Return the pixels of a side by size class, from its tokens; without tokens 512, 1024, ..."""
    tokens = {cost.size_class: cost.tokens for cost in costs}
    return {
        name: 512 * number if count is None else TOKEN_PIXELS * isqrt(count)
        for number, (name, count) in enumerate(tokens.items(), start=1)
    }


def overrides(policy: str, sizes: Mapping[str, str]) -> list[str] | None:
    """Return the overrides of ``policy``, all times in milliseconds; None if we have nothing like it.

    A name is that of a rule with suffixes: ``_migrate50`` charges 50 ms a move, ``_chunk5`` decides every five steps,
    ``_stages`` makes each stage a task of its own.

    Args:
        sizes: size class -> WIDTHxHEIGHT.
    """
    parts = re.fullmatch(r"(.+?)(?:_migrate(\d+))?(?:_chunk(\d+))?(_stages)?", policy)
    assert parts is not None
    name, migrate, chunk, stages = parts.groups()
    words, is_edf = _rule(name, sizes), name.startswith("edf_")
    if words is None or (chunk and not is_edf):
        return None
    words += [f"executor.migration_s={migrate}"] if migrate else []
    words += [f"group_policy.steps={chunk}"] if chunk else []
    if stages:
        words += [f"executor.stages={STAGES}", f"executor.launch_s={LAUNCH_MS}"]
        if is_edf:  # nothing moves between fixed groups
            words += [f"executor.migration_s={MOVE_MS}", "group_policy.one_gpu_stages=lowest"]
    return words


def _rule(name: str, sizes: Mapping[str, str]) -> list[str] | None:
    if groups := re.fullmatch(r"(static|fcfs|sjf|srtf)_sp(\d+)", name):
        order, degree = groups[1], int(groups[2])
        words = ["system=fixed-groups", f"group_policy.groups={GPUS // degree}x{degree}"]
        words += ["group_policy.assignment=least-backlog"] if order != "static" else []
        return words + ([f"group_policy.order={order}"] if order in ("sjf", "srtf") else [])
    degrees = _mapping({size: 1 if size_class == "S" else 4 for size_class, size in sizes.items()})
    by_degree = ["~group_policy.degree_by_size", f"+group_policy.degree_by_size={degrees}"]
    priorities = _mapping({sizes[size_class]: value for size_class, value in PRIORITIES.items() if size_class in sizes})
    by_priority = f"+group_policy.priority_by_size={priorities}"
    load_adaptive = ["system=load-adaptive", "group_policy.busy_gap_s=120000", "group_policy.busy_hold_s=60000"]
    rounds = ["system=rounds", "group_policy.round_s=2000"]
    demote = ["system=preempt-class", f"group_policy.urgent_sizes=[{sizes.get('S', '')}]"]
    demote += [f"group_policy.preemptible_sizes=[{sizes.get('L', '')}]", by_priority, "group_policy.starved_s=60000"]
    demote += ["group_policy.max_aside_s=600000", "group_policy.move_s=3"]
    return {
        "rssp_split": ["system=rssp-split", *by_degree],
        "rssp_shared": ["system=rssp-shared", *by_degree],
        "load_adaptive": load_adaptive,
        "prio_load_adaptive": [*load_adaptive, "group_policy.order=priority", by_priority],
        "edf_greedy": ["system=edf-best-fit", "group_policy=edf-greedy"],
        "edf_best_fit": ["system=edf-best-fit"],
        "tetriserve_round": rounds,
        "tetriserve_round_noscale": [*rounds, "group_policy.scale_up=false"],
        "clean_edf_demote": demote,
        "clean_edf_pause": [*demote, "group_policy.give_way=pause"],
    }.get(name)


def _mapping(values: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"


def serve(
    requests: Sequence[Request], words: Sequence[str], costs: Sequence[Cost], stages: Sequence[Stage]
) -> tuple[list[Served], float]:
    """Serve ``requests`` to their end with the overrides ``words``; return each, and the CPU-seconds of the run."""
    pixels = [sides(costs)[request.size_class] for request in requests]
    columns = {
        "request_id": [request.request_id for request in requests],
        "arrival_s": [request.arrival_ms for request in requests],
        "width": pixels,
        "height": pixels,
        "steps": [request.steps for request in requests],
    }
    with TemporaryDirectory() as folder:
        profile = yaml.safe_dump(_profile(costs, stages))
        (Path(folder) / "profile.yaml").write_text(profile, encoding="utf-8")
        shared = (
            *("arrivals=trace", "models=qwen-image", "cluster=h100", "cluster.gpu.name=h20", "shapes=trace", "slo=[]"),
            *(f"cluster.count={GPUS}", f"backend.folder={folder}", "quality=alpha", "sample_s=60000"),
        )
        config = check(composed(Point("", {}, (*words, *shared))))
        engine = assemble(config, trace=make(columns, name="elastic", source=SOURCE)).engine
    engine.workload.limit_s[:] = array("d", (request.deadline_ms - request.arrival_ms for request in requests))
    _, cpu_s = engine.run()
    return _served(requests, engine), cpu_s


def _profile(costs: Sequence[Cost], stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the content of a profile in milliseconds."""
    size = {name: {"width": side, "height": side} for name, side in sides(costs).items()}
    others = [stage for stage in stages if stage.stage not in ("text_encode", "vae_decode")]
    return {
        "schema": 1,
        "model": "qwen-image",
        "gpu": "h20",
        "source": SOURCE,
        "step": [size[cost.size_class] | {"seconds": cost.step_ms} for cost in costs if cost.gpus == 1],
        "gang_step": [
            size[cost.size_class] | {"seconds": cost.step_ms, "gpus": cost.gpus} for cost in costs if cost.gpus > 1
        ],
        "text_encode": [{"seconds": stage.ms} for stage in stages if stage.stage == "text_encode"][-1:],
        "vae_decode": [
            size[stage.size_class] | {"seconds": stage.ms} for stage in stages if stage.stage == "vae_decode"
        ],
        "component": [
            size[stage.size_class] | {"component": stage.stage, "gpus": gpus, "seconds": stage.ms}
            for stage in others
            for gpus in sorted({cost.gpus for cost in costs})
        ],
    }


def _served(requests: Sequence[Request], engine: Engine) -> list[Served]:
    columns, attempts = engine.record.request_columns, engine.record.attempts
    assert attempts is not None
    gpu, is_finished = columns["gpu_s"], columns["outcome"] == COMPLETED
    first = np.full(len(columns), inf)
    np.minimum.at(first, attempts.row, attempts.from_s)  # a request that fails has no start in its record
    start = np.where(is_finished, columns["start_s"], np.where(gpu > 0, first, inf)).tolist()
    finish = np.where(is_finished, columns["finish_s"], inf).tolist()
    ids, counts = (request.request_id for request in requests), _between_steps(attempts, len(requests))
    rows = zip(ids, start, finish, counts, gpu.tolist(), strict=True)
    return [Served(name, begin, end, *of_row, gpu_ms) for name, begin, end, of_row, gpu_ms in rows]


def _between_steps(attempts: AttemptLog, requests: int) -> list[list[int]]:
    """Return pauses, moves and changes of degree between the steps of each request, not between other stages."""
    counts = [[0, 0, 0] for _ in range(requests)]
    last: dict[int, tuple[float, tuple[int, ...]]] = {}
    for index in sorted(range(len(attempts)), key=attempts.from_s.__getitem__):
        if attempts.component[index] in (WHOLE, DENOISER):
            row, gpus = attempts.row[index], attempts.gpus[index]
            until_ms, before = last.get(row, (inf, gpus))
            changes = attempts.from_s[index] - until_ms > NO_PAUSE_MS, gpus != before, len(gpus) != len(before)
            counts[row] = [count + change for count, change in zip(counts[row], changes, strict=True)]
            last[row] = attempts.until_s[index], gpus
    return counts
