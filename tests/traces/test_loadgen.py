"""Arrivals and shapes that others drew from a seed, drawn again: as in their logs, and by independent arithmetic."""

import csv
import math
import random
from collections.abc import Mapping
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.arrivals.expovariate import Expovariate
from mezzotint.traces.arrivals.loadgen import LoadGen
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.mix import Mix
from tests.sim.lab import configured, simulated

MLPERF = list(
    csv.DictReader((resources.files("mezzotint.conf") / "data" / "mlperf-sdxl-server.csv").read_text().splitlines())
)


def loadgen(row: Mapping[str, str]) -> LoadGen:
    return LoadGen(
        seed=int(row["schedule_rng_seed"]),
        rate_rpm=60 * float(row["target_qps"]),
        least_requests=int(row["min_query_count"]),
        least_s=float(row["min_duration_s"]),
    )


@pytest.mark.parametrize("row", MLPERF, ids=lambda row: row["system"])
def test_loadgen_rate_matches_the_log(row: Mapping[str, str], rng: np.random.Generator) -> None:
    """Of n requests n - 1 gaps were scheduled; the log prints two decimals."""
    times = loadgen(row).schedule(np.zeros(20_000), rng).times
    assert f"{(len(times) - 1) / times[-1]:.2f}" == f"{float(row['scheduled_qps']):.2f}"


def twister(seed: int, count: int) -> list[int]:
    """MT19937 by its published recurrence."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
    drawn = []
    while len(drawn) < count:
        for i in range(624):
            mixed = state[i] & 0x80000000 | state[(i + 1) % 624] & 0x7FFFFFFF
            state[i] = state[(i + 397) % 624] ^ mixed >> 1 ^ (0x9908B0DF if mixed & 1 else 0)
        for word in state:
            word ^= word >> 11
            word ^= word << 7 & 0x9D2C5680
            word ^= word << 15 & 0xEFC60000
            drawn.append(word ^ word >> 18)
    return drawn[:count]


def test_loadgen_gaps_match_mt19937(rng: np.random.Generator) -> None:
    seed = 18209322760996052031
    words = twister(seed % 2**32, 1400)
    times_ns = [0]
    for low, high in zip(words[::2], words[1::2], strict=True):
        u = float(Fraction(low + (high << 32), 1 << 64))
        times_ns.append(times_ns[-1] + int(-math.log(1 - u) / 2.5 * 1e9))
    found = LoadGen(seed=seed, rate_rpm=150.0, least_requests=700, least_s=0.0).schedule(np.zeros(700), rng)
    assert np.abs(found.times * 1e9 - times_ns[:700]).max() <= 2  # logarithms may differ in the last bit


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    rate_rpm=st.floats(1.0, 6000.0),
    least_requests=st.integers(1, 300),
    least_s=st.floats(0.0, 60.0),
)
def test_loadgen_stops_at_its_minimum_requests_and_duration(
    seed: int, rate_rpm: float, least_requests: int, least_s: float
) -> None:
    rng = np.random.default_rng(0)
    process = LoadGen(seed=seed, rate_rpm=rate_rpm, least_requests=least_requests, least_s=least_s)
    found = process.schedule(np.zeros(10_000), rng)
    times = found.times
    assert found.rows == len(times) >= least_requests
    assert times[0] == 0.0
    assert times[-1] >= least_s
    assert len(times) == least_requests or times[-2] < least_s
    longer = LoadGen(seed=seed, rate_rpm=rate_rpm, least_requests=len(times) + 5, least_s=least_s)
    assert longer.schedule(np.zeros(10_000), rng).times[: len(times)].tobytes() == times.tobytes()


def test_trace_shorter_than_loadgen_needs_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(TraceError, match=r"issues about 3,300 requests.*has 1,000.*trace\.requests=4060"):
        LoadGen(seed=1, rate_rpm=330.0).schedule(np.zeros(1000), rng)


def test_run_serves_the_requests_of_loadgen() -> None:
    words = ("trace=mix", "models=sdxl", "cluster=h800", "arrivals=loadgen", "arrivals.rate_rpm=60")
    outcome = simulated(*words, "arrivals.least_s=100", "trace.requests=500", "preload=3")
    assert 60 < outcome.summary["requests"]["arrived"] < 200
    assert outcome.summary["trace"]["requests"] == outcome.summary["requests"]["arrived"] + 3
    assert outcome.requests["arrival_s"][-1].as_py() >= 100


def test_mix_and_gaps_match_python_random() -> None:
    """Workload C as its client draws it: shapes by one seed, gaps by another, the first request at 0."""
    words = ("trace=vllm-omni-c", "arrivals=expovariate", "shapes=trace", "models=sdxl", "cluster=h800")
    run = assemble(check(configured(*words, "extrapolate=warn")))
    sizes = random.Random(42).choices([512, 768, 1024, 1536], weights=[0.15, 0.25, 0.45, 0.15], k=80)
    assert run.trace.column("width").tolist() == run.trace.column("height").tolist() == sizes
    steps = {512: 20, 768: 20, 1024: 25, 1536: 35}
    assert run.trace.column("steps").tolist() == [steps[size] for size in sizes]
    random.seed(1)
    times = [0.0]
    while len(times) < 80:
        times.append(times[-1] + random.expovariate(0.45))
    assert run.engine.workload.schedule.times.tolist() == pytest.approx(times, rel=1e-12)


def test_empty_trace_has_no_arrivals(rng: np.random.Generator) -> None:
    assert len(Expovariate(seed=1, rate_rpm=6.0).schedule(np.zeros(0), rng).times) == 0


@pytest.mark.parametrize(
    "shapes", [[], [[512, 512, 20]], [[0, 1, 1, 1]], [[1, 1, 1, -1]], [[1.5, 1, 1, 1]], [[70000, 1, 1, 1]]]
)
def test_malformed_mix_is_refused(shapes: list[list[float]]) -> None:
    with pytest.raises(TraceError, match="mix: shapes"):
        Mix(shapes=shapes)
