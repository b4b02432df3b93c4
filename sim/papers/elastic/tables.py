"""GF-DiT's reference tables: their rows, and a replay of a workload under one of their policies.

The clock counts milliseconds: a profile of "seconds" that are milliseconds keeps sums of the tables' times exact, so
that events of one instant stay events of one instant.
"""

import re
from array import array
from collections.abc import Sequence
from math import inf, isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from mezzotint.settings.ranges import Count, Seconds, SomeSeconds
from mezzotint.sim.core.plan import DENOISER, WHOLE
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.papers.rows import read_rows
from mezzotint.sim.papers.runs import Point, compose_point, to_override
from mezzotint.sim.papers.study import DATA, read_data
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make


@dataclass(frozen=True, slots=True)
class Inputs:
    """The content of conf/data/elastic.yaml, which explains each."""

    gpus: int
    rules: dict[str, list[str]]
    priorities: dict[str, int]
    staged: list[str]
    staged_edf: list[str]
    published: list[str]
    no_pause_ms: float
    tolerance_ms: float
    theirs_per_cpu_s: dict[str, int]


INPUTS: Inputs = read_data(DATA / "elastic.yaml", Inputs)

TOKEN_PIXELS = 16
"""Pixels of a side of the image for each token of a side of the latent."""

SOURCE = "reference tables, in milliseconds"

TEXTS = ConfigDict(coerce_numbers_to_str=True)
"""A Parquet file may have names that are numbers."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a step of a size class on some GPUs, and the tokens of its images, if known."""

    size_class: str
    gpus: Count
    step_ms: SomeSeconds
    tokens: Count | None = None


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


def read_costs(folder: Path) -> tuple[list[Cost], list[Stage]]:
    """Return the costs of ``folder``, and of the other stages if it has them. Raises ConfigError: a file is wrong."""
    costs, stages = read_rows(folder / "cost.csv", Cost), folder / "stages.csv"
    return costs, read_rows(stages, Stage) if stages.is_file() else []


def overrides(policy: str, costs: Sequence[Cost]) -> list[str] | None:
    """Return the overrides of ``policy``, all times in milliseconds; None if we have nothing like it.

    A name is that of a rule with suffixes: ``_sp4`` is for groups of four, ``_migrate50`` charges 50 ms a move,
    ``_chunk5`` decides every five steps, ``_stages`` makes each stage a task of its own.
    """
    parts = re.fullmatch(r"(.+?)(?:_sp(\d+))?(?:_migrate(\d+))?(?:_chunk(\d+))?(_stages)?", policy)
    assert parts is not None
    rule, degree, migrate, chunk, stages = parts.groups()
    is_edf = rule.startswith("edf_")
    if rule not in INPUTS.rules or (chunk and not is_edf):
        return None
    sizes = {name: f"{side}x{side}" for name, side in sides(costs).items()}
    given = {
        **dict.fromkeys(INPUTS.priorities, ""),
        **sizes,
        "degrees": to_override({size: 1 if name == "S" else 4 for name, size in sizes.items()}),
        "priorities": to_override({sizes[name]: value for name, value in INPUTS.priorities.items() if name in sizes}),
    }
    words = [word.format_map(given) for word in INPUTS.rules[rule]]
    words += [f"group_policy.groups={INPUTS.gpus // int(degree)}x{degree}"] if degree else []
    words += [f"executor.migration_s={migrate}"] if migrate else []
    words += [f"group_policy.steps={chunk}"] if chunk else []
    return [*words, *INPUTS.staged, *(INPUTS.staged_edf if is_edf else [])] if stages else words


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
            *(f"cluster.count={INPUTS.gpus}", f"backend.folder={folder}", "quality=alpha", "sample_s=60000"),
        )
        config = check(compose_point(Point("", {}, (*words, *shared))))
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
    ids, counts = [request.request_id for request in requests], _between_steps(attempts, len(requests)).T.tolist()
    return [Served(*row) for row in zip(ids, start, finish, *counts, gpu.tolist(), strict=True)]


def _between_steps(attempts: AttemptLog, requests: int) -> NDArray[np.int_]:
    """Return pauses, moves and changes of degree between steps, (requests, 3); not those between other stages."""
    counts = np.zeros((requests, 3), int)
    last: dict[int, tuple[float, tuple[int, ...]]] = {}
    for index in sorted(range(len(attempts)), key=attempts.from_s.__getitem__):
        if attempts.component[index] in (WHOLE, DENOISER):
            row, gpus = attempts.row[index], attempts.gpus[index]
            until_ms, before = last.get(row, (inf, gpus))
            is_pause = attempts.from_s[index] - until_ms > INPUTS.no_pause_ms
            counts[row] += is_pause, gpus != before, len(gpus) != len(before)
            last[row] = attempts.until_s[index], gpus
    return counts
