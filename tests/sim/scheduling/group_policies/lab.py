"""Eight GPUs with a made-up profile, and a trace of three sizes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mezzotint.sim.engine import Engine
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble, replay
from mezzotint.traces.table.trace import make
from tests.sim.lab import configured

SIDES = {"S": 512, "M": 1024, "L": 1536}
STEP_S = {"S": 0.155, "M": 0.605, "L": 1.557}
"""Seconds of a step on one GPU."""

Row = tuple[float, str, int]
"""Arrival in seconds, size class, steps."""


def ideal(step_s: float, degree: int) -> float:
    """Return the seconds of a step that several GPUs share without any cost."""
    return step_s / degree


def amdahl(step_s: float, degree: int) -> float:
    """Return the seconds of a step of which a tenth is serial."""
    return step_s * (0.1 + 0.9 / degree)


def profile(
    folder: Path, shared: Callable[[float, int], float] = amdahl, degrees: Sequence[int] = (2, 4), **more: Any
) -> Path:
    """Write the profile of the three sizes on these degrees, and on one GPU."""
    sizes = {name: {"width": side, "height": side} for name, side in SIDES.items()}
    content = {
        "schema": 1,
        "model": "qwen-image",
        "gpu": "h100",
        "source": "made up",
        "step": [{**sizes[name], "seconds": step_s} for name, step_s in STEP_S.items()],
        "gang_step": [
            {**sizes[name], "seconds": shared(step_s, degree), "gpus": degree}
            for name, step_s in STEP_S.items()
            for degree in degrees
        ],
        **more,
    }
    folder.mkdir(exist_ok=True)
    (folder / "made-up.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def poisson(requests: int, mean_gap_s: float, seed: int = 0, steps: int = 50) -> list[Row]:
    """Return requests of equally likely sizes with exponential gaps."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(mean_gap_s, requests))
    return [(float(time), str(name), steps) for time, name in zip(times, rng.choice([*SIDES], requests), strict=True)]


def assembled(rows: Sequence[Row], folder: Path, *overrides: str, deadline_s: Mapping[str, float] | None = None) -> Any:
    """Return configuration, settings and the run that is ready to start, of eight GPUs unless overridden.

    Args:
        deadline_s: size class -> seconds from arrival to deadline; None sets none.
    """
    side = [SIDES[name] for _, name, _ in rows]
    times, steps = [row[0] for row in rows], [row[2] for row in rows]
    ids = [f"r{number}" for number in range(len(rows))]
    columns = {"request_id": ids, "arrival_s": times, "width": side, "height": side, "steps": steps}
    words = ["arrivals=trace", "models=qwen-image", "cluster=h100", "cluster.count=8", f"backend.folder={folder}"]
    config = configured(*words, "shapes=trace", "slo=[]", "quality=alpha", *overrides)
    settings = check(config)
    run = assemble(settings, trace=make(columns, name="made up", source="made up"))
    if deadline_s is not None:
        for number, (_, name, _) in enumerate(rows):
            run.engine.workload.limit_s[number] = deadline_s[name]
    return config, settings, run


def served(rows: Sequence[Row], folder: Path, *overrides: str, **more: Any) -> Engine:
    """Serve ``rows`` to the end; return the engine."""
    engine: Engine = assembled(rows, folder, *overrides, **more)[-1].engine
    engine.run()
    return engine


def outcome(rows: Sequence[Row], folder: Path, *overrides: str, **more: Any) -> Outcome:
    """Serve ``rows`` to the end; return summary and tables."""
    config, settings, run = assembled(rows, folder, *overrides, **more)
    return replay(settings, run, config)


def column(engine: Engine, name: str) -> Any:
    """Return a request column."""
    return np.asarray(engine.record.request_columns[name])


def spans(engine: Engine) -> list[tuple[int, tuple[int, ...], float, float, int]]:
    """Return row, GPUs, begin, end and steps of every attempt, in order of begin."""
    log = engine.record.attempts
    assert log is not None
    return sorted(zip(log.row, log.gpus, log.from_s, log.until_s, log.steps, strict=True), key=lambda each: each[2])
