"""Long runs: the same results from files as from memory, and memory that does not grow with the trace."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mezzotint.sim.engine
from mezzotint.files import scratch
from mezzotint.sim.core import workload
from mezzotint.sim.metrics import request_columns, usage_log
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.config.options import resolve_config
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble, simulate
from mezzotint.traces.table import trace

REPLAY = """
import resource, sys
from pathlib import Path
from mezzotint.files import scratch
from mezzotint.sim.metrics import request_columns, usage_log
from mezzotint.sim.run.config.compose import compose_config
from mezzotint.sim.run.config.options import resolve_config
from mezzotint.sim.run.simulate import simulate_into
from mezzotint.traces.table import trace
scratch.MEMORY_BYTES = usage_log.MEMORY_BYTES = 1 << 20
request_columns.GROUP = request_columns.ROWS = usage_log.ROWS = trace.BLOCK = 1 << 13
words = ["trace=file", f"trace.path={sys.argv[1]}.parquet", "arrivals=poisson", "arrivals.rate_rpm=50", "run.dir=run"]
simulate_into(resolve_config(compose_config(words)), Path(sys.argv[1]), progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak_bytes(folder: Path, requests: int) -> int:
    """Return the peak memory of a process that replays a trace of ``requests``."""
    ids = pa.array([f"r-{row:08d}" for row in range(requests)])
    made = trace.make(
        {"request_id": ids, "arrival_s": np.arange(requests, dtype=np.float64)}, name="long", source="a test"
    )
    trace.write(made, folder / f"{requests}.parquet")
    words = [sys.executable, "-c", REPLAY, str(folder / str(requests))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return int(done.stdout.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are counted in kilobytes there")
def test_memory_hardly_grows_with_the_trace(tmp_path: Path) -> None:
    short, long = 10_000, 80_000
    grown = peak_bytes(tmp_path, long) - peak_bytes(tmp_path, short)
    assert grown < 200 * (long - short)  # 690 bytes a request when all was held


def test_a_run_is_assembled_in_a_number_and_a_half_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals are drawn at once, with a byte or two to check them; no other whole column is in memory."""
    monkeypatch.setattr(scratch, "MEMORY_BYTES", 0)
    monkeypatch.setattr(scratch, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(trace, "BLOCK", 1 << 12)
    monkeypatch.setattr(workload, "BLOCK", 1 << 12)
    rows = 1 << 17
    columns: dict[str, Any] = {
        "request_id": pa.array([f"r-{row:08d}" for row in range(rows)]),
        "arrival_s": np.arange(rows, dtype=np.float64),
        "images": 1 + np.arange(rows) % 2,
    }
    made = trace.make(columns, name="long", source="a test", notes={"generator": 1})
    path = trace.write(made, tmp_path / "long.parquet").path
    words = ["trace=file", f"trace.path={path}", "arrivals=poisson", "arrivals.rate_rpm=50", "run.dir=run"]
    settings = check(resolve_config(compose_config(words)))
    kept = trace.read(tmp_path / "long.parquet")
    assemble(settings, trace=kept)  # imports
    tracemalloc.start()
    assemble(settings, trace=kept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * rows


@pytest.mark.parametrize(
    "words",
    [
        "system=vanilla arrivals=poisson arrivals.rate_rpm=11 warmup=20",
        "system=nirvana hits=nirvana arrivals=poisson arrivals.rate_rpm=11",
        "system=modm-throughput encoder=ngram arrivals=poisson arrivals.rate_rpm=16",
    ],
)
def test_results_from_files_are_those_from_memory(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve_config(compose_config([*words.split(), "trace.requests=300", "run.dir=run"]))
    held = simulate(config)
    monkeypatch.setattr(scratch, "MEMORY_BYTES", 0)
    monkeypatch.setattr(scratch, "CHUNK_BYTES", 1000)
    for module, name in (
        (request_columns, "ROWS"),
        (request_columns, "GROUP"),
        (usage_log, "ROWS"),
        (usage_log, "CHUNK_BYTES"),
        (usage_log, "MEMORY_BYTES"),
        (mezzotint.sim.engine, "BLOCK"),
    ):
        monkeypatch.setattr(module, name, 37)
    filed = simulate(config)

    assert {**filed.summary, "wall": None} == {**held.summary, "wall": None}
    assert len(list(filed.tables())) == 9
    assert filed.requests.equals(held.requests)
    assert filed.cluster.equals(held.cluster)
