"""The stopwatch on a CPU times this process's own work: neither waiting nor the work of other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import pytest

torch = pytest.importorskip("torch")

from mezzotint.backends.diffusers_.device import Stopwatch  # noqa: E402

CPU = torch.device("cpu")
NEIGHBOURS = 3


def work() -> None:
    """Work for about 20 ms."""
    sum(range(1_000_000))


def median_s(turns: int = 9) -> float:
    watch, laps = Stopwatch(CPU), []
    for _ in range(turns):
        work()
        laps.append(watch.lap())
    return median(laps)


@contextmanager
def busy_neighbours() -> Iterator[None]:
    """Run busy processes on the one processor that this process may use too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()
        os.sched_setaffinity(0, before)


def test_stopwatch_excludes_waiting() -> None:
    watch = Stopwatch(CPU)
    time.sleep(0.2)
    assert watch.lap() < 0.05


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs to pin a process to a processor")
def test_stopwatch_excludes_busy_neighbours() -> None:
    """Each process gets a quarter of the processor: wall time would be four times as long."""
    turns: list[tuple[float, float]] = []
    for _ in range(3):  # alternately, since a shared machine changes its speed
        by_itself = median_s()
        with busy_neighbours():
            time.sleep(0.2)  # until the processes run
            turns.append((by_itself, median_s()))
    alone, beside = (median(each) for each in zip(*turns, strict=True))
    assert alone / 2 < beside < 2 * alone
