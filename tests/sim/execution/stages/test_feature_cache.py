"""Feature caches on groups that change: unequal steps, wherever and in however many launches they run."""

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from tests.sim.lab import simulated

FLUX = "models=flux-dev-elastic", "cluster=h100", "cluster.count=8", "trace.requests=200", "slo=[5x]"
CACHE = "feature_cache=teacache"
LOAD = "arrivals=poisson", "arrivals.rate_rpm=50"


def test_one_gpu_a_request_runs_as_batches_of_one() -> None:
    """Reused shares, seconds and joules of continuous batching, which boundaries cut otherwise."""
    words = "system=vanilla", *FLUX, *LOAD, CACHE
    batches = simulated(*words, "executor=continuous-batching", "executor.max_batch=1", "batching=same-size")
    stages = simulated(*words, "executor=stages")
    plain = simulated("system=vanilla", *FLUX, *LOAD, "executor=stages")
    for name in ("start_s", "finish_s", "denoise_s", "energy_j", "reused_share"):
        np.testing.assert_allclose(stages.requests[name], batches.requests[name], rtol=1e-9)
    saved = 1.0 - np.asarray(stages.requests["denoise_s"]) / np.asarray(plain.requests["denoise_s"])
    assert np.all(saved > 0.2)


@pytest.mark.parametrize("system", ["edf-best-fit", "rounds", "fixed-groups"])
def test_seconds_of_a_request_do_not_depend_on_its_launches(system: str) -> None:
    """The GPU seconds of all launches on one degree are those of one launch of all steps."""
    one = "group_policy.degrees=[1]" if system != "fixed-groups" else "group_policy.groups=[[0],[1],[2],[3],[4],[5],[6],[7]]"
    outcome = simulated(f"system={system}", *FLUX, *LOAD, CACHE, one)
    alone = simulated("system=vanilla", *FLUX[:3], "trace.requests=1", CACHE, "executor=stages")
    np.testing.assert_allclose(outcome.requests["denoise_s"], alone.requests["denoise_s"][0].as_py(), rtol=1e-9)


def test_policies_and_batches_of_equal_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"feature_cache: .*TetriServe\) takes all as equal"):
        simulated("system=tetriserve", *FLUX, CACHE)
