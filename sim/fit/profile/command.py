"""`mezzotint calibrate log`: a profile from the seconds that a service's own log tells."""

import tempfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from backends.base import BackendError
from backends.profile import Profile, write
from backends.profiled import Profiled
from conf.atomic import atomic_write, check_ours, check_target, output_folder
from conf.page import render
from sim.core.errors import ConfigError
from sim.fit.profile.cells import Cell, cells, longest, split, told, windows
from sim.fit.profile.fit import fit
from sim.fit.profile.observed import Observed, begins, observed
from traces.table.trace import read


def log(
    trace: Annotated[Path, Argument(metavar="TRACE", help="a trace whose requests tell their gen_s")],
    gpu: Annotated[str, Option(metavar="NAME", help="as the profile's file spells it")],
    model: Annotated[str, Option(metavar="NAME", help="as the simulator spells it")],
    output: Annotated[Path, Option("-o", "--output", metavar="FOLDER", help="where the profile goes")],
    least: Annotated[int, Option(help="requests of a cell to check")] = 200,
    notes: Annotated[str | None, Option(help="what else is to be known, for the profile")] = None,
    page: Annotated[Path | None, Option(metavar="FILE", help="write the check as a page too (Markdown)")] = None,
) -> None:
    """Fit a profile on the generation seconds of a trace, by size and steps, with their scatter, and check it on the
    last fifth of the requests, which is not used. The fit uses a recent window, which the earlier requests choose.

    Raises:
        ConfigError, TraceError, BackendError: the trace tells no seconds, or a file cannot be read or written.
    """
    path = output / f"{gpu}_{model}.yaml"
    check_ours(path, ConfigError, "a profile", b"", b"gpu:", b"schema:")
    if page is not None:
        check_ours(page, ConfigError, "a page of calibrate log", b"# Generation seconds")
    requests = read(trace)
    began = begins(requests)
    training, held_out = split(observed(requests))
    output_folder(output, ConfigError)
    for file in (path, page):
        if file is not None:
            check_target(file, ConfigError)

    def fitted(seen: Observed) -> Profile:
        source = f"{requests.source}: fitted on the seconds of {len(seen):,} requests, {seen.period(began)}"
        return fit(seen, gpu=gpu, model=model, source=source, notes=notes)

    def check(seen: Observed, later: Observed) -> list[Cell]:
        try:
            return cells(later, backend(fitted(seen)), model, least)
        except BackendError:  # sizes that a short window lacks
            return []

    tried = windows(training, check)
    window = longest(tried)
    profile = fitted(training[window.start :])
    found = cells(held_out, backend(profile), model, least)
    later = held_out.period(began)
    profile = profile.model_copy(update={"validation": f"{told(found)}; held out: the last fifth of the log, {later}"})
    write(profile, path)
    if page is not None:
        text = render(
            "sim.fit.profile", "page.md.jinja", profile=profile, held_out=later, min_requests=least, cells=found,
            tried=[(training[each.start :], each) for each in tried], begins=began, taken=window,
        )  # fmt: skip
        with atomic_write(page, ConfigError) as temporary:
            temporary.write_text(text, encoding="utf-8")
    print(f"fitted on {training[window.start :].period(began)}, checked on {later}: {told(found)}")
    print(path)


def backend(profile: Profile) -> Profiled:
    """Return the backend that looks a run's costs up in ``profile``."""
    with tempfile.TemporaryDirectory() as folder:
        write(profile, Path(folder) / f"{profile.gpu}_{profile.model}.yaml")
        return Profiled(profile.gpu, folder=folder)
