"""`mezzotint calibrate log`: fit a profile to the generation seconds in a service's own log."""

import tempfile
from pathlib import Path
from typing import Annotated

import pandas as pd
from typer import Argument, Option

from mezzotint.backends.base import BackendError
from mezzotint.backends.profile import Profile, file_name, write
from mezzotint.backends.profiled import Profiled
from mezzotint.figures.page import render
from mezzotint.files.atomic import atomic_write, check_ours, check_target, output_folder
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.profile.cells import Cell, accuracy_text, judge_windows, longest, measure_cells, split
from mezzotint.sim.fit.profile.fit import fit
from mezzotint.sim.fit.profile.observed import FEWEST_QUIET, first_arrival, observe, period, quiet_seconds
from mezzotint.traces.sources.file import read_any


def log(
    trace: Annotated[
        Path, Argument(metavar="TRACE", help="a trace with the column gen_s; with --quiet, a benchmark's result")
    ],
    gpu: Annotated[str, Option(metavar="NAME", help="the GPU's name in the profile's file")],
    model: Annotated[str, Option(metavar="NAME", help="the model's name in the simulator")],
    output: Annotated[Path, Option("-o", "--output", metavar="FOLDER", help="folder of the profile")],
    min_requests: Annotated[int, Option("--least", help="smallest number of requests of a cell to check")] = 200,
    quiet: Annotated[
        bool, Option("--quiet", help="fit to the latencies of the requests that began when no other was in flight")
    ] = False,
    notes: Annotated[str | None, Option(help="remarks to keep in the profile")] = None,
    page: Annotated[Path | None, Option(metavar="FILE", help="also write the check as a Markdown page")] = None,
) -> None:
    """Fit a profile to the generation seconds of a trace, by size and steps, with their scatter. Checks it on the last
    fifth of the requests, which is held out. The fit uses a recent window, chosen on the earlier requests alone.

    With --quiet, the result of a benchmark of the real server takes the place of a log: AIPerf's profile_export.jsonl,
    the JSON of `vllm bench serve --save-detailed`, or a table with arrivals and latencies.

    Raises:
        ConfigError, TraceError, BackendError: the trace has no seconds, or a file cannot be read or written.
    """
    path = output / file_name(gpu, model)
    check_ours(path, ConfigError, "a profile", b"", b"gpu:", b"schema:")
    if page is not None:
        check_ours(page, ConfigError, "a page of calibrate log", b"# Generation seconds")
    requests = quiet_seconds(trace) if quiet else read_any(trace)
    fewest = {"min_cell": FEWEST_QUIET, "min_size": 1} if quiet else {}
    start = first_arrival(requests)
    training, held_out = split(observe(requests))
    output_folder(output, ConfigError)
    for file in (path, page):
        if file is not None:
            check_target(file, ConfigError)

    def fit_profile(seen: pd.DataFrame) -> Profile:
        source = f"{requests.source}: fitted on the seconds of {len(seen):,} requests, {period(seen, start)}"
        return fit(seen, gpu=gpu, model=model, source=source, notes=notes, **fewest)

    def check(seen: pd.DataFrame, later: pd.DataFrame) -> list[Cell]:
        try:
            return measure_cells(later, backend(fit_profile(seen)), model, min_requests)
        except BackendError:  # a short window may lack sizes
            return []

    tried = judge_windows(training, check)
    window = longest(tried)
    recent, later = training[window.start :], period(held_out, start)
    profile = fit_profile(recent)
    cells = measure_cells(held_out, backend(profile), model, min_requests)
    accuracy = accuracy_text(cells)
    validation, error = f"{accuracy}; held out: the last fifth of the log, {later}", None
    if cells:
        validation += "; service_error: the worst cell"
        error = round(max(cell.error for cell in cells), 3)
    profile = profile.model_copy(update={"validation": validation, "service_error": error})
    write(profile, path)
    if page is not None:
        text = render(
            "mezzotint.sim.fit.profile", "page.md.jinja", profile=profile, held_out=later, min_requests=min_requests,
            cells=cells, taken=window,
            tried=[(period(training[one.start :], start), len(training) - one.start, one) for one in tried],
        )  # fmt: skip
        with atomic_write(page, ConfigError) as temporary:
            temporary.write_text(text, encoding="utf-8")
    print(f"fitted on {period(recent, start)}, checked on {later}: {accuracy}")
    print(path)


def backend(profile: Profile) -> Profiled:
    """Return a backend that reads costs from ``profile``."""
    with tempfile.TemporaryDirectory() as folder:
        write(profile, Path(folder) / "profile.yaml")
        return Profiled(profile.gpu, folder=folder)
