"""What a request costs as its surroundings grow: ``python -m tests.benchmarks.growth [--rows GLOB] [--scale N]``.

A row is one axis of one system: CPU-microseconds of a request at each length of the trace, number of workers or of
waiting requests, or number of GPUs of groups, and the exponent of the growth. What starts and checks a run is left out:
the cost is that of the second and the third quarter. Each is brought to the machine where budgets were set by the
yardstick of its minute, since a shared machine is at half its speed for minutes at a time.

Beside the time stand the bytecode instructions of a request in the fourth quarter: the work of the algorithm, the same
on every machine. Time grows faster than work where a large cluster does not fit in the processor's caches.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from math import nan
from types import FrameType
from typing import Any

import numpy as np

from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.sources import Source
from mezzotint.traces.table.trace import Trace
from tests.benchmarks.yardstick import AT_BUDGETS, customers_per_cpu_s
from tests.sim.lab import configured

LOAD_RPM = 0.5
"""Requests a minute and worker: 80 % of what an MI210 serves with Stable Diffusion 3.5 Large."""

SAMPLES = 40
"""Rows of the time series in a run, at which its progress is noted."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``words`` with {x} for the place on the axis, and the requests of its trace."""

    name: str
    places: tuple[int, ...]
    words: str
    requests: int = 20_000
    rpm: float | None = None
    """Requests a minute and x; None is 16 workers at ``LOAD_RPM``."""


WORKERS = (16, 256, 4_096, 65_536)
FAILURES = "failures=random failures.mean_up_s=20000 failures.mean_down_s=200"
ROUTERS = ("least-requests", "least-declared-cost", "least-work-left", "random", "round-robin")
SIZES = "experiment=tetriserve-evaluation slo_by_size=null slo=[5] cluster.count={x}"
FLEET = (
    "trace=synthetic-gentd26 trace.images=[[1,1]] models=sdxl cluster=h100 backend.gpu=h100-diffusers extrapolate=warn "
    "frontend=by-base-model residency={residency} cluster.count={{x}}"
)
ADDONS = "trace=synthetic-service-b models=sdxl cluster=h800 addons=serve system=diffusers extrapolate=warn"

AXES = (
    Axis("requests, fcfs", (10_000, 100_000, 1_000_000), "system=vanilla trace.requests={x}"),
    *(
        Axis(f"workers, {name}{with_failures}", WORKERS, f"{words} {failures} cluster.count={{x}}", rpm=LOAD_RPM)
        for name, words in {"fcfs": "", **{each: f"scheduler=per-worker router={each}" for each in ROUTERS}}.items()
        for with_failures, failures in {"": "", " with failures": FAILURES}.items()
    ),
    *(
        Axis(f"workers, {name}, {residency}", WORKERS, f"{FLEET.format(residency=residency)} {words}", rpm=12.0)
        for name, words in {
            "by-model": "scheduler=per-worker router=by-model discipline=fifo",
            "resident-first": "scheduler=resident-first",
        }.items()
        for residency in ("one-model", "by-memory")
    ),
    Axis("workers, by-addons", WORKERS, f"{ADDONS} scheduler=per-worker router=by-addons cluster.count={{x}}", rpm=6.0),
    Axis("waiting or served, fcfs", (16, 400, 4_000, 40_000), "arrivals=closed arrivals.outstanding={x}", 100_000),
    Axis("GPUs of groups, edf", (1, 8, 64), f"{SIZES} system=edf-best-fit", 500, rpm=7.0),
    Axis("GPUs of groups, tetriserve", (1, 8, 64), f"{SIZES} system=tetriserve", 500, rpm=7.0),
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--rows", metavar="GLOB", default="*", help="only the rows of such names")
    parser.add_argument("--scale", metavar="N", type=int, default=1, help="divide all requests by N (default: 1)")
    args = parser.parse_args()
    for line in table(args.rows, args.scale):
        print(line, flush=True)
    return 0


def table(rows: str = "*", scale: int = 1) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| what grows | us of a request | exponent | last / first | bytecodes of a request | last / first |"
    yield "|---|---|---:|---:|---|---:|"
    for axis in AXES:
        if fnmatch(axis.name, rows):
            places = [place // scale for place in axis.places] if "trace.requests" in axis.words else axis.places
            times_us, bytecodes = zip(*(cost(axis, place, scale) for place in places), strict=True)
            exponent = np.polyfit(np.log(places), np.log(times_us), 1)[0]
            times = ", ".join(f"{place:,}: {us:.1f}" for place, us in zip(places, times_us, strict=True))
            works = ", ".join(f"{place:,}: {work:,.0f}" for place, work in zip(places, bytecodes, strict=True))
            growth = f"{times} | {exponent:.2f} | {times_us[-1] / times_us[0]:.2f}"
            yield f"| {axis.name} | {growth} | {works} | {bytecodes[-1] / bytecodes[0]:.2f} |"


def cost(axis: Axis, place: int, scale: int = 1) -> tuple[float, float]:
    """Return the CPU-microseconds of a request at ``place``, on the machine where budgets were set, and its bytecodes.

    Bytecodes are instructions of Python; what a function in C does is one of them.
    """
    # Several times the workers or the waiting requests, so that most arrive when others end.
    requests = max(axis.requests // scale, 100) if "trace.requests" not in axis.words else place
    if axis.name.startswith(("workers", "waiting")):
        requests = max(requests, 3 * place)
    rpm = LOAD_RPM * 16 if axis.rpm is None else axis.rpm * place
    words = axis.words.format(x=place).replace(f"trace.requests={place}", "").split()
    if "arrivals=closed" not in words:
        words.append(f"arrivals.rate_rpm={rpm}")
    # As often as in a minute of simulated time at least: the gauges are part of the cost.
    words.append(f"sample_s={min(60.0, 60 * requests / rpm / SAMPLES)}")
    has_sizes = words[0].startswith("experiment=")
    own = () if has_sizes else ("trace.history=0",)
    settings = check(configured(*words, *own, f"trace.requests={requests}"))
    run = assemble(settings, trace=None if words[0].startswith(("experiment=", "trace=")) else _trace(requests)).engine
    # Halves of requests, so that an arrival counts when it is served: ends come later.
    marks: list[tuple[int, float]] = []
    bytecodes = Bytecodes()

    def note_time(ended: int) -> None:
        marks.append((run.arrived + ended, time.process_time()))
        if marks[-1][0] >= 1.5 * requests:
            run.progress = count
            bytecodes.start(sys._getframe(1))

    def count(ended: int) -> None:
        # Of a twentieth of the requests: counting takes far longer than running.
        if run.arrived + ended >= 1.6 * requests:
            bytecodes.stop(run.arrived + ended - marks[-1][0])
            run.progress = None

    run.progress = note_time
    before = customers_per_cpu_s()
    run.run()
    yard = (before + customers_per_cpu_s()) / 2 / AT_BUDGETS
    (first, from_s), *_, (last, until_s) = [mark for mark in marks if mark[0] >= requests / 2]
    return 2e6 * yard * (until_s - from_s) / (last - first), 2 * bytecodes.mean


class Bytecodes:
    """A count of the instructions that Python runs, by ``sys.settrace``."""

    def __init__(self) -> None:
        self._count = 0
        self._former: Any = None
        self.mean = nan
        """Instructions of each unit that ``stop`` was told."""

    def start(self, frame: FrameType | None) -> None:
        """Count what ``frame`` and its callers, which run already, do from now on, and all that they call."""
        self._former = sys.gettrace()
        sys.settrace(self._trace)
        while frame is not None:
            frame.f_trace = self._trace(frame, "call", None)
            frame = frame.f_back

    def stop(self, units: int) -> None:
        sys.settrace(self._former)
        self.mean = self._count / units

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._count += event == "opcode"
        return self._trace


@cache
def _trace(requests: int) -> Trace:
    settings = check(configured("trace.history=0", f"trace.requests={requests}"))
    source: Source = build(settings.trace, "trace", Source)
    return source.load(stream(settings.seed, TRACE))


if __name__ == "__main__":
    sys.exit(main())
