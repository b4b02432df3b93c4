"""Engines' closed loops: a serial server whose only input is the seconds of a request alone."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.backends.profile import Profile
from mezzotint.backends.profile import write as write_profile
from mezzotint.figures.page import percent
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.rows import read_rows
from mezzotint.sim.papers.runs import Point, compose_point
from mezzotint.sim.papers.study import RESULTS, Output, Results, Study
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import assemble
from mezzotint.traces.table.trace import make

SINGLE, LOOPS = "single_requests.csv", "closed_loops.csv"

MEASURES = ("mean", "p95", "throughput")

COMPILES = 2.0
"""Times the seconds of a request in the loop: a request alone above that was a compilation."""

CLOSE = 0.05
"""Error of the mean that the page counts as close."""

WORST = 5
"""Loops that the page explains."""

WORDS = (
    "trace=mix",
    "shapes=model",
    "quality=alpha",
    "slo=[]",
    "sample_s=1e6",
    "cluster=local",
    "cluster.count=1",
    "cluster.gpu.name=server",
    "models=sdxl",
    "models.large.name=request",
    "models.large.steps=1",
    "backend=profiled",
    "arrivals=closed",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the benchmark, on an engine with a layout of its GPUs."""

    gpu: str
    num_gpus: int
    framework: str
    profile: str
    case_id: str
    timestamp: str
    file: str

    @property
    def served(self) -> tuple[str, str, int, str, str, str]:
        """Report, GPUs, engine, layout and case."""
        return self.file, self.gpu, self.num_gpus, self.framework, self.profile, self.case_id


@dataclass(frozen=True, slots=True)
class Single(Case):
    """A request alone: seconds at the client, and outside of the server if it is known."""

    client_s: float | None = None
    overhead_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Loop(Case):
    """A closed loop: clients, requests, and the latencies and seconds of the whole."""

    concurrency: int | None = None
    completed: int | None = None
    duration_s: float | None = None
    mean_s: float | None = None
    p95_s: float | None = None
    error: str | None = None


def compare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help=f"folder of {SINGLE} and {LOOPS}")],
    output: Output = RESULTS,
) -> int:
    """Replay closed loops of engines on the seconds of a request alone, and write engines.md and .json.

    The tables are those of mickqian/diffusion-bench-framework, one row a case. They have no licence and are not part of
    the project; the files that are written have errors alone, and the seconds of the worst loops.

    Raises:
        ConfigError: a file cannot be read or written, or no loop has a request alone.
    """
    return STUDY.reproduce(lambda: measure(folder), output)


def measure(folder: Path) -> dict[str, Any]:
    """Replay every loop of ``folder`` and return the content of the JSON file. Raises ConfigError."""
    singles = [single for single in read_rows(folder / SINGLE, Single) if single.client_s and not single.error]
    rows, skipped = [], []
    for loop in tqdm(read_rows(folder / LOOPS, Loop), unit="loop", desc=STUDY.name, disable=None):
        name = f"{loop.case_id}, {loop.framework} on {loop.num_gpus} x {loop.gpu}, {loop.timestamp[:10]}"
        same = [single for single in singles if single.served == loop.served]
        if loop.error or not loop.completed or not loop.duration_s:
            skipped.append(f"{name}: failed")
        elif not same:
            skipped.append(f"{name}: its report has no request alone")
        elif float(same[0].client_s or 0) > COMPILES * loop.duration_s / loop.completed:
            alone, each = same[0].client_s, loop.duration_s / loop.completed
            skipped.append(f"{name}: the request alone is a compilation ({alone:.1f} s, in the loop {each:.1f} s each)")
        else:
            rows.append(_result(name, loop, same[0]))
    if not rows:
        raise ConfigError(f"{folder / LOOPS}: none of its loops can be replayed; the last is {skipped[-1]}")
    worst = sorted(rows, key=lambda row: -abs(row["error"]["mean"]))[:WORST]
    for row in rows:
        if row not in worst:
            del row["seconds"]
    return {"rows": rows, "worst": worst, "skipped": skipped}


def _result(name: str, loop: Loop, single: Single) -> dict[str, Any]:
    service_s, clients, requests = float(single.client_s or 0), int(loop.concurrency or 1), int(loop.completed or 0)
    latency_s, end_s = replay(service_s, clients, requests)
    measured = {"mean": loop.mean_s, "p95": loop.p95_s, "throughput": requests / (loop.duration_s or np.nan)}
    ours = {"mean": float(latency_s.mean()), "p95": float(np.percentile(latency_s, 95)), "throughput": requests / end_s}
    return {
        "name": name,
        "engine": loop.framework,
        "clients": clients,
        "requests": requests,
        "error": {key: ours[key] / value - 1 for key, value in measured.items() if value},
        "seconds": {
            "alone": service_s,
            "outside": single.overhead_s,
            "each": (loop.duration_s or np.nan) / requests,
            "measured": loop.mean_s,
            "ours": ours["mean"],
        },
    }


def replay(service_s: float, clients: int, requests: int, handling_s: float = 0.0) -> tuple[NDArray[np.float64], float]:
    """Return the latencies of a closed loop on one serial server, (requests,) seconds, and the end of the last.

    Args:
        service_s: seconds of a request on the server, alone.
        handling_s: seconds from the end on the server to the answer, which overlap with the next request.
    """
    size = {"width": 1024, "height": 1024}
    form = {"schema": 1, "model": "request", "gpu": "server", "source": LOOPS}
    profile = Profile.model_validate({**form, "step": [{**size, "seconds": service_s}]})
    columns = {
        "request_id": [f"request-{number:05d}" for number in range(requests)],
        "arrival_s": [0.0] * requests,
        "prompt": [""] * requests,
    }
    with tempfile.TemporaryDirectory() as folder:
        write_profile(profile, Path(folder) / "server.yaml")
        loop = (f"arrivals.outstanding={clients}", f"handling.after_s={handling_s}", f"backend.folder={folder}")
        settings = check(compose_point(Point("", {}, (*WORDS, *loop))))
        engine = assemble(settings, trace=make(columns, name=LOOPS, source=LOOPS)).engine
        engine.run()
    arrival_s, finish_s = (np.asarray(engine.record.request_columns[name]) for name in ("arrival_s", "finish_s"))
    return finish_s - arrival_s, float(finish_s.max())


def medians(rows: Sequence[Results]) -> dict[str, float]:
    """Return the median error of each measure, without its sign."""
    return {name: median(abs(row["error"][name]) for row in rows) for name in MEASURES}


def by_engine(facts: Results) -> Mapping[str, Sequence[Results]]:
    """Return the loops of all engines together, and of each."""
    engines = sorted({row["engine"] for row in facts["rows"]})
    return {"all": facts["rows"]} | {name: [row for row in facts["rows"] if row["engine"] == name] for name in engines}


def lines(facts: Results) -> Iterator[str]:
    """Yield the median errors by engine, the worst loops, and what was skipped."""
    for engine, rows in by_engine(facts).items():
        errors = ", ".join(f"{name} {percent(error, 1)}" for name, error in medians(rows).items())
        yield f"{engine}: {len(rows)} loops, median error of {errors}"
    yield f"{percent(within(facts), 0)} of the means are within {percent(CLOSE, 0)}"
    for row in facts["worst"]:
        seconds = row["seconds"]
        alone = f"{seconds['alone']:.2f} s alone, {seconds['each']:.2f} s each in the loop"
        yield f"worst: {row['name']}, {row['clients']} clients: mean {percent(row['error']['mean'], 1, True)} ({alone})"
    yield from (f"skipped: {reason}" for reason in facts["skipped"])


def within(facts: Results) -> float:
    """Return the share of the loops whose mean is close."""
    errors = [abs(row["error"]["mean"]) for row in facts["rows"]]
    return float(np.mean(np.array(errors) <= CLOSE))


def values(facts: Results) -> Results:
    """Return the medians by engine, for the page."""
    engines = {engine: (len(rows), medians(rows)) for engine, rows in by_engine(facts).items()}
    return {"engines": engines, "measures": MEASURES, "within": within(facts), "close": CLOSE}


STUDY = Study("engines", lambda _: {}, values=values, lines=lines)
