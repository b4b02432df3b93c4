"""`mezzotint calibrate log`: a profile from the seconds that a service's own log tells."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from backends.profile import Profile, write
from backends.profiled import Profiled
from conf.atomic import atomic_write, check_ours
from sim.errors import ConfigError
from sim.study.generation.cells import cells, render, told
from sim.study.generation.fit import fit
from sim.study.generation.observed import Observed, observed
from traces.table.trace import Trace, read

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `log` to what can be calibrated; the parsed arguments carry `run` under `run`."""
    parser = subparsers.add_parser(
        "log",
        help="a profile from the seconds in a service's own log",
        description="Fit a profile on the generation seconds of a trace, by size and steps, with their scatter, and "
        "check it on a fifth of the requests that was not used.",
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
    if not args.output.is_dir():
        raise ConfigError(f"{args.output}: is no folder; make it, or name another with -o")
    path = args.output / f"{args.gpu}_{args.model}.yaml"
    check_ours(path, ConfigError, "a profile", b"", b"gpu:", b"schema:")
    if args.page is not None:
        check_ours(args.page, ConfigError, "a page of calibrate log", b"# Generation seconds")
    trace = read(args.trace)
    fitted, held_out = observed(trace)
    profile = fit(fitted, gpu=args.gpu, model=args.model, source=_source(trace, fitted), notes=args.notes)
    found = cells(held_out, _backend(profile), args.model, args.least)
    profile = profile.model_copy(update={"source": f"{profile.source}; {told(found)}"})
    write(profile, path)
    if args.page is not None:
        with atomic_write(args.page, ConfigError) as temporary:
            temporary.write_text(render(found, profile, args.least), encoding="utf-8")
    print(told(found))
    print(path)
    return 0


def _source(trace: Trace, fitted: Observed) -> str:
    stretch = ", ".join(f"{key} {trace.notes[key]}" for key in ("since", "until") if trace.notes.get(key))
    return f"{trace.source}{f', {stretch}' if stretch else ''}: fitted on the seconds of {len(fitted):,} requests"


def _backend(profile: Profile) -> Profiled:
    """The profile as a run would look it up."""
    with tempfile.TemporaryDirectory() as folder:
        write(profile, Path(folder) / f"{profile.gpu}_{profile.model}.yaml")
        return Profiled(profile.gpu, folder=folder)
