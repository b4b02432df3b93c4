"""The batching server against a recursion over arrivals without queues or events."""

import heapq
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.scheduling.batching.mlperf import MlperfBatching
from tests.sim.lab import FixedTimes, engine


class PerImage(FixedTimes):
    """A batch takes the sum of its images' times."""

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost(sum(self.full_s[work.row] * (count / work.steps) for work in works))


def formed(times: Sequence[float], max_batch: int, limit_s: float) -> list[tuple[float, list[int]]]:
    """Return when each batch is closed, and its members."""
    batches: list[tuple[float, list[int]]] = []
    waiting: list[int] = []
    last_s, stamp_s = times[0], times[0]
    for row, at_s in enumerate(times):
        if waiting and at_s > last_s + limit_s:
            batches.append((last_s + limit_s, waiting))
            waiting, stamp_s = [], last_s + limit_s
        waiting.append(row)
        last_s = at_s
        if len(waiting) >= max_batch or at_s - stamp_s >= limit_s:
            batches.append((at_s, waiting))
            waiting, stamp_s = [], at_s
    return batches + ([(last_s + limit_s, waiting)] if waiting else [])


def finished(times: Sequence[float], gpus: int, max_batch: int, limit_s: float, image_s: float) -> list[float]:
    """Return when each image is done: batches in order, each on the first free GPU, its images together."""
    free = [0.0] * gpus
    done = [0.0] * len(times)
    for closed_s, rows in formed(times, max_batch, limit_s):
        ended_s = max(heapq.heappop(free), closed_s) + image_s * len(rows)
        heapq.heappush(free, ended_s)
        for row in rows:
            done[row] = ended_s
    return done


@settings(max_examples=200)
@given(
    gaps=st.lists(st.integers(0, 4000), min_size=1, max_size=60),
    gpus=st.integers(1, 4),
    max_batch=st.integers(1, 8),
    limit=st.integers(0, 5003),
    image=st.integers(1, 4999),
)
def test_mlperf_batching_finishes_every_image_when_the_recursion_says(
    gaps: list[int], gpus: int, max_batch: int, limit: int, image: int
) -> None:
    """Whole milliseconds as binary fractions make sums exact; ties of an arrival and a poll are excluded."""
    times = [(sum(gaps[: i + 1]) * 2 + 1) / 1024 for i in range(len(gaps))]
    limit_s = limit * 2 / 1024 + (1 / 1024 if limit else 0)
    image_s = image * 64 / 1024
    run = engine(
        times, [image_s] * len(times), gpus,
        backend=PerImage([image_s] * len(times)),
        scheduler=MlperfBatching(max_batch=max_batch, batch_timeout_s=limit_s), executor=StaticBatch(max_batch=8),
    )  # fmt: skip
    run.run()
    expected = finished(times, gpus, max_batch, limit_s, image_s)
    assert list(run.record.request_columns["finish_s"]) == pytest.approx(expected, rel=1e-12)


def test_batch_closes_on_timeout_while_every_worker_is_busy() -> None:
    """Three leave by the clock, one of them on arrival; the next goes alone, though the GPU is busy."""
    server = MlperfBatching(max_batch=8, batch_timeout_s=1.0)
    times = [0.0, 0.5, 1.25, 2.5, 2.75]
    run = engine(times, [10.0] * 5, backend=PerImage([10.0] * 5), scheduler=server, executor=StaticBatch())
    run.run()
    assert list(run.record.request_columns["finish_s"]) == [31.25, 31.25, 31.25, 41.25, 51.25]


def test_batch_larger_than_the_executor_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_batch: found 9; the executor takes 8"):
        engine([0.0], [1.0], scheduler=MlperfBatching(max_batch=9), executor=StaticBatch(max_batch=8)).run()
