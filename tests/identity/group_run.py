"""Time runs of group policies, and count their launches and decisions, in the checkout on PYTHONPATH alone.

A script. Its input is a list of the arguments of ``timed``; it prints the result of each as a line of JSON.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

from mezzotint import sim
from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.options import prepare_overrides
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble

ROUNDS, ENOUGH_S = 5, 2.0
"""A run is repeated so often, or until all repetitions have taken so many CPU-seconds; the median counts."""

NEAR = 0.9
"""A decision counts as one with 100 requests waiting if more than 90 and at most 100 wait."""


class Overdue(BaseException):
    """A run takes more than its limit. Not an Exception: the engine would take it for an error of a part."""


def timed(words: Sequence[str], limit_s: float, queues: Sequence[int] = ()) -> dict[str, Any]:
    """Run a configuration, and stop it after ``limit_s`` seconds.

    Counting takes some tenths of a microsecond of each launch and decision.

    Args:
        words: its overrides.
        queues: numbers of waiting requests; with them each decision is timed.

    Returns:
        requests; cpu_s, of the engine's run; launches; decisions; digest of all finish times, None if it was stopped;
        decision_s, by queue: the mean CPU-seconds of the decisions that launch something with so many waiting.
    """
    found = _run(words, limit_s, queues)
    times = [found["cpu_s"]]
    while len(times) < ROUNDS and sum(times) < ENOUGH_S and found["digest"] and not queues:
        times.append(_run(words, limit_s)["cpu_s"])
    return {**found, "cpu_s": median(times)}


def _run(words: Sequence[str], limit_s: float, queues: Sequence[int] = ()) -> dict[str, Any]:
    engine = assemble(check(resolve_config(compose_config(prepare_overrides([*words, "run.dir=unnamed"]))))).engine
    scheduler: Any = engine.scheduler
    # Without such a method, a launch of one request is what the executor prepares.
    starts, start = (scheduler, "_start") if hasattr(scheduler, "_start") else (engine.executor, "prepare")
    start_launch, decide = getattr(type(starts), start), type(scheduler.group_policy).decide
    launches = decisions = 0
    spans: dict[int, list[float]] = {queue: [] for queue in queues}

    def counted_start(*given: Any) -> Any:
        nonlocal launches
        result = start_launch(*given)
        launches += result is not False
        return result

    def counted_decide(*given: Any) -> Any:
        nonlocal decisions
        decisions += 1
        if not queues:
            return decide(*given)
        waiting, from_s = len(scheduler), time.process_time()
        decided = list(decide(*given))
        span_s = time.process_time() - from_s
        for queue, times in spans.items():
            if decided and NEAR * queue < waiting <= queue:
                times.append(span_s)
        return decided

    digest, from_s = None, time.process_time()
    with (
        patch.object(type(starts), start, counted_start),
        patch.object(type(scheduler.group_policy), "decide", counted_decide),
    ):
        signal.signal(signal.SIGALRM, _stop)
        # In real time: while a timer of CPU time runs, Linux reads CPU times by whole ticks.
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            _, cpu_s = engine.run()
            digest = sha256(repr(list(engine.record.request_columns["finish_s"])).encode()).hexdigest()[:12]
        except Overdue:
            cpu_s = time.process_time() - from_s
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return {
        "requests": engine.rows,
        "cpu_s": cpu_s,
        "launches": launches,
        "decisions": decisions,
        "digest": digest,
        "decision_s": {queue: mean(times) for queue, times in spans.items() if times},
    }


def _stop(*_: object) -> None:
    raise Overdue


if __name__ == "__main__":
    if not Path(str(sim.__file__)).is_relative_to(os.environ["PYTHONPATH"]):
        raise ImportError(f"sim was found in {sim.__file__}, not in {os.environ['PYTHONPATH']}")
    for case in json.load(sys.stdin):
        print(json.dumps(timed(*case)), flush=True)
