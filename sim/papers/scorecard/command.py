"""`mezzotint reproduce`: run unfinished experiments, compare, write the page, the JSON and the figure."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzotint.extras import INSTALL
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.study import (
    RESULTS,
    RUNS,
    Check,
    Encoders,
    Jobs,
    Names,
    Output,
    Quick,
    RunsOn,
    Traces,
    Work,
    report_lost,
)

if TYPE_CHECKING:
    from mezzotint.sim.papers.scorecard.columns import ColumnTrace

FAILED = 2
"""Exit status if an experiment failed; --check has it too, since a row that is not run is never lost."""


def compare(
    system: Annotated[
        str | None, typer.Argument(metavar="SYSTEM", help="targets of one paper's system [default: all]")
    ] = None,
    quick: Quick = False,
    check: Check = False,
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    only_trace: Annotated[
        bool,
        typer.Option("--only-trace", help="skip the columns without a trace; they are kept if they are up to date"),
    ] = False,
    encoder: Encoders = [],  # noqa: B006
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Run the experiments behind the papers' numbers, compare, and write scorecard.md, .json and .svg.

    The column "mechanism" declares the papers' own hits. The others are of the ground: hit rates, savings and ages, on
    the built-in trace and on each --trace. Finished runs are kept if the command is interrupted.

    Rows of other papers and columns that the folder has are kept.

    Other studies of measurements: reproduce hardware (published runs of real machines), reproduce stages (systems with
    add-ons, Katz's logs), reproduce video (logged runs of videos), reproduce disaggregated (stages on GPUs of their
    own, LightX2V and others).

    Of designs: reproduce addons (caches of ControlNets and LoRAs), reproduce compositions (untested combinations),
    reproduce autoscaling (a day of fixed clusters and autoscalers), reproduce cascade (a light and a heavy model).

    Of clusters: reproduce elastic (another simulator's tables of groups that change, request by request), reproduce
    fleets (several base models on one cluster).

    Raises:
        ConfigError: an unknown system, a malformed file, a folder that cannot be used.
    """
    if check and trace:
        raise ConfigError("--trace: does not go with --check, which compares the built-in trace alone; leave it out")
    from mezzotint.sim.papers.scorecard import page, scorecard  # importing what runs and draws takes a second
    from mezzotint.sim.papers.scorecard.rows import read_columns
    from mezzotint.sim.papers.scorecard.study import load_study

    stem = "scorecard-quick" if quick else "scorecard"
    before = output / f"{stem}.json"
    study = load_study(system, quick=quick)
    committed = scorecard.read_comparisons(before, study) if check else {}
    earlier = read_columns(before) if not check and before.exists() else []
    made = scorecard.make(study, work, jobs, _traces(trace, name, encoder, only_trace), launcher, earlier)
    for error, commands in made.failed.items():
        more = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
        print(f"mezzotint: cannot run {commands[0]}{more}: {error}", file=sys.stderr)
    # an absent package leaves its rows not run
    failed = FAILED if any(INSTALL not in error for error in made.failed) else 0
    columns = made.columns
    if not check:
        whole = load_study(None, quick=quick)
        columns, older = scorecard.add_earlier_columns(made, earlier, whole)
        for in_column, papers in older.items():
            wrong = f"{', '.join(papers)} in the column {in_column} are kept and come from other code or settings"
            print(f"mezzotint: {before}: the rows of {wrong}; make them again", file=sys.stderr)
        scorecard.write(columns, whole, output, stem)
    for column in columns:
        rows = [row for row in column.rows if row.system in study.targets]
        if rows:
            print(f"{column.name}: {page.tally(rows)}")
    return failed if not check else report_lost(committed, scorecard.comparisons(columns)) or failed


def _traces(traces: list[Path], names: list[str], encoders: list[str], only_trace: bool) -> "list[ColumnTrace]":
    from mezzotint.sim.papers.scorecard.columns import ColumnTrace
    from mezzotint.sim.papers.scorecard.scorecard import BUILT_IN

    if len(names) > len(traces):
        raise ConfigError(f"--name: found {names[-1]} without a trace; add --trace FILE")
    if only_trace and not traces:
        raise ConfigError("--only-trace: found no trace; add --trace FILE")
    if encoders and not traces:
        raise ConfigError("--encoder: found no trace whose prompts it compares; add --trace FILE")
    files = [path.expanduser().resolve() for path in traces]
    names, built_in = [*names, *(path.stem for path in files[len(names) :])], [trace.name for trace in BUILT_IN]
    for name in names:
        if names.count(name) > 1 or name in built_in or not re.fullmatch(r"[\w.-]+( [\w.-]+)*", name):
            raise ConfigError(
                f"--name: found the column {name!r}, expected each once, in letters, digits, dots, dashes and spaces, "
                f"and none of {', '.join(built_in)}, the columns that need no trace"
            )
    columns = [ColumnTrace(name, path) for name, path in zip(names, files, strict=True)]
    columns += [
        ColumnTrace(f"{column.name} {encoder}", column.path, encoder=encoder)
        for column in columns
        for encoder in encoders
    ]
    return columns if only_trace else [*BUILT_IN, *columns]
