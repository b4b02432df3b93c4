"""MoDM's monitor after the last arrival."""

import pytest

from tests.sim.lab import simulated


@pytest.mark.parametrize("drain", [True, False])
def test_monitor_counts_waiting_requests_as_load_after_the_last_arrival(drain: bool) -> None:
    """Hits and misses wait in separate queues: without draining, the GPUs of the emptied queue idle to the end."""
    words = ["system=modm-throughput", "arrivals=saturation", "arrivals.gap_s=0.5", "trace.requests=900", "preload=300"]
    words += ["cluster.count=12", "controller.period_s=120", f"controller.drain={str(drain).lower()}"]
    summary = simulated(*words).summary
    assert summary["requests"]["completed"] == 600
    busy = summary["gpu"]["busy_fraction"]
    assert busy > 0.9 if drain else busy < 0.85
