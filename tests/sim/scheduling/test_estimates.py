"""Laws of estimates: what a scheduler believes changes its decisions, and never what the machine takes."""

from collections.abc import Sequence

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.simulate import Outcome
from tests.sim.lab import simulated

RUN = (
    *("system=super-p95", "models=qwen-image", "cluster=h100", "cluster.count=2", "quality=alpha", "slo=[]"),
    *("trace.requests=60", "trace.history=0", "arrivals.rate_rpm=8"),
)
SIZE = "1024x1024"


def columns(outcome: Outcome, *names: str) -> Sequence[np.ndarray]:
    return [outcome.requests[name].to_numpy() for name in names]


def test_perfect_estimates_equal_costs() -> None:
    estimate_s, gpu_s = columns(simulated(*RUN), "estimate_s", "gpu_s")
    assert estimate_s == pytest.approx(gpu_s)


def test_table_is_believed_and_the_machine_takes_its_own_seconds() -> None:
    perfect, table = simulated(*RUN), simulated(*RUN, "estimates=table", f"estimates.seconds={{{SIZE}: 3}}")
    estimate_s, gpu_s = columns(table, "estimate_s", "gpu_s")
    assert estimate_s == pytest.approx(3.0)
    assert gpu_s == pytest.approx(columns(perfect, "gpu_s")[0])


def test_table_may_have_seconds_by_parallel_degree() -> None:
    words = ("estimates=table", f"estimates.seconds={{{SIZE}: {{1: 4, 2: 3}}}}")
    assert columns(simulated(*RUN, *words), "estimate_s")[0] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("seconds", "lacks"), [("{512x512: 3}", SIZE), (f"{{{SIZE}: {{4: 3}}}}", f"{SIZE} on 1 GPUs"), ("{}", "no size")]
)
def test_size_or_degree_that_the_table_lacks_is_refused(seconds: str, lacks: str) -> None:
    with pytest.raises(ConfigError, match=rf"estimates.seconds: found no.*{lacks.removeprefix('no ')}"):
        simulated(*RUN, "estimates=table", f"estimates.seconds={seconds}")


def test_learnt_estimates_begin_with_the_prior_and_converge_to_the_mean() -> None:
    prior_s = 1.0
    outcome = simulated(*RUN, "estimates=learnt", f"estimates.prior_s={prior_s}", "estimates.prior_steps=50")
    start_s, estimate_s, gpu_s = columns(outcome, "start_s", "estimate_s", "gpu_s")
    assert len(set(gpu_s.round(6))) == 1
    true_s, steps = float(gpu_s[0]), 50
    off = np.abs(estimate_s[np.argsort(start_s)] - true_s)
    assert estimate_s[np.argmin(start_s)] == pytest.approx(steps * prior_s)
    # The prior counts as one request: after n requests, its share is 1 / (n + 1).
    assert off[-1] == pytest.approx(off[0] / 59, rel=0.05)
    assert (np.diff(off) <= 1e-9).all()
