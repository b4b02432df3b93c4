"""A peer that runs everywhere ends every request when we do."""

import numpy as np

from tests.benchmarks.peers import by_simpy, ours


def test_simpy_ends_each_request_at_the_same_time() -> None:
    arrivals, services, ends, _ = ours(2000)
    assert (ends - arrivals > services + 1).any()  # some waited
    np.testing.assert_array_equal(by_simpy(arrivals, services)[0], ends)
