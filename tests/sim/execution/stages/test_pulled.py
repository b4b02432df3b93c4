"""Requests that a scheduler gives to workers run on the engine of stages as ``executor=sequential`` runs them."""

import numpy as np
import pytest

from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.handling import Handling
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import Executor
from tests.sim.lab import engine, simulated

STEPS = 8
COLUMNS = "start_s", "finish_s", "worker", "outcome", "load_s", "denoise_s", "decode_s", "energy_j"


def random_run(seed: int, executor: Executor) -> Engine:
    """A finished run of first come, first served in whole seconds, so that many events share an instant."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 40))
    times, full_s = np.cumsum(rng.integers(0, 4, count)).astype(float), rng.integers(1, 12, count).astype(float)
    lost = ("again", "failed")[int(rng.integers(2))]
    failures = [Failures(mean_up_s=float(rng.integers(10, 60)), mean_down_s=3.0, lost=lost)]
    handling = Handling(after_s=float(rng.integers(0, 3)), overlap=bool(rng.integers(2)))
    run = engine(
        times, full_s, int(rng.integers(1, 5)), executor=executor, seed=seed, use_model_shape=False, handling=handling,
        controllers=failures if rng.random() < 0.5 else [],
        shapes=tuple(np.full(count, value, np.int32) for value in (64, 64, STEPS)),
    )  # fmt: skip
    run.run()
    return run


def test_pulled_requests_run_as_sequential() -> None:
    """Also where a GPU fails while it waits for an answer."""
    for seed in range(250):
        fast, definition = (random_run(seed, executor) for executor in (Sequential(), Stages()))
        for name in COLUMNS:
            expected, column = (run.record.request_columns[name] for run in (fast, definition))
            np.testing.assert_array_equal(column, expected, err_msg=f"{name} of seed {seed}")


@pytest.mark.parametrize(
    "words",
    [
        "system=modm-throughput trace.requests=1200 preload=300 arrivals.rate_rpm=14 failures=random "
        "failures.mean_up_s=5000 failures.mean_down_s=300",
        "system=vanilla trace.requests=1500 controller=autoscale-utilisation",
        "system=vanilla trace=mix shapes=trace trace.requests=800 scheduler=per-worker discipline=fifo "
        "router=least-requests",
        "system=vanilla cluster=pools trace.requests=1000 arrivals.rate_rpm=14",
        "system=modm-throughput cluster=pools cache.capacity=150 trace.requests=1000 arrivals.rate_rpm=20 "
        "scheduler=hit-miss-per-worker",
    ],
)
def test_controllers_and_routers_see_the_same_workers(words: str) -> None:
    """Roles that change, GPUs that are rented, drained and lost, and several kinds, to the byte."""
    fast, definition = (simulated(*words.split(), *more) for more in ((), ("executor=stages",)))
    assert definition.requests.select(fast.requests.column_names).equals(fast.requests)
    assert definition.cluster.select(fast.cluster.column_names).equals(fast.cluster)


@pytest.mark.parametrize(
    ("words", "column"),
    [
        ("system=nirvana trace.requests=800 preload=200", "fetch_s"),
        ("system=modm-fixed scheduler=fcfs trace.requests=600 preload=300 arrivals.rate_rpm=8", "load_s"),
    ],
)
def test_fetches_and_loads_move_the_end_by_rounding_alone(words: str, column: str) -> None:
    """The fast path adds them and the steps before it adds the instant."""
    fast, definition = (simulated(*words.split(), *more).requests.to_pandas() for more in ((), ("executor=stages",)))
    assert (fast[column] > 0).any()
    for name in ("start_s", "finish_s", "load_s", "energy_j"):
        np.testing.assert_allclose(definition[name], fast[name], rtol=1e-12)


def test_scheduler_beside_a_group_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scheduler: found Fcfs beside the group policy EarliestDeadline.*stages"):
        simulated("system=edf-best-fit", "scheduler=fcfs")
    with pytest.raises(ConfigError, match=r"scheduler: none is chosen beside Sequential; add scheduler=fcfs"):
        simulated("system=vanilla", "scheduler=stages")
