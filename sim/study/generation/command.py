"""`mezzotint calibrate log`: a profile from the seconds that a service's own log tells."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.profile import Profile, write
from backends.profiled import Profiled
from conf.atomic import atomic_write, check_ours, check_target, output_folder
from sim.errors import ConfigError
from sim.study.generation.cells import Cell, cells, told
from sim.study.generation.fit import fit
from sim.study.generation.observed import Observed, begins, observed
from sim.study.generation.page import Tried, render
from sim.study.generation.window import longest, split, windows
from traces.table.trace import Trace, read

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `log` to what can be calibrated; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "log",
        help="a profile from the seconds in a service's own log",
        description="Fit a profile on the generation seconds of a trace, by size and steps, with their scatter, and "
        "check it on the last fifth of the requests, which is not used. The fit uses a recent window, which the "
        "earlier requests choose.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace whose requests tell their gen_s")
    parser.add_argument("--gpu", required=True, metavar="NAME", help="as the profile's file spells it")
    parser.add_argument("--model", required=True, metavar="NAME", help="as the simulator spells it")
    parser.add_argument(
        "--least", type=int, default=200, metavar="N", help="requests of a cell to check (default: 200)"
    )
    parser.add_argument("--notes", help="what else is to be known, for the profile")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the profile goes")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the check as a page too (Markdown)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fit, check, write, and say how near it comes.

    Raises:
        ConfigError, TraceError, BackendError: the trace tells no seconds, or a file cannot be read or written.
    """
    path = args.output / f"{args.gpu}_{args.model}.yaml"
    check_ours(path, ConfigError, "a profile", b"", b"gpu:", b"schema:")
    if args.page is not None:
        check_ours(args.page, ConfigError, "a page of calibrate log", b"# Generation seconds")
    trace = read(args.trace)
    training, held_out = split(observed(trace))
    output_folder(args.output, ConfigError)
    for file in (path, args.page):
        if file is not None:
            check_target(file, ConfigError)

    def fitted(seen: Observed) -> Profile:
        return fit(seen, gpu=args.gpu, model=args.model, source=_source(trace, seen), notes=args.notes)

    def check(seen: Observed, later: Observed) -> list[Cell]:
        try:
            return cells(later, _backend(fitted(seen)), args.model, args.least)
        except BackendError:  # sizes that a short window lacks
            return []

    tried = windows(training, check)
    window = longest(tried)
    profile = fitted(training[window.start :])
    found = cells(held_out, _backend(profile), args.model, args.least)
    began = begins(trace)
    later = held_out.period(began)
    profile = profile.model_copy(update={"validation": f"{told(found)}; held out: the last fifth of the log, {later}"})
    write(profile, path)
    if args.page is not None:
        shown = [
            Tried(part.period(began), len(part), each, each is window)
            for each in tried
            for part in (training[each.start :],)
        ]
        with atomic_write(args.page, ConfigError) as temporary:
            temporary.write_text(render(found, shown, profile, later, args.least), encoding="utf-8")
    print(f"fitted on {training[window.start :].period(began)}, checked on {later}: {told(found)}")
    print(path)
    return 0


def _source(trace: Trace, fitted: Observed) -> str:
    period = fitted.period(begins(trace))
    return f"{trace.source}: fitted on the seconds of {len(fitted):,} requests, {period}"


def _backend(profile: Profile) -> Profiled:
    """The profile as a run would look it up."""
    with tempfile.TemporaryDirectory() as folder:
        write(profile, Path(folder) / f"{profile.gpu}_{profile.model}.yaml")
        return Profiled(profile.gpu, folder=folder)
