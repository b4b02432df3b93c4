"""Processes that judge inputs, each stopped when it takes too long or too much memory."""

import faulthandler
import multiprocessing
import resource
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fuzz.inputs import Input

CPU_S = 5
"""CPU-seconds that an input may take."""

WALL_S = 90
"""Seconds that it may wait without work; machines are shared."""

MEMORY_BYTES = 2 * 2**30
"""Private memory that it may allocate beyond the program's own. Of addresses, V8 alone reserves 64 GiB."""

PRELOADED = (
    "tests.fuzz.judge",
    "mezzotint.sim.verbs",
    "mezzotint.sim.report.report",
    "sklearn.svm",
    "matplotlib.pyplot",
    "mezzotint.sim.report.validation",
)
"""Imported once: the processes are forks of one that has them. What an import takes is not the input's."""


def _data_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def _work(pipe: Connection, trouble: str) -> None:
    """Judge inputs from ``pipe`` until it is closed; a stopped process writes its place in the code to a file."""
    from tests.fuzz.judge import judged

    with open(trouble, "w") as file:
        faulthandler.register(signal.SIGXCPU, file=file, chain=True)
        faulthandler.enable(file=file)
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MEMORY_BYTES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with tempfile.TemporaryDirectory(dir=Path(trouble).parent) as name:
            while True:
                try:
                    given: Input = pipe.recv()
                except EOFError:
                    return
                used = resource.getrusage(resource.RUSAGE_SELF)
                limit = int(used.ru_utime + used.ru_stime) + CPU_S + 1
                resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
                found = judged(given, Path(name))
                try:
                    pipe.send((found.status, found.output, found.wrong))
                except BrokenPipeError:
                    return


class _Worker:
    """One process and its current input, if any."""

    def __init__(self, context: Any, trouble: Path, rest: Iterator[tuple[int, Input]]) -> None:
        self.trouble = trouble
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, str(trouble)), daemon=True)
        self.process.start()
        other.close()
        self.give(next(rest, None))

    def give(self, numbered: tuple[int, Input] | None) -> None:
        self.busy, self.since = numbered, time.monotonic()
        if numbered:
            self.pipe.send(numbered[1])

    def is_late(self) -> bool:
        return time.monotonic() - self.since > WALL_S

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()

    def ended(self) -> str:
        """Return why the process ended, and its place in the code."""
        self.process.join(1)
        code = self.process.exitcode
        self.stop()
        where = [line.strip() for line in self.trouble.read_text().splitlines() if line.strip().startswith("File")]
        at = f" at {' < '.join(where[:4])}" if where else ""
        if code is None:
            return f"no end in {WALL_S} s by the clock"
        return f"over {CPU_S} s of a processor{at}" if code == -signal.SIGXCPU else f"the process ended with {code}{at}"


def judge_all(
    inputs: Iterable[tuple[int, Input]], jobs: int
) -> Iterator[tuple[int, Input, int | None, str, list[str]]]:
    """Judge numbered inputs in ``jobs`` processes; yield number, input, status, output and what was wrong."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    rest = iter(inputs)
    with tempfile.TemporaryDirectory(prefix="mezzotint-fuzz-") as name:
        workers = [_Worker(context, Path(name, f"trouble{n}"), rest) for n in range(jobs)]
        try:
            while busy := [worker for worker in workers if worker.busy]:
                ready = wait([worker.pipe for worker in busy], timeout=1)
                for worker in busy:
                    if worker.pipe not in ready and not worker.is_late():
                        continue
                    assert worker.busy is not None
                    number, given = worker.busy
                    found = None
                    if worker.pipe in ready:
                        with suppress(EOFError, ConnectionResetError):
                            found = worker.pipe.recv()
                    yield number, given, *(found or (None, "", [worker.ended()]))
                    if found:
                        worker.give(next(rest, None))
                    else:
                        workers[workers.index(worker)] = _Worker(context, worker.trouble, rest)
        finally:
            for worker in workers:
                worker.stop()
