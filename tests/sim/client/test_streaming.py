"""Sessions of streaming video: chunks, their deadlines, stalls, and how many sessions a GPU carries."""

from typing import Any

import numpy as np
import pytest

from mezzotint.sim.client.streaming import Streaming
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.scheduling.routing.sessions import BySession
from tests.sim import lab

TICK_S, SMALL_TICK_S = 0.5903, 0.2995
"""Seconds of a chunk of ABot-World on one L20X, with Wan's decoder and with the small one (vLLM-Omni, 1eb56697)."""


def run(due_s: Any, tick_s: float, count: int = 1, **parts: Any) -> Any:
    client = parts.pop("client", None) or Streaming(chunks=20)
    engine = lab.engine(due_s, [tick_s] * len(due_s), count=count, client=client, **parts)
    engine.run()
    return engine


def test_one_session_plays_without_a_stall() -> None:
    engine = run([0.0], TICK_S)
    seen = engine.client.seen()
    assert seen["first_chunk_s"].tolist() == [pytest.approx(TICK_S)]
    assert seen["stalls"].tolist() == [0]


def test_chunk_is_asked_for_when_the_one_before_begins_to_play() -> None:
    columns = run([0.0], TICK_S).record.request_columns
    asked_s = columns["arrival_s"]
    # Each but the first .1 s before the chunk before it plays: 9 frames at 16 a second, then 12.
    # The third not before the second has come.
    plays_s = TICK_S + np.concatenate([[0.0], 9 / 16 + 12 / 16 * np.arange(18)])
    plays_s[1] = 2 * TICK_S
    assert asked_s[0] == 0.0
    assert asked_s[1:] == pytest.approx(plays_s)


@pytest.mark.parametrize(("tick_s", "carried"), [(TICK_S, 1), (SMALL_TICK_S, 2)])
def test_gpu_carries_as_many_sessions_as_chunks_fit_into_the_play_of_one(tick_s: float, carried: int) -> None:
    assert carried == int(12 / 16 // tick_s)
    fits = run(np.arange(carried) * 0.3, tick_s).client.seen()
    assert (fits["stalls"] == 0).all()
    more = run(np.arange(carried + 1) * 0.3, tick_s).client.seen()
    assert (more["stalls"] > 5).all()


def test_slow_tick_is_one_stall_of_what_it_lasts_beyond_the_play_of_a_chunk() -> None:
    # The log has one tick of 855.6 ms among ticks of 590.3 ms: the picture stands still for 5.6 ms, or without a start
    # buffer for 105.6 ms, after 27.8 ms at the second chunk, since the first one is shorter.
    class OneSlow(lab.FixedTimes):
        def steps(self, works: Any, count: int = 1) -> Any:
            cost = super().steps(works, count)
            return cost if works[0].row != 9 else cost.over(1.0 / (0.8556 / TICK_S))

    seen = run([0.0], TICK_S, backend=OneSlow([TICK_S] * 20)).client.seen()
    assert seen["stalls"].tolist() == [1]
    assert seen["stall_s"].tolist() == [pytest.approx(0.8556 - 0.75 - 0.1)]
    client = Streaming(chunks=20, start_buffer_s=0.0)
    seen = run([0.0], TICK_S, backend=OneSlow([TICK_S] * 20), client=client).client.seen()
    assert seen["stalls"].tolist() == [2]
    assert seen["stall_s"].tolist() == [pytest.approx(0.8556 - 0.75 + TICK_S - 9 / 16)]


def test_session_stays_on_the_gpu_of_its_first_chunk() -> None:
    outcome = lab.simulated(
        "models=abot-world", "cluster=l20x", "cluster.count=3", "trace.requests=9", "arrivals.rate_rpm=20",
        "scheduler=per-worker", "router=by-session", "discipline=fifo", "client=streaming", "client.chunks=15",
    )  # fmt: skip
    session = [name.partition("~")[0] for name in outcome.requests.column("request_id").to_pylist()]
    worker = outcome.requests.column("worker").to_pylist()
    assert len(set(zip(session, worker, strict=True))) == 9
    assert len(set(worker)) == 3
    assert outcome.summary["sessions"]["count"] == 9


@pytest.mark.parametrize("hold", [False, True])
def test_sessions_beyond_the_capacity_are_refused_or_wait(hold: bool) -> None:
    client = Streaming(chunks=5, max_sessions=1, hold=hold)
    engine = run([0.0, 0.1], TICK_S, client=client)
    seen = engine.client.seen()
    assert (seen["stalls"] == 0).all()
    if hold:
        assert seen["sent_s"][1] == engine.record.request_columns["finish_s"][8]
        assert seen["chunks"].tolist() == [5, 5]
    else:
        assert seen["chunks"].tolist() == [5, 0]
        assert engine.record.request_columns.reasons == {1: "1 sessions were live (client.max_sessions)"}


def test_routing_by_session_needs_sessions() -> None:
    with pytest.raises(ConfigError, match="router=by-session"):
        BySession().bind(lab.engine([0.0], [1.0]))
