"""`mezzotint scorecard`: run what is missing, compare, write the page, the JSON and the figure."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.core.errors import ConfigError
from sim.papers.scorecard.options import RESULTS, RUNS, Check, Jobs, Names, Output, Quick, Traces, Work
from sim.papers.verdicts import checked

if TYPE_CHECKING:
    from sim.papers.scorecard.columns import Feed

FAILED = 2
"""Exit status where an experiment could not be run, of --check too: what is never run can lose nothing."""

NEEDS_EXTRA = "pip install 'mezzotint["
"""Part of every error that names a missing extra: its rows are *not run*, and nothing has failed."""


def compare(
    system: Annotated[
        str | None, typer.Argument(metavar="SYSTEM", help="the targets of one paper's system [default: all]")
    ] = None,
    quick: Quick = False,
    check: Check = False,
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    only_trace: Annotated[
        bool, typer.Option("--only-trace", help="run nothing on the built-in trace; its column stays if it still holds")
    ] = False,
    jobs: Jobs = 1,
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Run the experiments behind the papers' numbers, compare, and write scorecard.md, .json and .png.

    Everything is run on each --trace too, in a column of its own. What an interrupted scorecard has finished is kept.

    Other studies: scorecard hardware (published runs of real machines, replayed), scorecard addons (caches of
    ControlNets and LoRAs), scorecard stages (systems with add-ons beside Katz's logs), scorecard compositions (designs
    that nobody has run).

    Raises:
        ConfigError: an unknown system, a malformed file, a folder that cannot be used.
    """
    if check and trace:
        raise ConfigError("--check compares the column of the built-in trace; leave --trace out")
    from sim.papers.scorecard import card, page  # importing what runs and draws takes a second

    stem = "scorecard-quick" if quick else "scorecard"
    before = output / f"{stem}.json"
    study = card.study(system, quick=quick)
    known = card.known(before, study) if check else {}
    made = card.make(study, work, jobs, _feeds(trace, name, only_trace))
    for error, commands in made.failed.items():
        more = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
        print(f"mezzotint: could not be run: {commands[0]}{more}: {error}", file=sys.stderr)
    failed = FAILED if any(NEEDS_EXTRA not in error for error in made.failed) else 0
    if check:
        print(page.tally(made.rows))
        return checked(known, card.judged(made.rows)) or failed
    whole, dropped = card.beside(made, before)
    for column in dropped:
        print(f"mezzotint: {before}: the column {column} is of other code or settings; make it again", file=sys.stderr)
    card.write(whole, output, stem)
    for each in whole.columns:
        print(f"{each.name}: {page.tally(each.rows)}" if len(whole.columns) > 1 else page.tally(each.rows))
    return failed


def _feeds(traces: list[Path], names: list[str], only_trace: bool) -> "list[Feed]":
    from sim.papers.scorecard.columns import SYNTHETIC, Feed

    if len(names) > len(traces):
        raise ConfigError(f"--name {names[-1]}: names no trace; give --trace FILE too")
    if only_trace and not traces:
        raise ConfigError("--only-trace: there is no trace; give --trace FILE too")
    files = [path.expanduser().resolve() for path in traces]
    names = [*names, *(path.stem for path in files[len(names) :])]
    for name in names:
        if names.count(name) > 1 or name == SYNTHETIC or not re.fullmatch(r"[\w.-]+( [\w.-]+)*", name):
            raise ConfigError(
                f"--name: found the column {name!r}, expected each once, in letters, digits, dots, dashes and spaces, "
                f"and not {SYNTHETIC!r}, which is the built-in trace's"
            )
    given = [Feed(name, path) for name, path in zip(names, files, strict=True)]
    return given if only_trace else [Feed(), *given]
