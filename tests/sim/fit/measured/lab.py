"""A FIFO queue as the truth that a comparison with a measured result is held to, and runs to compare with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.run.config.compose import Files, compose_config, resolve_config
from mezzotint.sim.run.config.options import prepare_overrides
from mezzotint.traces.table.trace import Trace, make, write

Floats = NDArray[np.float64]

MODEL = ("models=tiny", "cluster=h100", "cluster.count=1")
"""One GPU that serves one request at a time."""

PROFILE = """schema: 1
model: sdxl-tiny
gpu: h100
source: a law
step:
- {{width: 256, height: 256, seconds: {low}}}
- {{width: 512, height: 512, seconds: {high}}}
"""


def fifo(arrival_s: Floats, service_s: Floats) -> Floats:
    """Return the latencies of one server, first come, first served (Lindley's recursion)."""
    wait_s = np.zeros(len(arrival_s))
    for row in range(1, len(arrival_s)):
        wait_s[row] = max(0.0, wait_s[row - 1] + service_s[row - 1] - (arrival_s[row] - arrival_s[row - 1]))
    return wait_s + service_s


def poisson(count: int, mean_gap_s: float, seed: int = 3) -> Floats:
    return np.cumsum(np.random.default_rng(seed).exponential(mean_gap_s, count))


def served(arrival_s: Floats, service_s: Floats, more_s: float = 0.0, **columns: Any) -> Trace:
    """A measured trace of a FIFO server whose client sees ``more_s`` seconds beside the queue."""
    count = len(arrival_s)
    alike = {"width": np.full(count, 512), "height": np.full(count, 512), "steps": np.full(count, 10)}
    measured = {"arrival_s": arrival_s, "latency_s": fifo(arrival_s, service_s) + more_s}
    return make(
        {"request_id": [f"r{row}" for row in range(count)], **measured, **alike, **columns}, name="m", source="s"
    )


def profile(folder: Path, low_s: float, high_s: float) -> str:
    """Write a profile with seconds of a step at 256x256 and 512x512; return the override that names it."""
    (folder / "own").mkdir()
    (folder / "own" / "p.yaml").write_text(PROFILE.format(low=low_s, high=high_s))
    return f"backend.folder={folder / 'own'}"


def config(trace: Trace, folder: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return the resolved configuration that replays ``trace``."""
    path = write(trace, folder / "replayed.parquet").path
    own = ["trace=file", f"trace.path={path}", "shapes=trace", *MODEL]
    return resolve_config(compose_config(prepare_overrides([*own, *words]), Files()))
